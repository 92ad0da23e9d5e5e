package wire

import (
	"strings"
	"testing"
)

// publishFrame is a PUBLISH of 284 bytes, the size the design's figures are for.
var publishFrame = func() []byte {
	const head = `{"op":"PUBLISH","corr":"c-000123","topic":"orders.created","payload":{"order":12345,"total":99.95,"note":"`
	const tail = `"},"opts":{"id":"0197c6a2-7e6b-7cc0-9a51-0242ac120002","key":"customer-17","headers":{"source":"shop"}}}`
	return []byte(head + strings.Repeat("x", 284-len(head)-len(tail)) + tail)
}()

func BenchmarkDecodeRequest(b *testing.B) {
	lim := DefaultLimits()
	b.SetBytes(int64(len(publishFrame)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := DecodeRequest(publishFrame, lim); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeBatch(b *testing.B) {
	var items []PublishItem
	r, _ := DecodeRequest(publishFrame, DefaultLimits())
	for range 100 {
		items = append(items, r.Publish)
	}
	frame := AppendPublishBatch(nil, "c", "orders.created", items)
	b.SetBytes(int64(len(frame)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := DecodeRequest(frame, DefaultLimits()); err != nil {
			b.Fatal(err)
		}
	}
}

func benchmarkEvent() *Event {
	r, _ := DecodeRequest(publishFrame, DefaultLimits())
	e := r.Publish.Event
	e.TS, e.Partition, e.Seq = 1723140000000, 3, 1042
	return &e
}

func BenchmarkAppendEvent(b *testing.B) {
	e := benchmarkEvent()
	var dst []byte
	b.ReportAllocs()
	for b.Loop() {
		dst = AppendEvent(dst[:0], e.Topic, "billing", e, 1, 30000)
	}
}

func BenchmarkAppendReceipt(b *testing.B) {
	r := &Receipt{ID: "0197c6a2-7e6b-7cc0-9a51-0242ac120002", TS: 1723140000000, Partition: 3, Seq: 1042}
	var dst []byte
	b.ReportAllocs()
	for b.Loop() {
		dst = AppendReceipt(dst[:0], r, "c-000123", true)
	}
}

func BenchmarkDecodeReply(b *testing.B) {
	r := &Receipt{ID: "0197c6a2-7e6b-7cc0-9a51-0242ac120002", TS: 1723140000000, Partition: 3, Seq: 1042}
	e := benchmarkEvent()
	for name, frame := range map[string][]byte{
		"OK":    AppendReceipt(nil, r, "c-000123", true),
		"EVENT": AppendEvent(nil, e.Topic, "billing", e, 1, 30000),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := DecodeReply(frame); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkContentHash(b *testing.B) {
	e := benchmarkEvent()
	b.ReportAllocs()
	for b.Loop() {
		ContentHash(e)
	}
}

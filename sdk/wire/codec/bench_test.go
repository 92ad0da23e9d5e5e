package codec

import (
	"slices"
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// publishFrame is a PUBLISH of 284 bytes, the size the design's figures are for.
var publishFrame = func() []byte {
	const head = `{"op":"PUBLISH","corr":"c-000123","topic":"orders.created","payload":{"order":12345,"total":99.95,"note":"`
	const tail = `"},"opts":{"id":"0197c6a2-7e6b-7cc0-9a51-0242ac120002","key":"customer-17","headers":{"source":"shop"}}}`
	return []byte(head + strings.Repeat("x", 284-len(head)-len(tail)) + tail)
}()

func BenchmarkDecodeRequest(b *testing.B) {
	lim := wire.DefaultLimits()
	b.SetBytes(int64(len(publishFrame)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := DecodeRequest(publishFrame, lim); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeBatch(b *testing.B) {
	var items []wire.PublishItem
	r, _ := DecodeRequest(publishFrame, wire.DefaultLimits())
	for range 100 {
		items = append(items, r.Publish)
	}
	frame := AppendPublishBatch(nil, "c", "orders.created", items)
	b.SetBytes(int64(len(frame)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := DecodeRequest(frame, wire.DefaultLimits()); err != nil {
			b.Fatal(err)
		}
	}
}

func benchmarkEvent() *wire.Event {
	r, _ := DecodeRequest(publishFrame, wire.DefaultLimits())
	e := r.Publish.Event
	e.TS, e.Partition, e.Seq = 1723140000000, 3, 1042
	return &e
}

func BenchmarkAppendEvent(b *testing.B) {
	e := benchmarkEvent()
	var dst []byte
	b.ReportAllocs()
	for b.Loop() {
		dst = AppendEvent(dst[:0], e.Topic, "billing", AppendEventJSON, e, 1, 30000)
	}
}

func BenchmarkAppendReceipt(b *testing.B) {
	r := &wire.Receipt{ID: "0197c6a2-7e6b-7cc0-9a51-0242ac120002", TS: 1723140000000, Partition: 3, Seq: 1042}
	var dst []byte
	b.ReportAllocs()
	for b.Loop() {
		dst = AppendReceipt(dst[:0], r, "c-000123", true)
	}
}

func BenchmarkDecodeReply(b *testing.B) {
	r := &wire.Receipt{ID: "0197c6a2-7e6b-7cc0-9a51-0242ac120002", TS: 1723140000000, Partition: 3, Seq: 1042}
	e := benchmarkEvent()
	for name, frame := range map[string][]byte{
		"OK":    AppendReceipt(nil, r, "c-000123", true),
		"EVENT": AppendEvent(nil, e.Topic, "billing", AppendEventJSON, e, 1, 30000),
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

// orderPayload is an object of 300 bytes, about what an event carries.
const orderPayload = `{"order_id":"0197c6a2-7e6b-7cc0-9a51-0242ac120002","customer":{"id":17,"name":"Ada Lovelace","vip":true},` +
	`"currency":"EUR","total":1234.56,"items":[{"sku":"AB-1001","qty":2,"price":19.99},{"sku":"CD-2002","qty":1,"price":1194.58}],` +
	`"created_at":1723140000000,"note":null,"address":"12 St James's Square, SW1"}`

func orderEvent() *wire.Event {
	return &wire.Event{Key: "customer-17", Payload: []byte(orderPayload), Headers: wire.Headers{
		{Name: "traceparent", Value: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}, {Name: "source", Value: "shop"},
	}}
}

func BenchmarkContentHash(b *testing.B) {
	plain := benchmarkEvent()
	bytes := orderEvent()
	bytes.Binary = true
	large := jsonEvent(`[` + strings.Repeat(orderPayload+`,`, 99) + orderPayload + `]`)
	for _, c := range []struct {
		name  string
		event *wire.Event
	}{{"order", orderEvent()}, {"note", plain}, {"bytes", bytes}, {"100 orders", large}} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				ContentHash(c.event)
			}
		})
	}
}

// BenchmarkSameContent compares an event with itself, and with one whose payload has its members in
// another order.
func BenchmarkSameContent(b *testing.B) {
	e, other := orderEvent(), orderEvent()
	other.Payload = []byte(strings.Replace(orderPayload, `"note":null,`, ``, 1))
	other.Payload = []byte(`{"note":null,` + string(other.Payload[1:]))
	for name, x := range map[string]*wire.Event{"itself": orderEvent(), "in another order": other} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if !SameContent(e, x) {
					b.Fatal("not the same")
				}
			}
		})
	}
}

func BenchmarkTokens(b *testing.B) {
	text := []byte(orderPayload)
	b.ReportAllocs()
	for b.Loop() {
		tokens := NewTokens(text)
		for {
			if err := tokens.Next(); err != nil {
				b.Fatal(err)
			}
			if tokens.Kind == TokenEnd {
				break
			}
		}
	}
}

func BenchmarkAppendDecimal(b *testing.B) {
	var dst []byte
	for _, number := range []string{"17", "1723140000000", "1194.58", "-1.5e-7"} {
		b.Run(number, func(b *testing.B) {
			text := []byte(number)
			b.ReportAllocs()
			for b.Loop() {
				dst = AppendDecimal(dst[:0], text)
			}
		})
	}
}

// BenchmarkDecodeEvents decodes a frame of 100 events of 256 bytes.
func BenchmarkDecodeEvents(b *testing.B) {
	e := &wire.Event{ID: "0197c6a2-7e6b-7cc0-9a51-0242ac120002", TS: 1723140000000, Topic: "orders.created", Partition: 3, Seq: 1042,
		Payload: []byte(`{"t0":1723140000000000000,"pad":"` + strings.Repeat("x", 221) + `"}`)}
	frame := AppendEventsStart(nil, e.Topic, "billing")
	for range 100 {
		frame = AppendEventsItem(frame, AppendEventJSON, e, 1, 30000)
	}
	frame = AppendEventsEnd(frame)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := DecodeReply(frame); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkDecodeAck decodes the ACK of 100 events.
func BenchmarkDecodeAck(b *testing.B) {
	ids := slices.Repeat([]string{"0197c6a2-7e6b-7cc0-9a51-0242ac120002"}, 100)
	frame := AppendAck(nil, "17", "orders.created", "billing", ids...)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := DecodeRequest(frame, wire.DefaultLimits()); err != nil {
			b.Fatal(err)
		}
	}
}

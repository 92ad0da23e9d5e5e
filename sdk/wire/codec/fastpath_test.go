package codec

import (
	"bytes"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// sidecarFrames are frames of deliveries and answers as sidecars write them.
func sidecarFrames(events ...*wire.Event) (frames [][]byte) {
	of := events[0]
	many := AppendEventsStart(nil, of.Topic, "g")
	var results []wire.ResultItem
	for i, e := range events {
		frames = append(frames, AppendEvent(nil, e.Topic, "", AppendEventJSON, e, 1, 0))
		many = AppendEventsItem(many, AppendEventJSON, e, 1+i, 30000)
		receipt := wire.Receipt{ID: e.ID, TS: e.TS, Partition: e.Partition, Seq: e.Seq, Duplicate: e.Binary, Spooled: e.Spooled}
		frames = append(frames, AppendReceipt(nil, &receipt, "17", true))
		results = append(results, wire.ResultItem{Receipt: receipt}, wire.ResultItem{Receipt: wire.Receipt{ID: e.ID, DeliverAt: 1 + e.TS}})
	}
	return append(frames, AppendEventsEnd(many), AppendResults(nil, results, "", true), AppendOK(nil, "", false), AppendOK(nil, "\n", true))
}

// someEvent makes an event of texts that need escapes, now and then.
func someEvent(r *rand.Rand) *wire.Event {
	text := func() string {
		return strings.Repeat([]string{"", "customer-17", "é\"\n\\", "😀", "0197c6a2-7e6b-7cc0-9a51-0242ac120002"}[r.IntN(5)], r.IntN(3))
	}
	texts := func() (list []string) {
		for range r.IntN(3) {
			list = append(list, text())
		}
		return list
	}
	e := &wire.Event{
		ID: text(), TS: r.Int64N(1e18), Topic: "t" + text(), Key: text(), Tags: texts(), CausedBy: texts(), SID: text(), TTLMS: r.Int64N(2),
		Payload: []byte([]string{"1", "null", `{"a":[1,{}]}`, `"\ud800"`}[r.IntN(4)]), Binary: r.IntN(4) == 0, Spooled: r.IntN(2) == 0,
	}
	if r.IntN(2) == 0 {
		e.Partition, e.Seq = r.IntN(64), r.Uint64N(1e18)
	}
	for i := range r.IntN(3) {
		e.Headers = append(e.Headers, wire.Header{Name: text() + string(rune('a'+i)), Value: text()})
	}
	return e
}

// TestFastPath: what sidecars write takes the fast path, and that gives what the general one gives. Where a byte of it
// is changed, both ways agree, or the short one is not taken.
func TestFastPath(t *testing.T) {
	const bytesOfJSON = `"\{}[]:,0123456789aeu. ` + "\n\xff"
	atRandom(t, func(t *testing.T, r *rand.Rand) {
		for _, frame := range sidecarFrames(someEvent(r), someEvent(r), someEvent(r)) {
			want, err := decodeAnyReply(frame)
			got := decodeFast(frame)
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Fatalf("%s\nthe fast path gives  %+v\nthe general one gives %+v (%v)", frame, got, want, err)
			}
			changed := bytes.Clone(frame)
			changed[r.IntN(len(frame))] = bytesOfJSON[r.IntN(len(bytesOfJSON))]
			if cut := r.IntN(len(frame)); r.IntN(4) == 0 {
				changed = append(changed[:cut], changed[cut+1:]...)
			}
			want, err = decodeAnyReply(changed)
			if got := decodeFast(changed); got != nil && (err != nil || !reflect.DeepEqual(got, want)) {
				t.Fatalf("%s\nthe fast path gives  %+v\nthe general one gives %+v (%v)", changed, got, want, err)
			}
		}
	})
}

// TestFastPathAllocates: an event takes its strings and its payload, and nothing for where they were found.
func TestFastPathAllocates(t *testing.T) {
	e := &wire.Event{ID: "0197c6a2-7e6b-7cc0-9a51-0242ac120002", TS: 5, Topic: "orders", Seq: 2, Key: "k", Payload: []byte(`{"a":1}`)}
	frame := AppendEventsStart(nil, "orders", "g")
	for range 100 {
		frame = AppendEventsItem(frame, AppendEventJSON, e, 1, 30000)
	}
	frame = AppendEventsEnd(frame)
	most := 2*100 + 4.0 // the reply, its names, and its list, made twice
	if n := testing.AllocsPerRun(100, func() { _, _ = DecodeReply(frame) }); n > most {
		t.Errorf("%v allocations, not %v", n, most)
	}
}

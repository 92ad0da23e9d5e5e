package eventlogtest

import (
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// testFidelity: every way of reading returns the events as they were appended, also after a
// restart.
func testFidelity(t *testing.T, s *suite) {
	allBytes := make([]byte, 256)
	for i := range allBytes {
		allBytes[i] = byte(i)
	}
	events := []*eventlog.Record{
		Event("numbers", Payload(`[12345678901234567890,0.1,1e400,-0,1E+2,0.10,1.0]`)),
		Event("order", Payload(`{"z":1,"a":{"$set":1,"b.c":2,"":3},"m":[]}`)),
		Event("strings", Payload(`"\u0000\ud83d\ude00 \\ \" \/ 😀 \u2028 <>&"`)),
		Event("surrogate", Payload(`"\ud800"`)),
		Event("null", Payload(`null`)),
		Event("deep", Payload(strings.Repeat("[", 500)+strings.Repeat("]", 500))),
		Event("large", Payload(`"`+strings.Repeat("x", 1<<20-2)+`"`)),
		Event("bytes", func(r *eventlog.Record) { r.Payload, r.Binary = allBytes, true }),
		Event("no bytes", func(r *eventlog.Record) { r.Payload, r.Binary = []byte{}, true }),
		Event("bytes like JSON", func(r *eventlog.Record) { r.Payload, r.Binary = []byte(`{"a":1}`), true }),
		Event("headers", func(r *eventlog.Record) {
			r.Headers = wire.Headers{{Name: "z", Value: "1"}, {Name: "a.b", Value: ""}, {Name: "$c", Value: "ü\x00"}, {Name: "", Value: "x"}}
		}),
		Event("lists", func(r *eventlog.Record) {
			r.Tags, r.CausedBy, r.SID = []string{"eu", "", "eu"}, []string{"headers", "nothing"}, "boot-1"
		}),
		Event("keyed", Keyed("k\x00\xc3\xa9\u2028"+strings.Repeat("k", 500))),
		Event("ttl", func(r *eventlog.Record) { r.TTLMS = wire.MaxTTLMS }),
		Event("ts 0", At(0), Accepted(start+7)),
		Event("ts max", At(wire.MaxTS), Accepted(1)),
		Event(strings.Repeat("i", wire.MaxIDBytes)),
	}
	topic := s.topic(t, 2)
	// s.stored writes their place into the events themselves.
	s.stored(t, topic, 1, events...)
	for _, e := range events {
		e.Topic = topic
	}
	check := func(t *testing.T) {
		got := s.readAll(t, topic, 1)
		if len(got) != len(events) {
			t.Fatalf("read %d events; want %d", len(got), len(events))
		}
		for i, want := range events {
			sameRecord(t, got[i], want)
			found, err := s.log.Lookup(t.Context(), topic, want.ID)
			must(t, err)
			sameRecord(t, found, want)
			if out := s.append(t, topic, 0, want)[0]; !out.Duplicate || out.Seq != want.Seq || out.TS != want.TS {
				t.Errorf("%q again: %+v; want a duplicate of seq %d", want.ID, out, want.Seq)
			}
		}
		byID := map[string]*eventlog.Record{}
		for _, e := range events {
			byID[e.ID] = e
		}
		scanned := s.pages(t, topic, eventlog.ScanQuery{}, eventlog.Bounds{Events: 5})
		if len(scanned) != len(events) {
			t.Fatalf("scanned %d events; want %d", len(scanned), len(events))
		}
		for _, e := range scanned {
			sameRecord(t, e, byID[e.ID])
		}
	}
	t.Run("at once", check)
	s.reopen(t)
	t.Run("after a restart", check)
}

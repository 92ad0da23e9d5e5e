package spool_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/test/require"
)

// world is a topic with some events in the log and some in the spool. Its drainer takes a step when
// the test says so.
type world struct {
	*fixture

	mu      sync.Mutex // look-ups come from several goroutines
	dice    *rand.Rand
	waiting []*eventlog.Record // in the spool's order
	want    map[string]int64   // every id's ts: the log's, where both have it
}

func newWorld(rt *rapid.T, t *testing.T) *world {
	w := &world{fixture: newFixture(t, `[{name: "*", partitions: 3}]`), want: map[string]int64{}}
	w.dice = rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed of the moves"), 0))
	w.open()
	draw := func(id string) *eventlog.Record {
		r := record(id)
		r.Topic, r.TS = "t", rapid.Int64Range(1, 6).Draw(rt, "ts")
		r.Key = rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "key")
		r.Payload = make([]byte, rapid.IntRange(2, 40).Draw(rt, "payload"))
		r.Binary = true
		return r
	}
	for i := range rapid.IntRange(0, 15).Draw(rt, "logged") {
		r := draw(fmt.Sprintf("%02d", i))
		w.toLog(r)
		w.want[r.ID] = r.TS
	}
	w.shared.set(down)
	for i := range rapid.IntRange(1, 15).Draw(rt, "spooled") {
		r := draw(fmt.Sprintf("%02d", i*3)) // the log has some of these ids
		if _, ok := w.want[r.ID]; !ok {
			w.want[r.ID] = r.TS
		}
		if got := w.publishAll("t", []*eventlog.Record{r}); got[0] != "spooled" {
			rt.Fatalf("%s: %s", r.ID, got[0])
		}
		w.waiting = append(w.waiting, r)
	}
	w.shared.set(up)
	return w
}

// toLog appends to the log, which may have the id.
func (w *world) toLog(r *eventlog.Record) {
	c := *r
	w.shared.create("t", 3)
	w.shared.Append(context.Background(), "t", eventlog.PartitionOf(c.Key, c.ID, 3), []*eventlog.Record{&c})
}

// move takes events from the spool to the log, as the drainer does.
func (w *world) move() {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := min(w.dice.IntN(4), len(w.waiting))
	for _, r := range w.waiting[:n] {
		w.toLog(r)
	}
	if n == 0 || w.dice.IntN(2) == 0 {
		return
	}
	page, err := w.store.Read(context.Background(), "t", 0, 1, eventlog.Bounds{Events: n})
	if err == nil {
		err = w.store.Truncate(context.Background(), "t", 0, page[n-1].Seq)
	}
	if err != nil {
		w.t.Error(err)
	}
	w.waiting = w.waiting[n:]
}

// TestSourceIsTheUnion reads everything page by page while events move.
func TestSourceIsTheUnion(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(rt, t)
		defer w.store.Close()
		var q eventlog.ScanQuery
		q.Descending = rapid.Bool().Draw(rt, "descending")
		q.MinTS = rapid.Int64Range(0, 3).Draw(rt, "min ts")
		if rapid.Bool().Draw(rt, "bounded") {
			q.MaxTS = rapid.Int64Range(3, 6).Draw(rt, "max ts")
		}
		b := eventlog.Bounds{Events: rapid.IntRange(1, 8).Draw(rt, "events"), Bytes: rapid.SampledFrom([]int{0, 300, 1000}).Draw(rt, "bytes")}
		w.shared.before = w.move
		source := w.Source(w.shared)
		var got []*eventlog.Record
		for {
			page, err := source.Scan(context.Background(), "t", q, b)
			require.NoError(rt, err)
			if len(page) == 0 {
				break
			}
			checkPage(rt, page, b)
			got = append(got, page...)
			last := pointOf(page[len(page)-1])
			q.After = &last
			w.move()
		}
		if !slices.IsSortedFunc(got, func(a, b *eventlog.Record) int {
			if q.Descending {
				a, b = b, a
			}
			return pointOf(a).Compare(pointOf(b))
		}) {
			rt.Fatalf("not in order: %v", points(got))
		}
		seen := map[string]bool{}
		for _, r := range got {
			if seen[r.ID] || r.TS != w.want[r.ID] {
				rt.Fatalf("%q at %d, seen before: %v; want it once at %d", r.ID, r.TS, seen[r.ID], w.want[r.ID])
			}
			seen[r.ID] = true
		}
		for id, ts := range w.want {
			if in := ts >= q.MinTS && ts <= q.Upper(); in != seen[id] {
				rt.Fatalf("%q at %d is in the answer: %v; want %v", id, ts, seen[id], in)
			}
		}
	})
}

// checkPage checks the bounds of a page and the marks of its events.
func checkPage(rt *rapid.T, page []*eventlog.Record, b eventlog.Bounds) {
	bytes := 0
	for _, r := range page[:len(page)-1] {
		bytes += r.Size()
	}
	if len(page) > b.Events || b.Bytes > 0 && bytes >= b.Bytes && len(page) > 1 {
		rt.Fatalf("a page of %d events, of which all but one have %d bytes; the bounds are %+v", len(page), bytes, b)
	}
	for _, r := range page {
		if r.Spooled != (r.Seq == 0) || r.Spooled && r.Partition != 0 {
			rt.Fatalf("event %+v", r)
		}
	}
}

func points(recs []*eventlog.Record) (out []eventlog.Point) {
	for _, r := range recs {
		out = append(out, pointOf(r))
	}
	return out
}

// TestSourceFindsEveryID looks ids up while their events move.
func TestSourceFindsEveryID(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(rt, t)
		defer w.store.Close()
		w.shared.before = w.move
		source := w.Source(w.shared)
		for id, ts := range w.want {
			r, err := source.Lookup(context.Background(), "t", id)
			if err != nil || r.TS != ts || r.Spooled != (r.Seq == 0) {
				rt.Fatalf("%q: %+v, %v; want ts %d", id, r, err, ts)
			}
		}
		if _, err := source.Lookup(context.Background(), "t", "none"); !errors.Is(err, eventlog.ErrNotFound) {
			rt.Fatalf("an id that nobody published: %v", err)
		}
	})
}

func TestSource(t *testing.T) {
	within(t, standard, func(t *testing.T, f *fixture) {
		source := f.Source(f.shared)
		all := eventlog.Bounds{Events: 10}
		if _, err := source.Scan(t.Context(), "t", eventlog.ScanQuery{}, all); !errors.Is(err, eventlog.ErrNotFound) {
			t.Errorf("a topic that nobody has: %v", err)
		}
		f.shared.set(down)
		f.want(f.publish("t", "a-1", "b-1"), "spooled")
		if _, err := source.Scan(t.Context(), "t", eventlog.ScanQuery{}, all); !errors.Is(err, eventlog.ErrUnavailable) {
			t.Errorf("half of an answer: %v", err)
		}
		f.cancel()
		<-f.done
		f.shared.set(up) // and nobody drains
		key := "b"
		page, err := source.Scan(t.Context(), "t", eventlog.ScanQuery{Key: &key}, all)
		if err != nil || len(page) != 1 || page[0].ID != "b-1" {
			t.Errorf("key b of a topic that only the spool has: %v, %v", points(page), err)
		}
		if json := string(codec.AppendEventJSON(nil, &page[0].Event)); json !=
			`{"id":"b-1","ts":1000,"topic":"t","key":"b","payload":{"id":"b-1"},"spooled":true}` {
			t.Errorf("as JSON: %s", json)
		}
		// The log holds the id with another key: the spooled one is on its way to the dead letters.
		f.shared.create("t", 2)
		other := &eventlog.Record{Event: wire.Event{ID: "b-1", TS: 1000, Topic: "t", Key: "z", Payload: []byte("1")}}
		f.shared.Append(t.Context(), "t", 0, []*eventlog.Record{other})
		page, err = source.Scan(t.Context(), "t", eventlog.ScanQuery{Key: &key}, all)
		if err != nil || len(page) != 0 {
			t.Errorf("key b, of which only a conflict is left: %v, %v", points(page), err)
		}
		f.run()
		f.drained()
		page, err = source.Scan(t.Context(), "t", eventlog.ScanQuery{}, all)
		if err != nil || len(page) != 2 || page[0].Spooled || page[1].Key != "z" {
			t.Errorf("drained: %v, %v", points(page), err)
		}
	})
}

package tail_test

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/tail"
)

// recordSize is the Size of a record without payload.
var recordSize = record(1, 0).Size()

func record(seq uint64, payload int) *eventlog.Record {
	return &eventlog.Record{Event: wire.Event{
		ID: "id", Topic: "t", Seq: seq, Payload: []byte(strings.Repeat("x", payload)),
	}}
}

// records are the small events with the seqs from first to last.
func records(first, last uint64) []*eventlog.Record {
	var recs []*eventlog.Record
	for seq := first; seq <= last; seq++ {
		recs = append(recs, record(seq, 0))
	}
	return recs
}

func seqs(recs []*eventlog.Record) []uint64 {
	out := make([]uint64, 0, len(recs))
	for _, r := range recs {
		out = append(out, r.Seq)
	}
	return out
}

func wantSeqs(t *testing.T, got []*eventlog.Record, want ...uint64) {
	t.Helper()
	if !slices.Equal(seqs(got), want) {
		t.Errorf("read %v, want %v", seqs(got), want)
	}
}

// page is larger than anything in these tests.
var page = eventlog.Bounds{Events: 1000}

func noWake() {}

func TestReadFromSeq(t *testing.T) {
	tails := tail.New(tail.DefaultBounds())
	w := tails.Watch("t", noWake)
	tails.Appended("t", 2, records(5, 9))

	wantSeqs(t, w.Read(2, 5, page), 5, 6, 7, 8, 9)
	wantSeqs(t, w.Read(2, 8, page), 8, 9)
	wantSeqs(t, w.Read(2, 4, page)) // the log has it
	wantSeqs(t, w.Read(2, 10, page))
	wantSeqs(t, w.Read(1, 5, page))
	if w.Head(2) != 9 || w.Head(1) != 0 {
		t.Errorf("heads %d and %d, want 9 and 0", w.Head(2), w.Head(1))
	}
}

func TestReadBounds(t *testing.T) {
	tails := tail.New(tail.DefaultBounds())
	w := tails.Watch("t", noWake)
	tails.Appended("t", 0, records(1, 5))

	for _, c := range []struct {
		name   string
		bounds eventlog.Bounds
		want   []uint64
	}{
		{"events", eventlog.Bounds{Events: 2}, []uint64{1, 2}},
		{"bytes reached exactly", eventlog.Bounds{Events: 9, Bytes: 2 * recordSize}, []uint64{1, 2}},
		{"bytes reached with the last", eventlog.Bounds{Events: 9, Bytes: 2*recordSize + 1}, []uint64{1, 2, 3}},
		{"one event always", eventlog.Bounds{Events: 9, Bytes: 1}, []uint64{1}},
	} {
		t.Run(c.name, func(t *testing.T) { wantSeqs(t, w.Read(0, 1, c.bounds), c.want...) })
	}
}

// Records that were read do not change when the ring moves on.
func TestReadIsTheReadersOwn(t *testing.T) {
	tails := tail.New(tail.Bounds{RingEvents: 3, RingBytes: 1 << 20, TotalBytes: 1 << 20})
	w := tails.Watch("t", noWake)
	var reads [][]*eventlog.Record
	for seq := uint64(1); seq <= 20; seq++ {
		tails.Appended("t", 0, records(seq, seq))
		reads = append(reads, w.Read(0, seq, page))
	}
	for i, got := range reads {
		if len(got) != 1 || got[0] == nil {
			t.Fatalf("read %d is now %v", i, got)
		}
		wantSeqs(t, got, uint64(i+1))
	}
}

func TestRingDropsTheOldest(t *testing.T) {
	for name, b := range map[string]tail.Bounds{
		"events": {RingEvents: 3, RingBytes: 1 << 20, TotalBytes: 1 << 20},
		"bytes":  {RingEvents: 1000, RingBytes: 4*recordSize - 1, TotalBytes: 1 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			tails := tail.New(b)
			w := tails.Watch("t", noWake)
			for seq := range uint64(20) {
				tails.Appended("t", 0, records(seq+1, seq+1))
			}
			wantSeqs(t, w.Read(0, 17, page))
			wantSeqs(t, w.Read(0, 18, page), 18, 19, 20)
			tails.Appended("t", 0, records(21, 40))
			wantSeqs(t, w.Read(0, 37, page))
			wantSeqs(t, w.Read(0, 38, page), 38, 39, 40)
		})
	}
}

func TestEventLargerThanTheRing(t *testing.T) {
	tails := tail.New(tail.Bounds{RingEvents: 10, RingBytes: 3 * recordSize, TotalBytes: 1 << 20})
	woken := 0
	w := tails.Watch("t", func() { woken++ })
	tails.Appended("t", 0, records(1, 2))
	tails.Appended("t", 0, []*eventlog.Record{record(3, 4*recordSize)})
	wantSeqs(t, w.Read(0, 1, page))
	wantSeqs(t, w.Read(0, 3, page))
	if w.Head(0) != 3 || woken != 2 {
		t.Errorf("head %d, woken %d times; want 3 and 2", w.Head(0), woken)
	}
	tails.Appended("t", 0, records(4, 4))
	wantSeqs(t, w.Read(0, 4, page), 4)
}

func TestGapResetsTheRing(t *testing.T) {
	tails := tail.New(tail.DefaultBounds())
	w := tails.Watch("t", noWake)
	tails.Appended("t", 0, records(1, 3))
	tails.Appended("t", 0, records(5, 6)) // another sidecar stored 4
	wantSeqs(t, w.Read(0, 3, page))
	wantSeqs(t, w.Read(0, 4, page))
	wantSeqs(t, w.Read(0, 5, page), 5, 6)
}

// Another sidecar may take a seq in the middle of a batch.
func TestGapWithinABatch(t *testing.T) {
	tails := tail.New(tail.DefaultBounds())
	w := tails.Watch("t", noWake)
	tails.Appended("t", 0, append(records(1, 2), records(4, 6)...))
	wantSeqs(t, w.Read(0, 2, page))
	wantSeqs(t, w.Read(0, 4, page), 4, 5, 6)
	wantSeqs(t, w.Read(0, 5, page), 5, 6)
}

// At the total bound appends are announced and not kept, and records kept elsewhere stay.
func TestTotalBytes(t *testing.T) {
	tails := tail.New(tail.Bounds{RingEvents: 1000, RingBytes: 1 << 20, TotalBytes: int64(5 * recordSize)})
	woken := 0
	a, b := tails.Watch("a", noWake), tails.Watch("b", func() { woken++ })
	tails.Appended("a", 0, records(1, 4))
	tails.Appended("b", 0, records(1, 2))
	wantSeqs(t, a.Read(0, 1, page), 1, 2, 3, 4)
	wantSeqs(t, b.Read(0, 1, page))
	if b.Head(0) != 2 || woken != 1 {
		t.Errorf("head %d, woken %d times; want 2 and 1", b.Head(0), woken)
	}
	tails.Appended("b", 0, records(3, 3))
	wantSeqs(t, b.Read(0, 3, page), 3)
	a.Close()
	tails.Appended("b", 0, records(4, 7))
	wantSeqs(t, b.Read(0, 3, page), 3, 4, 5, 6, 7)
}

func TestNothingIsKeptUnwatched(t *testing.T) {
	tails := tail.New(tail.DefaultBounds())
	tails.Appended("t", 0, records(1, 3))
	w := tails.Watch("t", func() { t.Error("woken without an append to the topic") })
	wantSeqs(t, w.Read(0, 1, page))
	tails.Appended("u", 0, records(1, 1))
	tails.Appended("t", 0, nil)
	if w.Head(0) != 0 {
		t.Errorf("head %d, want 0", w.Head(0))
	}
}

func TestCloseEndsWakesAndFrees(t *testing.T) {
	// Room for one topic's events: whatever a Close left would show.
	tails := tail.New(tail.Bounds{RingEvents: 1000, RingBytes: 1 << 20, TotalBytes: int64(4 * recordSize)})
	for range 3 {
		var first, second int
		w1 := tails.Watch("t", func() { first++ })
		w2 := tails.Watch("t", func() { second++ })
		tails.Appended("t", 0, records(1, 2))
		tails.Appended("t", 1, records(1, 2))
		w1.Close()
		wantSeqs(t, w2.Read(1, 1, page), 1, 2)
		tails.Appended("t", 0, nil)
		w2.Close()
		w2.Close()
		wantSeqs(t, w2.Read(1, 1, page))
		tails.Appended("t", 0, records(3, 3))
		if first != 2 || second != 2 {
			t.Errorf("woken %d and %d times, want 2 and 2", first, second)
		}
	}
}

// The wake finds the events: it comes after they are readable.
func TestWakeComesAfterTheEvents(t *testing.T) {
	tails := tail.New(tail.DefaultBounds())
	wake := make(chan struct{}, 1)
	w := tails.Watch("t", func() {
		select {
		case wake <- struct{}{}:
		default:
		}
	})
	const last = 500
	var wg sync.WaitGroup
	wg.Go(func() {
		for seq := range uint64(last) {
			tails.Appended("t", 0, records(seq+1, seq+1))
		}
	})
	next := uint64(1)
	for next <= last {
		<-wake
		for _, r := range w.Read(0, next, page) {
			if r.Seq != next {
				t.Fatalf("read seq %d, want %d", r.Seq, next)
			}
			next++
		}
	}
	wg.Wait()
}

// Watching, closing and appending at once neither races nor loses count.
func TestConcurrentUse(t *testing.T) {
	tails := tail.New(tail.Bounds{RingEvents: 8, RingBytes: 1 << 20, TotalBytes: int64(20 * recordSize)})
	var wg sync.WaitGroup
	for p := range 2 {
		wg.Go(func() {
			for seq := range uint64(500) {
				tails.Appended("t", p, records(seq+1, seq+1))
			}
		})
		wg.Go(func() {
			for range 200 {
				w := tails.Watch("t", noWake)
				w.Read(p, w.Head(p), page)
				w.Close()
			}
		})
	}
	wg.Wait()
	w := tails.Watch("t", noWake)
	for p := range 2 {
		tails.Appended("t", p, records(501, 508))
		wantSeqs(t, w.Read(p, 501, page), 501, 502, 503, 504, 505, 506, 507, 508)
	}
}

// model is what a Tails of one topic should hold, by partition.
type model struct {
	bounds tail.Bounds
	held   map[int][]*eventlog.Record
	heads  map[int]uint64
}

func size(recs []*eventlog.Record) (n int) {
	for _, r := range recs {
		n += r.Size()
	}
	return n
}

func (m *model) appended(partition int, recs []*eventlog.Record) {
	held := m.held[partition]
	for _, r := range recs {
		if r.Seq != m.heads[partition]+1 {
			held = nil
		}
		held = append(held, r)
		m.heads[partition] = r.Seq
	}
	for len(held) > m.bounds.RingEvents || size(held) > m.bounds.RingBytes {
		held = held[1:]
	}
	m.held[partition] = held
	total := 0
	for _, h := range m.held {
		total += size(h)
	}
	if int64(total) > m.bounds.TotalBytes {
		m.held[partition] = nil
	}
}

func (m *model) read(partition int, from uint64, b eventlog.Bounds) []uint64 {
	i := slices.IndexFunc(m.held[partition], func(r *eventlog.Record) bool { return r.Seq == from })
	if i < 0 {
		return nil
	}
	var out []uint64
	bytes := 0
	for _, r := range m.held[partition][i:] {
		if len(out) == b.Events || len(out) > 0 && b.Bytes > 0 && bytes >= b.Bytes {
			break
		}
		out = append(out, r.Seq)
		bytes += r.Size()
	}
	return out
}

func TestModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		bounds := tail.Bounds{
			RingEvents: rapid.IntRange(1, 8).Draw(rt, "ring events"),
			RingBytes:  rapid.IntRange(1, 12).Draw(rt, "ring size") * recordSize,
			TotalBytes: int64(rapid.IntRange(1, 20).Draw(rt, "total size") * recordSize),
		}
		tails := tail.New(bounds)
		var w *tail.Watch
		var m model
		woken, appends := 0, 0
		watch := func() {
			w = tails.Watch("t", func() { woken++ })
			m = model{bounds: bounds, held: map[int][]*eventlog.Record{}, heads: map[int]uint64{}}
		}
		watch()
		next := make([]uint64, 3) // seqs go on while nobody watches
		partitions := rapid.IntRange(0, len(next)-1)
		rt.Repeat(map[string]func(*rapid.T){
			"append": func(rt *rapid.T) {
				p := partitions.Draw(rt, "partition")
				var recs []*eventlog.Record
				for range rapid.IntRange(1, 6).Draw(rt, "events") {
					next[p]++
					if rapid.IntRange(0, 9).Draw(rt, "gap") == 0 {
						next[p]++
					}
					recs = append(recs, record(next[p], rapid.IntRange(0, 300).Draw(rt, "payload")))
				}
				tails.Appended("t", p, recs)
				m.appended(p, recs)
				appends++
			},
			"read": func(rt *rapid.T) {
				p := partitions.Draw(rt, "partition")
				back := rapid.Uint64Range(0, 10).Draw(rt, "back")
				from := next[p] + 1 - min(back, next[p]+1)
				b := eventlog.Bounds{
					Events: rapid.IntRange(1, 6).Draw(rt, "events"),
					Bytes:  rapid.IntRange(0, 3*recordSize).Draw(rt, "bytes"),
				}
				if got, want := seqs(w.Read(p, from, b)), m.read(p, from, b); !slices.Equal(got, want) {
					rt.Fatalf("partition %d from %d, %+v: read %v, want %v", p, from, b, got, want)
				}
			},
			"watch again": func(*rapid.T) {
				w.Close()
				watch()
			},
			"": func(rt *rapid.T) {
				if woken != appends {
					rt.Fatalf("woken %d times by %d appends", woken, appends)
				}
				for p := range next {
					if w.Head(p) != m.heads[p] {
						rt.Fatalf("partition %d: head %d, want %d", p, w.Head(p), m.heads[p])
					}
				}
			},
		})
	})
}

func TestTopics(t *testing.T) {
	tails := tail.New(tail.DefaultBounds())
	_, changed := tails.Topics()
	expect := func(news bool, want ...string) {
		t.Helper()
		select {
		case <-changed:
			if !news {
				t.Error("the topics have changed")
			}
		default:
			if news {
				t.Error("the topics have not changed")
			}
		}
		var names []string
		names, changed = tails.Topics()
		if slices.Sort(names); !slices.Equal(names, want) {
			t.Errorf("topics %v, want %v", names, want)
		}
	}
	a := tails.Watch("a", noWake)
	expect(true, "a")
	again, b := tails.Watch("a", noWake), tails.Watch("b", noWake)
	expect(true, "a", "b")
	a.Close()
	a.Close()
	expect(false, "a", "b")
	again.Close()
	expect(true, "b")
	b.Close()
	expect(true)
}

func TestHeardFromOthers(t *testing.T) {
	tails := tail.New(tail.DefaultBounds())
	tails.Heard("t", 0, 9) // nobody watches
	woken := 0
	w := tails.Watch("t", func() { woken++ })
	defer w.Close()
	if got := tails.Watched(); len(got) != 1 || len(got["t"]) != 0 {
		t.Errorf("watched: %v", got)
	}
	tails.Heard("t", 0, 3)
	tails.Heard("t", 0, 3)
	tails.Heard("t", 0, 2)
	if woken != 1 || w.Head(0) != 3 {
		t.Errorf("woken %d times, head %d; want 1 and 3", woken, w.Head(0))
	}
	if got := w.Read(0, 3, eventlog.Bounds{Events: 10}); got != nil {
		t.Errorf("read %d events that nobody gave", len(got))
	}
	tails.Appended("t", 0, []*eventlog.Record{{Event: wire.Event{ID: "x", Seq: 4}}})
	if got := w.Read(0, 3, eventlog.Bounds{Events: 10}); got != nil {
		t.Error("read over a seq that somebody else stored")
	}
	if got := w.Read(0, 4, eventlog.Bounds{Events: 10}); len(got) != 1 || w.Head(0) != 4 || woken != 2 {
		t.Errorf("read %d events, head %d, woken %d times", len(got), w.Head(0), woken)
	}
	if got := tails.Watched()["t"]; len(got) != 1 || got[0] != 4 {
		t.Errorf("watched: %v", got)
	}
}

package eventlogtest

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

func testAppend(t *testing.T, s *suite) {
	t.Run("seqs start at 1 and rise in batch order, also after a restart", func(t *testing.T) {
		topic := s.topic(t, 2)
		s.wantExtent(t, topic, 0, 1, 0)
		if got := s.stored(t, topic, 0, Events("a", 3)...); !slices.IsSorted(got) || got[0] != 1 {
			t.Fatalf("first seqs: %v", got)
		}
		before := s.extent(t, topic, 0).Head
		s.reopen(t)
		got := s.stored(t, topic, 0, Events("b", 3)...)
		if !slices.IsSorted(got) || got[0] <= before {
			t.Fatalf("seqs %v after a restart at head %d", got, before)
		}
		if got := s.stored(t, topic, 1, Events("c", 1)...); got[0] != 1 {
			t.Fatalf("another partition starts at seq %d", got[0])
		}
		s.wantExtent(t, topic, 0, 1, got[2])
		s.wantRead(t, topic, 0, "a-000", "a-001", "a-002", "b-000", "b-001", "b-002")
	})

	t.Run("the stored records are given their place", func(t *testing.T) {
		topic := s.topic(t, 3)
		batch := Events("a", 2)
		got := s.stored(t, topic, 2, batch...)
		for i, r := range batch {
			if r.Partition != 2 || r.Seq != got[i] {
				t.Errorf("record %d: partition %d, seq %d; want 2, %d", i, r.Partition, r.Seq, got[i])
			}
		}
	})

	t.Run("the same again is a duplicate, with the first one's answer", func(t *testing.T) {
		topic := s.topic(t, 2)
		first := s.stored(t, topic, 1, Event("a", At(start+5)))[0]
		want := eventlog.Outcome{Partition: 1, Seq: first, TS: start + 5, Duplicate: true}
		for _, partition := range []int{1, 0} {
			if got := s.append(t, topic, partition, Event("a", At(start+9)))[0]; got != want {
				t.Errorf("again to partition %d: %+v; want %+v", partition, got, want)
			}
			s.reopen(t)
		}
		if n := len(s.readAll(t, topic, 0)) + len(s.readAll(t, topic, 1)); n != 1 {
			t.Errorf("the topic holds %d events; want 1", n)
		}
	})

	t.Run("the same payload written differently is a duplicate", func(t *testing.T) {
		topic := s.topic(t, 1)
		seq := s.stored(t, topic, 0, Event("a", Payload(`{"x":1.0,"y":[1e2]}`)))[0]
		s.wantDuplicate(t, topic, 0, Event("a", Payload(`{"y":[100],"x":1}`)), seq)
	})

	t.Run("another version of a schema is no other content", func(t *testing.T) {
		topic := s.topic(t, 1)
		version := func(v string) func(*eventlog.Record) {
			return func(r *eventlog.Record) {
				r.Headers = wire.Headers{{Name: "h", Value: "v"}, {Name: wire.HeaderSchemaVersion, Value: v}}
			}
		}
		seq := s.stored(t, topic, 0, Event("a", version("1")))[0]
		s.wantDuplicate(t, topic, 0, Event("a", version("2")), seq)
		if stored := s.readAll(t, topic, 0); len(stored) != 1 ||
			!slices.Contains(stored[0].Headers, wire.Header{Name: wire.HeaderSchemaVersion, Value: "1"}) {
			t.Errorf("stored: %+v; want the first one with its version", stored)
		}
	})

	t.Run("an id with other content is a conflict", func(t *testing.T) {
		topic := s.topic(t, 2)
		seq := s.stored(t, topic, 0, Event("a"))[0]
		others := []*eventlog.Record{
			Event("a", Payload(`1`)),
			Event("a", Keyed("k")),
			Event("a", func(r *eventlog.Record) { r.Headers = wire.Headers{{Name: "h", Value: "v"}} }),
		}
		for _, partition := range []int{0, 1} {
			for i, other := range others {
				s.wantConflict(t, topic, partition, other, seq)
				if other.Seq != 0 {
					t.Errorf("refused record %d was given seq %d", i, other.Seq)
				}
			}
		}
	})

	t.Run("a batch is decided event by event", func(t *testing.T) {
		topic := s.topic(t, 1)
		old := s.stored(t, topic, 0, Event("old"))[0]
		out := s.append(t, topic, 0,
			Event("a"), Event("old"), Event("a"), Event("b"), Event("a", Payload(`2`)), Event("old", Payload(`2`)), Event("old"), Event("c"))
		a, b, c := out[0], out[3], out[7]
		ascending := old < a.Seq && a.Seq < b.Seq && b.Seq < c.Seq
		if !ascending || a.Duplicate || b.Duplicate || c.Duplicate {
			t.Errorf("new events: %+v, %+v, %+v behind seq %d", a, b, c, old)
		}
		for i, seq := range map[int]uint64{1: old, 2: a.Seq, 6: old} {
			if out[i].Err != nil || !out[i].Duplicate || out[i].Seq != seq {
				t.Errorf("event %d: %+v; want a duplicate of seq %d", i, out[i], seq)
			}
		}
		conflictAt(t, out[4], "a", a.Seq)
		conflictAt(t, out[5], "old", old)
		s.wantRead(t, topic, 0, "old", "a", "b", "c")
	})

	t.Run("ids are compared byte by byte, and belong to their topic", func(t *testing.T) {
		one, two := s.topic(t, 1), s.topic(t, 1)
		long := strings.Repeat("x", wire.MaxIDBytes)
		for _, id := range []string{"a", "A", "a!", "a/b", "ä", "a\u0308", "~", "$where", "a.b", long, long[1:] + "y"} {
			s.stored(t, one, 0, Event(id))
			s.stored(t, two, 0, Event(id))
		}
	})

	t.Run("fresh ids are stored", func(t *testing.T) {
		topic := s.topic(t, 1)
		fresh := func(r *eventlog.Record) { r.FreshID = true }
		s.stored(t, topic, 0, append(Events("f", 3, fresh), Event("other"))...)
		s.wantDuplicate(t, topic, 0, Event("f-001"), 2)
	})

	t.Run("timed ids are found as others are, whatever the time", func(t *testing.T) {
		topic := s.topic(t, 1)
		var events []*eventlog.Record
		for _, off := range []int64{0, 0, 5, -3, 5, 1 << 40} {
			events = append(events, Event("", func(r *eventlog.Record) {
				r.TS += off
				r.AcceptedAt, r.ID, r.FreshID = r.TS, eventlog.NewTimedID(r.TS), true
			}))
		}
		s.stored(t, topic, 0, events...)
		for i, r := range events {
			again := *r
			again.FreshID = false
			s.wantDuplicate(t, topic, 0, &again, uint64(i+1))
		}
	})

	t.Run("an empty batch has no outcome", func(t *testing.T) {
		s.append(t, s.topic(t, 1), 0)
	})
}

func conflictAt(t tester, got eventlog.Outcome, id string, seq uint64) {
	t.Helper()
	var conflict *eventlog.ConflictError
	if !errors.As(got.Err, &conflict) || conflict.ID != id || conflict.Seq != seq {
		t.Errorf("%+v; want a conflict of id %q with seq %d", got, id, seq)
	}
	if got.Seq != 0 || got.Duplicate || got.TS != 0 || got.Partition != 0 {
		t.Errorf("%+v: something is set beside Err", got)
	}
}

func testRace(t *testing.T, s *suite) {
	t.Run("of racing appends of one id one is stored, whatever the partitions", func(t *testing.T) {
		const racers, rounds = 12, 10
		topic := s.topic(t, 4)
		for round := range rounds {
			var out [racers]eventlog.Outcome
			var wg sync.WaitGroup
			begin := make(chan struct{})
			for i := range racers {
				wg.Go(func() {
					shared := Events("race-"+string(rune('a'+round)), 3)
					if i%2 == 1 {
						slices.Reverse(shared) // provoke deadlocks
					}
					own := Event("own-" + string(rune('a'+round)) + string(rune('a'+i)))
					<-begin
					got := s.append(t, topic, i%4, append(shared, own)...)
					out[i] = got[1] // the middle one, the same for all
				})
			}
			close(begin)
			wg.Wait()
			winners := 0
			for _, o := range out {
				if o.Err != nil {
					t.Fatalf("round %d: %v", round, o.Err)
				}
				if !o.Duplicate {
					winners++
				}
				if o.Partition != out[0].Partition || o.Seq != out[0].Seq {
					t.Fatalf("round %d: racers were told different places: %+v", round, out)
				}
			}
			if winners != 1 {
				t.Fatalf("round %d: %d winners; want 1", round, winners)
			}
		}
		total := 0
		for p := range 4 {
			total += len(s.readAll(t, topic, p))
		}
		if want := rounds * (3 + racers); total != want {
			t.Errorf("the topic holds %d events; want %d", total, want)
		}
	})

	t.Run("of racing contents of one id one wins and the others conflict", func(t *testing.T) {
		const racers = 8
		topic := s.topic(t, 2)
		var winners atomic.Int64
		var wg sync.WaitGroup
		for i := range racers {
			wg.Go(func() {
				if s.append(t, topic, i%2, Event("a", Payload(string(rune('0'+i)))))[0].Err == nil {
					winners.Add(1)
				}
			})
		}
		wg.Wait()
		if n := winners.Load(); n != 1 {
			t.Errorf("%d winners; want 1", n)
		}
	})

	t.Run("a reader never looks back", func(t *testing.T) {
		const writers, batches, size = 4, 15, 3
		topic := s.topic(t, 1)
		var wg sync.WaitGroup
		for w := range writers {
			wg.Go(func() {
				for b := range batches {
					s.stored(t, topic, 0, Events("w"+string(rune('a'+w))+string(rune('a'+b)), size)...)
				}
			})
		}
		var seen []*eventlog.Record
		for len(seen) < writers*batches*size && !t.Failed() {
			next := uint64(1)
			if len(seen) > 0 {
				next = seen[len(seen)-1].Seq + 1
			}
			events, err := s.log.Read(t.Context(), topic, 0, next, eventlog.Bounds{Events: 7})
			must(t, err)
			seen = append(seen, events...)
		}
		wg.Wait()
		if all := s.readAll(t, topic, 0); !slices.Equal(seqs(seen), seqs(all)) {
			t.Errorf("the tail saw seqs %v; the partition has %v", seqs(seen), seqs(all))
		}
	})
}

package eventlogtest

import (
	"fmt"
	"slices"
	"testing"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

const hour = int64(3_600_000)

// sweep sweeps to the end, limit at a time, and returns how many events it removed.
func (s *suite) sweep(t tester, topic string, r eventlog.Retention, now int64, limit int) int {
	t.Helper()
	total := 0
	for range 1000 {
		removed, more, err := s.log.Sweep(t.Context(), topic, r, now, limit)
		if err != nil || removed > limit {
			t.Fatalf("Sweep = %d, %v, %v with limit %d", removed, more, err, limit)
		}
		total += removed
		if !more {
			return total
		}
	}
	t.Fatalf("Sweep comes to no end")
	return 0
}

// wantSwept sweeps to the end, and fails the test unless that removes so many events.
func (s *suite) wantSwept(t tester, topic string, r eventlog.Retention, now int64, limit, want int) {
	t.Helper()
	if n := s.sweep(t, topic, r, now, limit); n != want {
		t.Fatalf("%d events went; want %d", n, want)
	}
}

// aging appends n events to partition p, accepted an hour apart.
func (s *suite) aging(t tester, topic, prefix string, p, n int) []*eventlog.Record {
	t.Helper()
	events := Events(prefix, n, Keyed("k"+prefix))
	for i, e := range events {
		e.AcceptedAt = start + int64(i)*hour
		e.TS = start - int64(i) // ts must not matter
	}
	s.stored(t, topic, p, events...)
	return events
}

func testRetention(t *testing.T, s *suite) {
	t.Run("without a ttl nothing goes", func(t *testing.T) {
		topic := s.topic(t, 1)
		a := s.aging(t, topic, "a", 0, 3)
		s.wantSwept(t, topic, eventlog.Retention{DedupeWindowMS: hour}, start+1000*hour, 10, 0)
		s.wantRead(t, topic, 0, ids(a)...)
	})

	t.Run("what is older goes, the newest part stays", func(t *testing.T) {
		topic := s.topic(t, 3)
		a, b := s.aging(t, topic, "a", 0, 10), s.aging(t, topic, "b", 1, 4)
		keep := eventlog.Retention{TTLMS: 5 * hour, DedupeWindowMS: hour}
		// At hour 11 the events of hours 0 to 6 are five hours old or more.
		s.wantSwept(t, topic, keep, start+11*hour, 3, 7+4)
		for range 2 {
			s.wantRead(t, topic, 0, ids(a[7:])...)
			s.wantExtent(t, topic, 0, 8, 10)
			s.wantExtent(t, topic, 1, 5, 4) // it is emptied
			s.wantExtent(t, topic, 2, 1, 0) // it is untouched
			scanned := s.pages(t, topic, eventlog.ScanQuery{}, eventlog.Bounds{Events: 2})
			if got := ids(scanned); !slices.Equal(got, []string{a[9].ID, a[8].ID, a[7].ID}) {
				t.Errorf("a scan finds %q", got)
			}
			s.wantNoEvent(t, topic, a[0].ID)
			s.wantLatestByKey(t, topic, b[0].Key, "")
			s.wantLatestByKey(t, topic, a[0].Key, a[9].ID)
			if got, err := s.log.Seek(t.Context(), topic, eventlog.Position{From: wire.FromTS}); err != nil ||
				!slices.Equal(got, []uint64{8, 5, 1}) {
				t.Errorf("Seek = %v, %v; want [8 5 1]", got, err)
			}
			s.reopen(t)
		}
		t.Run("a cursor below First reads on at the earliest", func(t *testing.T) {
			events, err := s.log.Read(t.Context(), topic, 0, 2, eventlog.Bounds{Events: 1})
			if err != nil || len(events) != 1 || events[0].Seq != 8 {
				t.Errorf("Read from 2 = %v, %v; want seq 8", seqs(events), err)
			}
		})
		t.Run("seqs go on above the removed ones", func(t *testing.T) {
			if got := s.stored(t, topic, 1, Event("new", Accepted(start+11*hour))); got[0] != 5 {
				t.Errorf("seq %d; want 5", got[0])
			}
		})
	})

	t.Run("what is given by seq goes, whatever its age", func(t *testing.T) {
		topic := s.topic(t, 3)
		a, b := s.aging(t, topic, "a", 0, 6), s.aging(t, topic, "b", 1, 4)
		keep := eventlog.Retention{DedupeWindowMS: 1000 * hour, UpTo: []uint64{4, 0, 9}}
		for range 2 {
			s.sweep(t, topic, keep, start, 3)
			s.wantRead(t, topic, 0, ids(a[4:])...)
			s.wantRead(t, topic, 1, ids(b)...) // it loses nothing
			s.wantExtent(t, topic, 0, 5, 6)
			s.wantDuplicate(t, topic, 0, Event(a[0].ID, Keyed("ka")), 1)
			s.reopen(t)
		}
		// With a ttl as well, each partition loses the larger part.
		keep.TTLMS, keep.UpTo = hour, []uint64{5}
		s.sweep(t, topic, keep, start+2*hour, 10)
		s.wantRead(t, topic, 0, ids(a[5:])...) // as both say
		s.wantRead(t, topic, 1, ids(b[2:])...) // as the ttl says
	})

	t.Run("a sweep stops at its limit and says so", func(t *testing.T) {
		topic := s.topic(t, 1)
		s.aging(t, topic, "a", 0, 5)
		keep := eventlog.Retention{TTLMS: 1}
		for i, want := range []struct {
			removed int
			more    bool
		}{{2, true}, {2, true}, {1, false}, {0, false}} {
			removed, more, err := s.log.Sweep(t.Context(), topic, keep, start+100*hour, 2)
			if err != nil || removed != want.removed || more != want.more {
				t.Errorf("sweep %d = %d, %v, %v; want %+v", i, removed, more, err, want)
			}
		}
	})
}

// testPositions: erased events stand for all seqs without an event, which not every log can have
// otherwise.
func testPositions(t *testing.T, s *suite) {
	topic := s.topic(t, 1)
	events := s.aging(t, topic, "a", 0, 8)
	keep := eventlog.Retention{DedupeWindowMS: 1000 * hour}
	must(t, errOf(s.log.Erase(t.Context(), topic, 0, []uint64{1, 4, 8}, keep, start)))
	for _, c := range []struct {
		upTo, removed uint64 // by retention
	}{{0, 0}, {3, 3}, {4, 3}, {5, 5}, {8, 7}} {
		keep.UpTo = []uint64{c.upTo}
		s.sweep(t, topic, keep, start, 2)
		for range 2 {
			for seq := range uint64(len(events) + 1) {
				if seq < c.removed {
					WantTooOld(t, s.log, topic, seq)
				} else {
					WantPosition(t, s.log, topic, seq)
				}
			}
			WantNoPosition(t, s.log, topic, uint64(len(events)+1))
			s.reopen(t)
		}
	}
	must(t, s.log.DeleteTopic(t.Context(), topic))
	must(t, errOf(s.log.EnsureTopic(t.Context(), topic, 1)))
	WantTooOld(t, s.log, topic, 6)
	WantPosition(t, s.log, topic, 8)
	s.stored(t, topic, 0, Event("new"))
	WantTooOld(t, s.log, topic, 6)
	WantPosition(t, s.log, topic, 8)
}

// wantLocation fails the test unless the log knows where an event of partition 1 is, or was.
func (s *suite) wantLocation(t tester, topic string, e *eventlog.Record, gone bool) {
	t.Helper()
	want := eventlog.Location{Partition: 1, Seq: e.Seq, TS: e.TS, Gone: gone}
	if got, err := s.log.Locate(t.Context(), topic, e.ID); err != nil || got != want {
		t.Errorf("Locate = %+v, %v; want %+v", got, err, want)
	}
	notFound(t, "Locate of an event that never was", errOf(s.log.Locate(t.Context(), topic, "never")))
}

func testDeduplication(t *testing.T, s *suite) {
	removed := func(t *testing.T, window int64) (topic string, e *eventlog.Record) {
		t.Helper()
		topic = s.topic(t, 2)
		e = Event("a", Accepted(start), At(start+3), Payload(`{"x":1.0,"y":2}`))
		s.stored(t, topic, 1, Event("first", Accepted(start)), e)
		s.wantLocation(t, topic, e, false)
		keep := eventlog.Retention{TTLMS: hour, DedupeWindowMS: window}
		s.wantSwept(t, topic, keep, start+hour, 10, 2)
		return topic, e
	}
	remembered := func(t *testing.T, topic string, e *eventlog.Record) {
		t.Helper()
		s.wantLocation(t, topic, e, true)
		want := eventlog.Outcome{Partition: 1, Seq: e.Seq, TS: e.TS, Duplicate: true}
		for p := range 2 {
			again := Event("a", At(start+99), Payload(`{"y":2.0,"x":1}`))
			if got := s.append(t, topic, p, again)[0]; got != want {
				t.Errorf("again to partition %d: %+v; want %+v", p, got, want)
			}
			s.wantConflict(t, topic, p, Event("a", Payload(`{"x":1,"y":3}`)), e.Seq)
		}
	}

	t.Run("an id is remembered while its window lasts, and then forgotten", func(t *testing.T) {
		topic, e := removed(t, 3*hour)
		keep := eventlog.Retention{TTLMS: hour, DedupeWindowMS: 3 * hour}
		remembered(t, topic, e)
		s.reopen(t)
		s.sweep(t, topic, keep, start+3*hour-1, 10)
		remembered(t, topic, e)
		s.sweep(t, topic, keep, start+3*hour, 1)
		out := s.append(t, topic, 0, Event("a", Payload(`"new"`)))[0]
		if out.Err != nil || out.Duplicate || out.Partition != 0 {
			t.Errorf("after the window: %+v; want a new event", out)
		}
		must(t, errOf(s.log.Lookup(t.Context(), topic, "a")))
		// The record of the removed event must not affect the new one.
		s.sweep(t, topic, eventlog.Retention{DedupeWindowMS: 1}, start+1000*hour, 10)
		if out := s.append(t, topic, 1, Event("a", Payload(`"new"`)))[0]; !out.Duplicate {
			t.Errorf("the new event again: %+v; want a duplicate", out)
		}
	})

	t.Run("with a window shorter than the ttl an id goes with its event", func(t *testing.T) {
		topic, _ := removed(t, hour/2)
		if out := s.append(t, topic, 0, Event("a", Payload(`1`)))[0]; out.Err != nil || out.Duplicate {
			t.Errorf("%+v; want a new event", out)
		}
	})

	t.Run("without a window ids are remembered for ever", func(t *testing.T) {
		topic, e := removed(t, 0)
		s.sweep(t, topic, eventlog.Retention{TTLMS: hour}, start+1_000_000*hour, 10)
		remembered(t, topic, e)
	})

	t.Run("forgetting is bounded too", func(t *testing.T) {
		topic := s.topic(t, 1)
		s.stored(t, topic, 0, Events("a", 5)...)
		s.sweep(t, topic, eventlog.Retention{TTLMS: hour}, start+hour, 10)
		keep := eventlog.Retention{TTLMS: hour, DedupeWindowMS: 2 * hour}
		if _, more, err := s.log.Sweep(t.Context(), topic, keep, start+2*hour, 3); err != nil || !more {
			t.Errorf("the first sweep: more %v, %v; want more", more, err)
		}
		s.sweep(t, topic, keep, start+2*hour, 3)
		for i := range 5 {
			s.stored(t, topic, 0, Event(fmt.Sprintf("a-%03d", i)))
		}
	})
}

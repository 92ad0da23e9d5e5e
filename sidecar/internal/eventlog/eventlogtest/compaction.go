package eventlogtest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// keepAll compacts when no tombstone is old and no id is forgotten.
var keepAll = eventlog.Compaction{Now: start, Limit: 1000}

// compact compacts a partition from its start to its end, and returns how many events it removed. A
// test's goroutines may call it.
func (s *suite) compact(t tester, topic string, partition int, c eventlog.Compaction) int {
	t.Helper()
	total, from := 0, uint64(1)
	for range 1000 {
		next, removed, err := s.log.Compact(t.Context(), topic, partition, from, c)
		if err != nil || next < from || removed > c.Limit {
			t.Errorf("Compact from %d = %d, %d, %v with limit %d", from, next, removed, err, c.Limit)
			return total
		}
		total += removed
		if next == from {
			return total
		}
		from = next
	}
	t.Errorf("Compact comes to no end")
	return 0
}

// wantCompacted compacts partition 0, and fails the test unless that removes so many events.
func (s *suite) wantCompacted(t tester, topic string, c eventlog.Compaction, want int) {
	t.Helper()
	if n := s.compact(t, topic, 0, c); n != want {
		t.Errorf("%d events went; want %d", n, want)
	}
}

// wantStep fails the test unless one call of Compact on partition 0 goes on at next, and removes
// that many events.
func (s *suite) wantStep(t tester, topic string, from uint64, c eventlog.Compaction, next uint64, removed int) {
	t.Helper()
	if gotNext, gotRemoved, err := s.log.Compact(t.Context(), topic, 0, from, c); err != nil || gotNext != next || gotRemoved != removed {
		t.Errorf("Compact from %d = %d, %d, %v; want %d, %d", from, gotNext, gotRemoved, err, next, removed)
	}
}

// keyed appends events to partition 0: for each word of text an event whose key is the word, and no
// key for "-"; a word that ends with "!" is a tombstone. The ids are a letter and the seq.
func (s *suite) keyed(t tester, topic, text string) []*eventlog.Record {
	t.Helper()
	var batch []*eventlog.Record
	for i, word := range strings.Fields(text) {
		key, tombstone := strings.CutSuffix(word, "!")
		e := Event(fmt.Sprintf("e%d", i+1), Accepted(start+int64(i)*hour), At(start-int64(i)))
		if key != "-" {
			e.Key = key
		}
		if tombstone {
			e.Payload = []byte("null")
		}
		batch = append(batch, e)
	}
	s.stored(t, topic, 0, batch...)
	return batch
}

// wantLeft fails the test unless every way of reading finds exactly these seqs in partition 0.
func (s *suite) wantLeft(t tester, topic string, want ...uint64) {
	t.Helper()
	events := s.readAll(t, topic, 0)
	if got := seqs(events); !slices.Equal(got, want) {
		t.Errorf("left are the seqs %v; want %v", got, want)
	}
	var scanned []uint64
	for _, e := range s.pages(t, topic, eventlog.ScanQuery{}, eventlog.Bounds{Events: 2}) {
		if e.Partition == 0 {
			scanned = append(scanned, e.Seq)
		}
	}
	slices.Sort(scanned)
	if !slices.Equal(scanned, want) {
		t.Errorf("a scan finds the seqs %v; want %v", scanned, want)
	}
	latest := map[string]string{}
	for _, e := range events {
		latest[e.Key] = e.ID
	}
	delete(latest, "")
	for key, id := range latest {
		s.wantLatestByKey(t, topic, key, id)
	}
}

func testCompaction(t *testing.T, s *suite) {
	t.Run("the latest of each key stays, and what has no key", func(t *testing.T) {
		topic := s.topic(t, 2)
		// a is a prefix of ab, and b has events in the other partition too.
		events := s.keyed(t, topic, "a b - a ab - b a a")
		s.stored(t, topic, 1, Event("other", Keyed("b")))
		s.wantCompacted(t, topic, keepAll, 4)
		for range 2 {
			s.wantLeft(t, topic, 3, 5, 6, 7, 9)
			sameRecord(t, s.readAll(t, topic, 0)[1], placed(events[4], topic, 0, 5))
			if e := s.extent(t, topic, 0); e.First > 3 || e.Head != 9 {
				t.Errorf("extent %+v; want First up to 3, Head 9", e)
			}
			s.wantRead(t, topic, 1, "other")
			s.wantNoEvent(t, topic, "e1")
			s.wantCompacted(t, topic, keepAll, 0)
			s.reopen(t)
		}
		if got, err := s.log.Read(t.Context(), topic, 0, 1, eventlog.Bounds{Events: 2}); err != nil || !slices.Equal(seqs(got), []uint64{3, 5}) {
			t.Errorf("a page from 1 has the seqs %v, %v; want 3 and 5", seqs(got), err)
		}
		seek := eventlog.Position{From: wire.FromTS, TS: start - 4}
		if got, err := s.log.Seek(t.Context(), topic, seek); err != nil || got[0] != 3 {
			t.Errorf("Seek = %v, %v; want 3", got, err)
		}
		if got := s.stored(t, topic, 0, Event("new", Keyed("ab"))); got[0] != 10 {
			t.Errorf("a new event has seq %d; want 10", got[0])
		}
		s.compact(t, topic, 0, keepAll)
		s.wantLeft(t, topic, 3, 6, 7, 9, 10)
	})

	t.Run("tombstones go once they are old", func(t *testing.T) {
		topic := s.topic(t, 1)
		s.keyed(t, topic, "a a! b! -! c c! c -")
		old := keepAll
		old.TombstonesBefore = start + 2*hour // b's was accepted then
		s.wantCompacted(t, topic, old, 4)
		s.wantLeft(t, topic, 3, 4, 7, 8)
		s.wantLatestByKey(t, topic, "a", "")
		old.TombstonesBefore++
		s.compact(t, topic, 0, old)
		s.wantLeft(t, topic, 4, 7, 8)
		s.reopen(t)
		s.wantLeft(t, topic, 4, 7, 8)
	})

	t.Run("a tombstone stays while it hides an older event", func(t *testing.T) {
		topic := s.topic(t, 1)
		s.keyed(t, topic, "a b a! -")
		old := keepAll
		old.TombstonesBefore = start + 1000*hour
		s.wantStep(t, topic, 2, old, 5, 0)
		s.wantLeft(t, topic, 1, 2, 3, 4)
		s.compact(t, topic, 0, old)
		s.wantLeft(t, topic, 2, 4)
	})

	t.Run("the head stays where it is, whatever goes", func(t *testing.T) {
		topic := s.topic(t, 1)
		s.keyed(t, topic, "a a!")
		old := keepAll
		old.TombstonesBefore = start + 1000*hour
		s.compact(t, topic, 0, old)
		s.reopen(t)
		if e := s.extent(t, topic, 0); e.Head != 2 {
			t.Errorf("extent %+v; want Head 2", e)
		}
		if got := s.stored(t, topic, 0, Event("new", Keyed("b"))); got[0] != 3 {
			t.Errorf("a new event has seq %d; want 3", got[0])
		}
		s.compact(t, topic, 0, old)
		s.wantLeft(t, topic, 3)
	})

	t.Run("retention and compaction get along", func(t *testing.T) {
		topic := s.topic(t, 1)
		s.keyed(t, topic, "a b a c b a")
		s.compact(t, topic, 0, keepAll)
		s.wantLeft(t, topic, 4, 5, 6)
		s.wantSwept(t, topic, eventlog.Retention{TTLMS: hour}, start+5*hour, 10, 2)
		s.wantLeft(t, topic, 6)
		s.wantExtent(t, topic, 0, 6, 6)
		s.compact(t, topic, 0, keepAll)
		s.wantLeft(t, topic, 6)
	})

	t.Run("nothing there", func(t *testing.T) {
		topic := s.topic(t, 1)
		for _, from := range []uint64{0, 1, 7} {
			s.wantStep(t, topic, from, keepAll, from, 0)
		}
		_, _, err := s.log.Compact(t.Context(), topic, 1, 1, keepAll)
		notFound(t, "Compact of a partition that is not there", err)
		_, _, err = s.log.Compact(t.Context(), "no-such-topic", 0, 1, keepAll)
		notFound(t, "Compact of a topic that is not there", err)
		if _, _, err = s.log.Compact(ended(), topic, 0, 1, keepAll); err == nil {
			t.Error("Compact goes on without a context")
		}
	})

	t.Run("bounded by its limit, and goes on where it stopped", s.compactInSteps)
	t.Run("ids are remembered", s.compactRemembers)
	t.Run("a reader never finds an older event alone", s.compactUnderReaders)
}

func (s *suite) compactInSteps(t *testing.T) {
	topic := s.topic(t, 1)
	s.keyed(t, topic, "a b a b - a b c")
	step := keepAll
	step.Limit = 3
	from := uint64(1)
	for _, want := range []struct {
		next    uint64
		removed int
		left    []uint64
	}{
		{4, 3, []uint64{4, 5, 6, 7, 8}},
		{7, 1, []uint64{5, 6, 7, 8}},
		{9, 0, []uint64{5, 6, 7, 8}},
		{9, 0, []uint64{5, 6, 7, 8}},
	} {
		s.wantStep(t, topic, from, step, want.next, want.removed)
		s.wantLeft(t, topic, want.left...)
		from = want.next
		s.reopen(t)
	}
	s.stored(t, topic, 0, Event("new", Keyed("c")))
	s.wantStep(t, topic, from, step, 10, 0) // the event that was appended since
	s.wantStep(t, topic, 8, step, 10, 1)
}

func (s *suite) compactRemembers(t *testing.T) {
	topic := s.topic(t, 2)
	first := Event("a", Keyed("k"), At(start+3), Payload(`{"x":1.0,"y":2}`))
	s.stored(t, topic, 1, first, Event("b", Keyed("k")))
	c := keepAll
	c.DedupeWindowMS = 3 * hour
	s.compact(t, topic, 1, c)
	for range 2 {
		want := eventlog.Outcome{Partition: 1, Seq: 1, TS: start + 3, Duplicate: true}
		again := Event("a", Keyed("k"), At(start+99), Payload(`{"y":2.0,"x":1}`))
		if got := s.append(t, topic, 0, again)[0]; got != want {
			t.Errorf("a removed event again: %+v; want %+v", got, want)
		}
		s.wantConflict(t, topic, 1, Event("a", Keyed("k"), Payload(`3`)), 1)
		s.wantConflict(t, topic, 1, Event("a", Keyed("other"), Payload(`{"x":1.0,"y":2}`)), 1)
		s.sweep(t, topic, eventlog.Retention{DedupeWindowMS: 3 * hour}, start+3*hour-1, 10)
		s.reopen(t)
	}

	// The next sweep at the latest forgets an id whose window is over.
	topic = s.topic(t, 1)
	s.stored(t, topic, 0, Event("a", Keyed("k")), Event("b", Keyed("k")))
	c.Now, c.DedupeWindowMS = start+hour, hour
	s.compact(t, topic, 0, c)
	s.sweep(t, topic, c.Retention, c.Now, 10)
	if out := s.append(t, topic, 0, Event("a", Keyed("k"), Payload("1")))[0]; out.Err != nil || out.Duplicate || out.Seq != 3 {
		t.Errorf("a forgotten id again: %+v; want a new event with seq 3", out)
	}
}

// compactUnderReaders: while one goroutine appends to a few keys and another compacts, every read
// finds for each key the event that was the latest when the read began, or a later one.
func (s *suite) compactUnderReaders(t *testing.T) {
	const keys, rounds = 3, 12
	topic := s.topic(t, 1)
	key := func(i int) string { return fmt.Sprintf("k%d", i%keys) }
	for i := range keys {
		s.stored(t, topic, 0, Event(fmt.Sprintf("e%d", i), Keyed(key(i))))
	}
	var latest [keys]atomic.Uint64 // seqs that were acknowledged
	for i := range keys {
		latest[i].Store(uint64(i) + 1)
	}
	ctx, stop := context.WithCancel(t.Context())
	var working sync.WaitGroup
	working.Go(func() {
		defer stop()
		for i := range rounds {
			for j := range keys {
				n := s.stored(t, topic, 0, Event(fmt.Sprintf("r%d-%d", i, j), Keyed(key(j))))
				latest[j].Store(n[0])
			}
		}
	})
	working.Go(func() {
		for ctx.Err() == nil {
			s.compact(t, topic, 0, keepAll)
		}
	})
	working.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			known := latest[i%keys].Load()
			if e, err := LatestByKey(t.Context(), s.log, topic, key(i)); err != nil || e.Seq < known {
				t.Errorf("LatestByKey(%q) = %+v, %v; seq %d was there", key(i), e, err, known)
				return
			}
		}
	})
	for ctx.Err() == nil {
		var known [keys]uint64
		for i := range known {
			known[i] = latest[i].Load()
		}
		found := map[string]uint64{}
		// It reads to the end, which may be further than at the start.
		for from := uint64(1); ; {
			page, err := s.log.Read(t.Context(), topic, 0, from, eventlog.Bounds{Events: 2})
			if err != nil {
				t.Errorf("Read: %v", err)
			}
			if len(page) == 0 {
				break
			}
			for _, e := range page {
				found[e.Key] = e.Seq
				from = e.Seq + 1
			}
		}
		for i := range keys {
			if found[key(i)] < known[i] {
				t.Errorf("a reader from 1 to the end found seq %d of %q last; %d was there", found[key(i)], key(i), known[i])
				stop()
			}
		}
	}
	working.Wait()
	s.compact(t, topic, 0, keepAll)
	if got := len(s.readAll(t, topic, 0)); got != keys {
		t.Errorf("%d events are left of %d keys", got, keys)
	}
}

package eventlogtest

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

func epoch(topic, group string, partition int, number uint64, owner string) eventlog.Epoch {
	return eventlog.Epoch{
		GroupPartition: eventlog.GroupPartition{Topic: topic, Group: group, Partition: partition},
		Number:         number, Owner: owner, Progress: eventlog.Progress{Cursor: 1},
	}
}

// takeEpoch takes one epoch.
func (s *suite) takeEpoch(t tester, e eventlog.Epoch) error {
	t.Helper()
	errs := s.log.TakeEpochs(t.Context(), []eventlog.Epoch{e})
	if len(errs) != 1 {
		t.Fatalf("TakeEpochs of one epoch gave %d errors", len(errs))
	}
	return errs[0]
}

// take takes epochs, one after the other. All of them must be free.
func (s *suite) take(t tester, epochs ...eventlog.Epoch) {
	t.Helper()
	for _, e := range epochs {
		must(t, s.takeEpoch(t, e))
	}
}

// takeAtOnce is take in one call.
func (s *suite) takeAtOnce(t tester, epochs ...eventlog.Epoch) {
	t.Helper()
	errs := s.log.TakeEpochs(t.Context(), epochs)
	if err := errors.Join(errs...); err != nil || len(errs) != len(epochs) {
		t.Fatalf("TakeEpochs of %d epochs: %d errors, %v", len(epochs), len(errs), err)
	}
}

// save saves epochs. All of them must be the latest.
func (s *suite) save(t tester, epochs ...eventlog.Epoch) {
	t.Helper()
	if err := s.log.SaveEpochs(t.Context(), epochs, nil); err != nil {
		t.Fatalf("SaveEpochs: %v", err)
	}
}

// wantFenced fails the test unless an epoch's save is refused.
func (s *suite) wantFenced(t tester, epochs ...eventlog.Epoch) {
	t.Helper()
	if err := s.log.SaveEpochs(t.Context(), epochs, nil); !errors.Is(err, eventlog.ErrFenced) {
		t.Errorf("SaveEpochs: %v; want ErrFenced", err)
	}
}

// wantGroups fails the test unless the topic has these groups.
func (s *suite) wantGroups(t tester, topic string, want ...string) {
	t.Helper()
	if groups, err := s.log.ListGroups(t.Context(), topic); err != nil || !slices.Equal(groups, want) {
		t.Errorf("ListGroups = %q, %v; want %q", groups, err, want)
	}
}

// latest checks the latest epochs of a group.
func (s *suite) latest(t tester, topic, group string, want ...eventlog.Epoch) {
	t.Helper()
	got, err := s.log.LatestEpochs(t.Context(), topic, group)
	must(t, err)
	if len(got) != len(want) || len(got) > 0 && !reflect.DeepEqual(got, want) {
		t.Errorf("LatestEpochs of %q:\n got %+v\nwant %+v", group, got, want)
	}
}

func testEpochs(t *testing.T, s *suite) {
	t.Run("a group that nobody took has none", func(t *testing.T) {
		topic := s.topic(t, 2)
		s.latest(t, topic, "g")
		s.wantGroups(t, topic)
	})

	t.Run("epochs are a chain, each number taken once", func(t *testing.T) {
		topic := s.topic(t, 2)
		s.take(t, epoch(topic, "g", 1, 1, "n1"))
		errs := s.log.TakeEpochs(t.Context(), []eventlog.Epoch{
			epoch(topic, "g", 1, 1, "n2"), epoch(topic, "g", 0, 1, "n2"), epoch(topic, "g", 1, 2, "n2"), epoch(topic, "other", 1, 1, "n3")})
		if !errors.Is(errs[0], eventlog.ErrEpochTaken) || errs[1] != nil || errs[2] != nil || errs[3] != nil {
			t.Errorf("TakeEpochs: %v; want the first taken, the others free", errs)
		}
		if err := s.takeEpoch(t, epoch(topic, "g", 1, 1, "n1")); !errors.Is(err, eventlog.ErrEpochTaken) {
			t.Errorf("a number below the latest: %v; want ErrEpochTaken", err)
		}
		for range 2 {
			s.latest(t, topic, "g", epoch(topic, "g", 0, 1, "n2"), epoch(topic, "g", 1, 2, "n2"))
			s.latest(t, topic, "other", epoch(topic, "other", 1, 1, "n3"))
			s.reopen(t)
		}
	})

	t.Run("the latest epochs of all groups are known, and about what is above a head", func(t *testing.T) {
		topic, other := s.topic(t, 2), s.topic(t, 1)
		one, two, three := epoch(topic, "g", 1, 3, "n1"), epoch(topic, "h", 0, 1, "n2"), epoch(other, "g", 0, 1, "n1")
		s.takeAtOnce(t, epoch(topic, "g", 1, 2, "n1"), one, two, three)
		one.Progress = eventlog.Progress{Cursor: 3, By: "orders", Unused: 1_723_140_000_000, Settled: []eventlog.SeqRange{{First: 5, Last: 6}},
			Attempts: []eventlog.AttemptRange{{SeqRange: eventlog.SeqRange{First: 3, Last: 3}, Attempts: 2}}}
		s.save(t, one)
		one.Progress.Attempts = nil
		all, err := s.log.AllEpochs(t.Context())
		all = slices.DeleteFunc(all, func(e eventlog.Epoch) bool { return e.Topic != topic && e.Topic != other }) // of other tests
		want := []eventlog.Epoch{one, two, three}
		slices.SortFunc(want, func(a, b eventlog.Epoch) int {
			return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Group, b.Group))
		})
		if err != nil || !reflect.DeepEqual(all, want) {
			t.Errorf("AllEpochs:\n got %+v, %v\nwant %+v", all, err, want)
		}

		s.stored(t, topic, 1, Events("e", 5)...)
		known := []eventlog.Hint{{Topic: topic, Partition: 1, Head: 2}, {Topic: topic, Partition: 0}, {Topic: topic, Partition: 1, Head: 5},
			{Topic: other}}
		extents, err := s.log.Backlog(t.Context(), known)
		if err != nil || len(extents) != len(known) {
			t.Fatalf("Backlog = %+v, %v", extents, err)
		}
		for i, head := range []uint64{5, 0, 5, 0} {
			if extents[i].Head != head || extents[i].First != 1 {
				t.Errorf("Backlog above %+v is %+v, want 1 to %d", known[i], extents[i], head)
			}
		}
	})

	t.Run("of racing takers of one number one succeeds", func(t *testing.T) {
		topic := s.topic(t, 1)
		for number := uint64(1); number <= 5; number++ {
			var winner atomic.Value
			var wins atomic.Int64
			var wg sync.WaitGroup
			for i := range 8 {
				wg.Go(func() {
					owner := fmt.Sprintf("n%d", i)
					switch err := s.takeEpoch(t, epoch(topic, "g", 0, number, owner)); {
					case err == nil:
						wins.Add(1)
						winner.Store(owner)
					case !errors.Is(err, eventlog.ErrEpochTaken):
						t.Errorf("take: %v", err)
					}
				})
			}
			wg.Wait()
			if wins.Load() != 1 {
				t.Fatalf("epoch %d has %d winners", number, wins.Load())
			}
			s.latest(t, topic, "g", epoch(topic, "g", 0, number, winner.Load().(string)))
		}
	})

	t.Run("the owner's progress is kept, also over a restart", func(t *testing.T) {
		topic := s.topic(t, 3)
		one, two := epoch(topic, "g", 0, 1, "n1"), epoch(topic, "g", 2, 7, "n1")
		s.takeAtOnce(t, one, two)
		one.Beat, two.Beat, two.Released = 5, 1<<60, true
		one.Progress = eventlog.Progress{
			Cursor:  10,
			Settled: []eventlog.SeqRange{{First: 12, Last: 12}, {First: 14, Last: 1 << 62}},
			Attempts: []eventlog.AttemptRange{
				{SeqRange: eventlog.SeqRange{First: 10, Last: 11}, Attempts: 1},
				{SeqRange: eventlog.SeqRange{First: 13, Last: 13}, Attempts: 1000},
			},
			Out: []eventlog.SeqRange{{First: 11, Last: 11}, {First: 13, Last: 13}}, OutBy: "n1/life/2",
			Unsure: []eventlog.SeqRange{{First: 10, Last: 11}},
			Delays: []eventlog.Delay{{Seq: 10, Until: 1700000000123, Left: 4000}, {Seq: 13, Until: 1700000000124}},
		}
		s.save(t, one, two)
		s.latest(t, topic, "g", one, two)
		s.reopen(t)
		s.latest(t, topic, "g", one, two)
		one.Progress = eventlog.Progress{Cursor: 3} // a seek goes back
		s.save(t, one)
		s.latest(t, topic, "g", one, two)
	})

	t.Run("a fenced owner's progress is never seen", func(t *testing.T) {
		topic := s.topic(t, 2)
		first, second := epoch(topic, "g", 0, 1, "n1"), epoch(topic, "g", 0, 2, "n2")
		second.Progress.Cursor = 4
		s.take(t, first, second)
		first.Progress.Cursor = 9
		s.wantFenced(t, first)
		s.latest(t, topic, "g", second)
	})

	t.Run("an epoch that nobody took cannot be saved", func(t *testing.T) {
		topic := s.topic(t, 1)
		notFound(t, "SaveEpochs", s.log.SaveEpochs(t.Context(), []eventlog.Epoch{epoch(topic, "g", 0, 1, "n1")}, nil))
		s.latest(t, topic, "g")
	})

	t.Run("groups are listed by name, each of its own topic", func(t *testing.T) {
		topic, other := s.topic(t, 2), s.topic(t, 1)
		names := []string{"a", "A", "b/c", "a b", "aa"}
		for _, g := range names {
			s.take(t, epoch(topic, g, 0, 1, "n"), epoch(topic, g, 1, 1, "n"))
		}
		slices.Sort(names)
		s.wantGroups(t, topic, names...)
		s.wantGroups(t, other)
	})
}

func testMarks(t *testing.T, s *suite) {
	topic, other := s.topic(t, 1), s.topic(t, 1)
	// The times are in the year 2096, since a store may remove expired marks by itself.
	const later = 4_000_000_000_000
	mark := func(group, id string, expires int64) eventlog.Mark {
		return eventlog.Mark{Topic: topic, Group: group, ID: id, ExpiresAt: later + expires}
	}
	marked := func(topic, group string, now int64, want map[string]bool) {
		t.Helper()
		var ids []string
		for id := range want {
			ids = append(ids, id)
		}
		got, err := s.log.Marked(t.Context(), topic, group, ids, later+now)
		if err != nil || len(got) != len(ids) {
			t.Fatalf("Marked = %v, %v", got, err)
		}
		for i, id := range ids {
			if got[i] != want[id] {
				t.Errorf("Marked(%q, %q) at %d = %v; want %v", group, id, now, got[i], want[id])
			}
		}
	}
	own := epoch(topic, "g", 0, 1, "n")
	s.take(t, own)
	own.Progress.Cursor = 5
	must(t, s.log.SaveEpochs(t.Context(), []eventlog.Epoch{own}, []eventlog.Mark{
		mark("g", "a", 100), mark("g", "b", 200), mark("g", "renewed", 100), mark("G", "a", 300)}))
	must(t, s.log.SaveEpochs(t.Context(), nil, []eventlog.Mark{mark("g", "renewed", 300)}))
	for range 2 {
		s.latest(t, topic, "g", own)
		marked(topic, "g", 99, map[string]bool{"a": true, "b": true, "c": false, "A": false, "renewed": true})
		marked(topic, "g", 100, map[string]bool{"a": false, "b": true, "renewed": true})
		marked(topic, "G", 250, map[string]bool{"a": true, "b": false})
		marked(other, "g", 0, map[string]bool{"a": false})
		s.reopen(t)
	}
	sweep := func(now int64, limit int) {
		t.Helper()
		for range 10 {
			removed, more, err := s.log.SweepMarks(t.Context(), later+now, limit)
			if err != nil || removed > limit {
				t.Fatalf("SweepMarks = %d, %v, %v with limit %d", removed, more, err, limit)
			}
			if !more {
				return
			}
		}
		t.Fatal("SweepMarks comes to no end")
	}
	sweep(150, 1)
	marked(topic, "g", 0, map[string]bool{"a": false, "b": true, "renewed": true})
	sweep(1000, 100)
	marked(topic, "g", 0, map[string]bool{"a": false, "b": false, "renewed": false})
	marked(topic, "G", 0, map[string]bool{"a": false})
}

// testErasures: an erasure selects events by the time of their acceptance, also if it is repeated.
func testErasures(t *testing.T, s *suite) {
	const at = 4_000_000_000_000 // in the year 2096
	topic := s.topic(t, 1)
	mark := func(by eventlog.ErasedBy, value string, at int64) {
		t.Helper()
		must(t, s.log.SaveEpochs(t.Context(), nil, []eventlog.Mark{eventlog.Erasure{Topic: topic, By: by, Value: value}.Mark(at)}))
	}
	mark(eventlog.ErasedByKey, "person", at)
	mark(eventlog.ErasedByKey, "person", at+2)
	mark(eventlog.ErasedByID, "gone", at)
	mark(eventlog.ErasedByDeadID, "t/dead", at)
	mark(eventlog.ErasedByDeadKey, "t/k", at)
	var recs []*eventlog.Record
	var want []bool
	add := func(id, key string, accepted int64, erased bool) *eventlog.Record {
		r := &eventlog.Record{Event: wire.Event{Topic: topic, ID: id, Key: key}, AcceptedAt: accepted}
		recs, want = append(recs, r), append(want, erased)
		return r
	}
	for i := range int64(5) {
		add(fmt.Sprint("p", i), "person", at+i, i <= 2)
		add(fmt.Sprint("o", i), "other", at+i, false)
	}
	add("gone", "", at, true)
	add("gone", "", at+1, false)
	add("dead", "", at, false)
	letter := func(id, key, of, dead string, erased bool) {
		add(id, key, at-1, erased).Headers = wire.Headers{}.With(wire.HeaderDeadTopic, of).With(wire.HeaderDeadID, dead)
	}
	letter("letter", "", "t", "dead", true)
	letter("keyed", "k", "t", "a", true)
	letter("of another topic", "k", "u", "dead", false)
	letter("living", "", "t", "b", false)
	add("no letter", "k", at, false)
	for range 2 {
		got, err := eventlog.Erased(t.Context(), s.log.Marked, topic, recs)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("Erased = %v, %v; want %v", got, err, want)
		}
		other, err := eventlog.Erased(t.Context(), s.log.Marked, s.topic(t, 1), recs)
		if err != nil || slices.Contains(other, true) {
			t.Errorf("Erased of another topic = %v, %v", other, err)
		}
		s.reopen(t)
	}
}

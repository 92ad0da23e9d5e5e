package eventlogtest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// heir is an epoch that inherits. Its own progress would start at from.
func heir(topic, group string, partition int, number uint64, owner string, from uint64) eventlog.Epoch {
	e := epoch(topic, group, partition, number, owner)
	e.Inherit, e.Progress.Cursor = true, from
	return e
}

// shown is how LatestEpochs shows an epoch with that progress.
func shown(e eventlog.Epoch, p eventlog.Progress) eventlog.Epoch {
	e.Inherit, e.Progress = false, p
	return e
}

var someProgress = eventlog.Progress{
	Cursor:  20,
	Settled: []eventlog.SeqRange{{First: 22, Last: 30}, {First: 33, Last: 33}},
	Attempts: []eventlog.AttemptRange{
		{SeqRange: eventlog.SeqRange{First: 20, Last: 21}, Attempts: 3},
	},
	Out: []eventlog.SeqRange{{First: 20, Last: 20}}, OutBy: "n1",
	Unsure: []eventlog.SeqRange{{First: 21, Last: 21}},
	Delays: []eventlog.Delay{{Seq: 21, Until: 1700000000123, Left: 1 << 40}},
	By:     "orders", Unused: 1_723_140_000_000, Reach: 40, ReachBy: "n1",
}

func testInherit(t *testing.T, s *suite) {
	t.Run("the first epoch has nobody to inherit from", func(t *testing.T) {
		topic := s.topic(t, 1)
		first := heir(topic, "g", 0, 1, "n1", 7)
		s.take(t, first)
		for range 2 {
			s.latest(t, topic, "g", shown(first, eventlog.Progress{Cursor: 7}))
			s.reopen(t)
		}
	})

	t.Run("what was saved goes over, also through owners that saved nothing", func(t *testing.T) {
		topic := s.topic(t, 2)
		first, other := epoch(topic, "g", 0, 1, "n1"), epoch(topic, "g", 1, 1, "n1")
		s.take(t, first, other)
		first.Progress, other.Progress.Cursor = someProgress, 99
		s.save(t, first, other)
		for number := uint64(2); number <= 6; number++ {
			next := heir(topic, "g", 0, number, fmt.Sprintf("n%d", number), 1)
			s.take(t, next)
			s.latest(t, topic, "g", shown(next, someProgress), other)
			s.reopen(t)
			s.latest(t, topic, "g", shown(next, someProgress), other)
		}
	})

	t.Run("the epochs of one call inherit from each other", func(t *testing.T) {
		topic := s.topic(t, 1)
		first, second := epoch(topic, "g", 0, 1, "n1"), heir(topic, "g", 0, 5, "n1", 1)
		first.Progress = someProgress
		s.takeAtOnce(t, first, second)
		s.latest(t, topic, "g", shown(second, someProgress))
	})

	t.Run("the new owner's progress replaces what it inherited", func(t *testing.T) {
		topic := s.topic(t, 1)
		first, second, third := epoch(topic, "g", 0, 1, "n1"), heir(topic, "g", 0, 2, "n2", 1), heir(topic, "g", 0, 3, "n3", 1)
		first.Progress = someProgress
		s.take(t, first, second)
		back := eventlog.Progress{Cursor: 3} // a seek goes back
		s.save(t, shown(second, back))
		s.latest(t, topic, "g", shown(second, back))
		s.take(t, third)
		s.latest(t, topic, "g", shown(third, back))
	})

	t.Run("an epoch that does not inherit starts over", func(t *testing.T) {
		topic := s.topic(t, 1)
		first, second, third := epoch(topic, "g", 0, 1, "n1"), epoch(topic, "g", 0, 2, "n2"), heir(topic, "g", 0, 3, "n3", 1)
		first.Progress, second.Progress.Cursor = someProgress, 50
		s.take(t, first, second, third)
		s.latest(t, topic, "g", shown(third, second.Progress))
	})

	t.Run("a late save of the owner before changes nothing", func(t *testing.T) {
		topic := s.topic(t, 1)
		first, second := epoch(topic, "g", 0, 1, "n1"), heir(topic, "g", 0, 2, "n2", 1)
		first.Progress = someProgress
		s.take(t, first, second)
		first.Progress = eventlog.Progress{Cursor: 70}
		s.wantFenced(t, first)
		s.latest(t, topic, "g", shown(second, someProgress))
	})

	t.Run("a kept epoch is its owner's, unless that has released the one before", func(t *testing.T) {
		topic := s.topic(t, 1)
		first := epoch(topic, "g", 0, 1, "n1")
		s.take(t, first)
		for number := uint64(2); number <= 3; number++ {
			kept := heir(topic, "g", 0, number, "n1", 1)
			kept.Kept = true
			s.take(t, kept)
			kept.Kept = false
			s.latest(t, topic, "g", shown(kept, first.Progress))
		}
		owned := heir(topic, "g", 0, 4, "n1", 1)
		s.take(t, owned)
		owned.Inherit, owned.Released = false, true
		s.save(t, owned)
		for number := uint64(5); number <= 6; number++ {
			kept := heir(topic, "g", 0, number, "n1", 1)
			kept.Kept = true
			s.take(t, kept)
			kept.Kept, kept.Released = false, true
			s.latest(t, topic, "g", shown(kept, first.Progress))
		}
	})

	t.Run("saves and takes at once", func(t *testing.T) { testInheritRace(t, s) })
}

// testInheritRace takes a partition over while its owner is saving. The next owner continues from
// the last save that returned nil, or a later one.
func testInheritRace(t *testing.T, s *suite) {
	const rounds = 40
	topic := s.topic(t, 1)
	var saved uint64 // the highest cursor that was answered nil
	own := epoch(topic, "g", 0, 1, "n1")
	s.take(t, own)
	for number := uint64(2); number < rounds+2 && !t.Failed(); number++ {
		var good atomic.Uint64
		var saving sync.WaitGroup
		begun := make(chan struct{})
		begin := sync.OnceFunc(func() { close(begun) })
		saving.Go(func() {
			defer begin()
			e := shown(own, eventlog.Progress{Cursor: saved})
			for e.Progress.Cursor++; ; e.Progress.Cursor++ {
				switch err := s.log.SaveEpochs(context.WithoutCancel(t.Context()), []eventlog.Epoch{e}, nil); {
				case err == nil:
					good.Store(e.Progress.Cursor)
					begin()
				case errors.Is(err, eventlog.ErrFenced):
					return
				default:
					t.Errorf("SaveEpochs: %v", err)
					return
				}
			}
		})
		<-begun
		own = heir(topic, "g", 0, number, fmt.Sprintf("n%d", number), 1)
		if err := s.takeEpoch(t, own); err != nil {
			t.Errorf("TakeEpochs: %v", err)
		}
		got, err := s.log.LatestEpochs(t.Context(), topic, "g")
		saving.Wait()
		later, errLater := s.log.LatestEpochs(t.Context(), topic, "g")
		if err != nil || errLater != nil || len(got) != 1 || len(later) != 1 {
			t.Fatalf("LatestEpochs = %+v, %v and then %+v, %v", got, err, later, errLater)
		}
		if got[0].Number != number || got[0].Progress.Cursor < good.Load() {
			t.Errorf("epoch %d goes on from cursor %d; the owner before it was told that %d is saved",
				got[0].Number, got[0].Progress.Cursor, good.Load())
		}
		if got[0].Progress.Cursor != later[0].Progress.Cursor {
			t.Errorf("epoch %d goes on from cursor %d, and later from %d", number, got[0].Progress.Cursor, later[0].Progress.Cursor)
		}
		saved = later[0].Progress.Cursor
	}
}

package eventlogtest

import (
	"fmt"
	"sync"
	"testing"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// testProgress: saves and syncs, one after the other and at once. Each log's own tests check that
// synced progress survives a power cut.
func testProgress(t *testing.T, s *suite) {
	t.Run("syncing with nothing to sync", func(t *testing.T) {
		for range 2 {
			if err := s.log.Sync(t.Context()); err != nil {
				t.Errorf("Sync: %v", err)
			}
		}
	})

	t.Run("what was saved is kept over a restart, synced or not", func(t *testing.T) {
		topic := s.topic(t, 1)
		own := epoch(topic, "g", 0, 1, "n")
		s.take(t, own)
		for i := range uint64(6) {
			own.Progress.Cursor = 10 + i
			s.save(t, own)
			if i%2 == 0 {
				if err := s.log.Sync(t.Context()); err != nil {
					t.Errorf("Sync: %v", err)
				}
			}
			s.latest(t, topic, "g", own)
			s.reopen(t)
			s.latest(t, topic, "g", own)
		}
	})

	t.Run("a fenced save leaves the others' epochs alone", func(t *testing.T) {
		topic := s.topic(t, 2)
		mine, fenced, theirs := epoch(topic, "g", 0, 1, "n1"), epoch(topic, "g", 1, 1, "n1"), epoch(topic, "g", 1, 2, "n2")
		s.take(t, mine, fenced, theirs)
		moved := mine
		moved.Progress.Cursor = 9
		s.wantFenced(t, moved, fenced)
		s.latest(t, topic, "g", mine, theirs)
	})

	t.Run("saves, syncs, takes and reads at once", func(t *testing.T) { testProgressRace(t, s) })
}

// testProgressRace: the owner of each partition saves a rising cursor, and now and then takes the
// next epoch, during syncs. A reader never sees an owner go back.
func testProgressRace(t *testing.T, s *suite) {
	const owners, rounds = 4, 60
	topic := s.topic(t, owners)
	var owning, beside sync.WaitGroup
	over := make(chan struct{})
	final := make([]eventlog.Epoch, owners)
	for p := range owners {
		owning.Go(func() {
			own := epoch(topic, "g", p, 1, fmt.Sprintf("n%d", p))
			for i := range uint64(rounds) {
				own.Progress.Cursor = i + 1
				var err error
				if i%20 == 0 {
					own.Number = i/20 + 1
					err = s.takeEpoch(t, own)
				} else {
					err = s.log.SaveEpochs(t.Context(), []eventlog.Epoch{own}, nil)
				}
				if err != nil {
					t.Errorf("epoch %d, cursor %d: %v", own.Number, own.Progress.Cursor, err)
				}
			}
			final[p] = own
		})
	}
	until := func(do func() error) {
		beside.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
				}
				if err := do(); err != nil {
					t.Errorf("beside the owners: %v", err)
					return
				}
			}
		})
	}
	for range 2 {
		until(func() error { return s.log.Sync(t.Context()) })
	}
	seen := make([]eventlog.Epoch, owners)
	until(func() error {
		epochs, err := s.log.LatestEpochs(t.Context(), topic, "g")
		for _, e := range epochs {
			before := seen[e.Partition]
			if e.Number < before.Number || e.Progress.Cursor < before.Progress.Cursor {
				return fmt.Errorf("after %+v LatestEpochs shows %+v", before, e)
			}
			seen[e.Partition] = e
		}
		return err
	})
	owning.Wait()
	close(over)
	beside.Wait()
	s.latest(t, topic, "g", final...)
	s.reopen(t)
	s.latest(t, topic, "g", final...)
}

package group

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/sluice-bus/sluice/internal/clock"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/group/dispatch"
)

// saver has the parts of a group's progress that belong to no partition: marks, the callers that
// wait, and when a save is tried again. The group's mutex guards it.
type saver struct {
	clock clock.Clock

	beat               uint64
	marks              map[string]eventlog.Mark               // by id, to be saved with the progress
	marking            map[string]eventlog.Mark               // of the last save: a read that began before it does not find them
	waiters            []*settlement                          // are answered once the progress is saved and synced
	pendingDeadLetters map[*dispatch.Event]*pendingDeadLetter // those that nacks wait for
	busy               bool                                   // a save is under way
	saveAt             time.Time                              // when to save acks at the latest; zero: at once
	retryAt            time.Time                              // when to try again after a failed save; zero: none has failed

	saves    uint64             // how many succeeded
	synced   uint64             // how many of those are known to be durable
	unsynced []*settlement      // are answered once all saved progress is durable
	redriven []eventlog.Redrive // settled, and saved as such: their dead letters are removed next
	removeAt time.Time          // when the removal is tried again; zero: none has failed
}

// idle reports whether no progress waits for a save, and no caller for an answer.
func (s *saver) idle() bool {
	return len(s.waiters)+len(s.pendingDeadLetters)+len(s.unsynced)+len(s.marks)+len(s.redriven) == 0 && !s.busy
}

// saveBy makes acks be saved by then.
func (s *saver) saveBy(then time.Time) {
	if s.saveAt.IsZero() || then.Before(s.saveAt) {
		s.saveAt = then
	}
}

// isMarked reports whether an id was acked and its mark may not be saved yet.
func (s *saver) isMarked(id string) bool {
	_, waits := s.marks[id]
	_, saving := s.marking[id]
	return waits || saving
}

// begin begins a save with the saver's own parts.
func (s *saver) begin() save {
	x := save{marks: slices.Collect(maps.Values(s.marks)), waiters: s.waiters}
	clear(s.marking)
	s.marks, s.marking = s.marking, s.marks
	s.waiters, s.saveAt = nil, time.Time{}
	return x
}

func (s *saver) saved(x save) {
	s.busy, s.retryAt = false, time.Time{}
	if !x.empty() {
		s.saves++
	}
	s.unsynced = append(s.unsynced, x.waiters...)
	s.redriven = append(s.redriven, x.redriven...)
}

// failed takes the parts of a failed save back. first says that the save before has succeeded.
func (s *saver) failed(x save) (first bool) {
	first = s.retryAt.IsZero()
	s.busy, s.retryAt = false, s.clock.Now().Add(retryAfterFailure)
	for _, mark := range x.marks {
		if _, newer := s.marks[mark.ID]; !newer {
			s.marks[mark.ID] = mark
		}
	}
	return first
}

// save is the progress of one turn on its way to the store, with the work that follows once it is
// stored.
type save struct {
	epochs      []eventlog.Epoch
	marks       []eventlog.Mark
	waiters     []*settlement // are answered once it is synced
	deadLetters []*dispatch.Event
	redriven    []eventlog.Redrive // that are settled
}

func (s *save) empty() bool { return len(s.epochs) == 0 && len(s.marks) == 0 }

// checkOwners finds the settlements that come too late.
func (s *save) checkOwners() {
	for _, x := range s.waiters {
		x.checkOwners()
	}
}

// store writes the save, unless it is empty.
func (s save) store(ctx context.Context, log eventlog.Groups) error {
	if s.empty() {
		return nil
	}
	return log.SaveEpochs(ctx, s.epochs, s.marks)
}

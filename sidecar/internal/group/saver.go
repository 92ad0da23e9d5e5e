package group

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sluice-bus/sluice/internal/clock"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/tracing"
)

// saver is a group's progress on its way to the store, as far as it is not its
// partitions': marks, the callers that wait, and when a save is tried again. The
// group's mutex guards it.
type saver struct {
	clock   clock.Clock
	timeout time.Duration // of the callers that wait; 0: none

	beat    uint64
	marks   map[string]eventlog.Mark // by id, to be saved with the progress
	waiters []func(error)            // to be told once the progress is saved and synced
	settles []*tracing.Settle        // the spans of acks and nacks whose callers wait next
	busy    bool                     // a save is under way
	due     time.Time                // when to save acks if nothing else is to be saved before; zero: at once
	again   time.Time                // when to try again after a failed save; zero: none has failed

	saves    uint64             // how many succeeded
	synced   uint64             // how many of those are known to be durable
	unsynced []func(error)      // to be told once all that is saved is durable
	ended    []eventlog.Redrive // settled, and saved as such: their dead letters are to be taken away
	endAgain time.Time          // when that is tried again; zero: not waited for
}

// idle reports whether there is nothing to be saved or told.
func (s *saver) idle() bool {
	return len(s.waiters)+len(s.unsynced)+len(s.marks)+len(s.ended) == 0 && !s.busy
}

// unsaved reports whether there is progress that no save has begun to store.
func (s *saver) unsaved(parts partitions) bool { return len(s.marks) > 0 || parts.dirty() }

// saveBy has acks be saved at that time, if nothing else is saved before.
func (s *saver) saveBy(due time.Time) {
	if s.due.IsZero() || due.Before(s.due) {
		s.due = due
	}
}

// isMarked reports whether an id was acked and its mark is not saved yet.
func (s *saver) isMarked(id string) bool {
	_, ok := s.marks[id]
	return ok
}

// begin begins a save with what is not the partitions'.
func (s *saver) begin() save {
	x := save{marks: slices.Collect(maps.Values(s.marks)), waiters: s.waiters}
	clear(s.marks)
	s.waiters, s.due = nil, time.Time{}
	return x
}

func (s *saver) saved(x save) {
	s.busy, s.again = false, time.Time{}
	if !x.empty() {
		s.saves++
	}
	s.unsynced = append(s.unsynced, x.waiters...)
	s.ended = append(s.ended, x.ended...)
}

// failed takes back what a save has not stored. first says that the one before
// has succeeded.
func (s *saver) failed(x save) (first bool) {
	first = s.again.IsZero()
	s.busy, s.again = false, s.clock.Now().Add(retryAfterFailure)
	for _, mark := range x.marks {
		if !s.isMarked(mark.ID) {
			s.marks[mark.ID] = mark
		}
	}
	return first
}

// settling begins the span of an ack or nack that has arrived; the next call of
// traced, under the same lock, ends it.
func (s *saver) settling(span *tracing.Settle) {
	if span != nil {
		s.settles = append(s.settles, span)
	}
}

// traced is done, and the end of the spans of what it waits for.
func (s *saver) traced(done func(error)) func(error) {
	spans := s.settles
	if len(spans) == 0 {
		return done
	}
	s.settles = nil
	return func(err error) {
		for _, span := range spans {
			span.End(err)
		}
		done(err)
	}
}

// timed answers in time also where the store does not. What the answer is about
// goes on, and may be saved later.
func (s *saver) timed(done func(error)) func(error) {
	if s.timeout == 0 {
		return done
	}
	var once sync.Once
	timer := s.clock.AfterFunc(s.timeout, func() {
		once.Do(func() { done(fmt.Errorf("save progress: %w: %w", eventlog.ErrUnavailable, eventlog.ErrTimeout)) })
	})
	return func(err error) {
		timer.Stop()
		once.Do(func() { done(err) })
	}
}

// deadLettered takes an event off the nack that waits for it, if one does; err
// says that this sidecar will not make it a dead letter.
func (s *saver) deadLettered(e *entry, err error) {
	n := e.nack
	if n == nil {
		return
	}
	e.nack = nil
	if n.left--; err != nil {
		n.done = func(done func(error)) func(error) { return func(error) { done(err) } }(n.done)
	}
	if n.left == 0 {
		s.waiters = append(s.waiters, n.done)
	}
}

package schedule

import (
	"context"
	"slices"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// room is about how many events of a topic are scheduled.
type room struct {
	counted  int64 // the last count, less the events released here since
	reserved int64 // admitted here, and neither stored nor returned yet: a count may miss them
	stored   int64 // here since that count began
}

// Reserve admits one more scheduled event of a topic. The caller calls Return or Accepted next.
// Each sidecar uses its last count, and the events that it has admitted and released itself since.
// The error is a *wire.Error.
func (s *Scheduler) Reserve(topic string) error {
	if s.cfg.Most <= 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.rooms[topic]
	if r == nil {
		r = &room{counted: s.Counts()[topic]}
		s.rooms[topic] = r
	}
	if r.counted+r.reserved+r.stored >= int64(s.cfg.Most) {
		e := wire.Errorf(wire.Overloaded,
			"%d events of topic %q are scheduled already, which is as many as --max-scheduled allows; try again later", s.cfg.Most, topic)
		e.Reason, e.RetryAfter = "scheduled", max(s.cfg.CountEvery, s.countPause) // when they are counted again
		return e
	}
	r.reserved++
	return nil
}

// Return cancels the reservation of an event that was not scheduled.
func (s *Scheduler) Return(topic string) { s.change(topic, func(r *room) { r.reserved-- }) }

func (s *Scheduler) change(topic string, change func(*room)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.rooms[topic]; r != nil {
		change(r)
	}
}

func (s *Scheduler) count(ctx context.Context) {
	for {
		began := s.cfg.Clock.Now()
		s.countOnce(ctx)
		pause := max(s.cfg.CountEvery, countShare*s.cfg.Clock.Since(began))
		s.mu.Lock()
		s.countPause = pause
		s.mu.Unlock()
		if !s.cfg.Clock.Sleep(ctx, pause) {
			return
		}
	}
}

// countOnce counts the slots of this sidecar, and the topics in other slots in which events were
// scheduled here.
func (s *Scheduler) countOnce(ctx context.Context) {
	slots := s.slots()
	before := map[string]int64{} // stored, and so counted
	s.mu.Lock()
	for topic, r := range s.rooms {
		before[topic] = r.stored
	}
	s.mu.Unlock()
	counts, err := s.cfg.Log.CountSlots(ctx, slots)
	if err != nil {
		return
	}
	s.counts.Store(&counts)
	for topic, stored := range before {
		n := counts[topic]
		if slots != nil && !slices.Contains(slots, eventlog.SlotOf(topic)) {
			if n, err = s.cfg.Log.CountScheduled(ctx, topic); err != nil {
				continue
			}
		}
		s.mu.Lock()
		r := s.rooms[topic]
		r.counted, r.stored = n, r.stored-stored
		if n == 0 && r.reserved+r.stored == 0 {
			delete(s.rooms, topic)
		}
		s.mu.Unlock()
	}
}

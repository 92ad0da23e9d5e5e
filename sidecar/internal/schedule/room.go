package schedule

import (
	"context"
	"slices"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// room is about what is scheduled of a topic.
type room struct {
	counted  eventlog.Waiting // the last count, less the events released here since
	reserved eventlog.Waiting // admitted here, and neither stored nor returned yet: a count may miss them
	stored   eventlog.Waiting // here since that count began
}

// Reserve admits one more scheduled event of a topic, of about that many bytes. The caller calls
// Return or Accepted next. Each sidecar uses its last count, and the events that it has admitted and
// released itself since. The error is a *wire.Error.
func (s *Scheduler) Reserve(topic string, bytes int) error {
	most := s.cfg.MostBytes(topic)
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.rooms[topic]
	if r == nil {
		r = &room{counted: s.Counts()[topic]}
		s.rooms[topic] = r
	}
	with := r.counted.Plus(r.reserved).Plus(r.stored).Plus(one(bytes))
	var e *wire.Error
	switch {
	case s.cfg.Most > 0 && with.Events > int64(s.cfg.Most):
		e = wire.Errorf(wire.Overloaded,
			"%d events of topic %q are scheduled already, which is as many as --max-scheduled allows; try again later", s.cfg.Most, topic)
	case most > 0 && with.Bytes > most:
		e = wire.Errorf(wire.Overloaded, "the scheduled events of topic %q would have more than the %d bytes that retention.max_bytes of "+
			"its policy allows; try again later", topic, most)
	default:
		r.reserved = r.reserved.Plus(one(bytes))
		return nil
	}
	e.Reason, e.RetryAfter = "scheduled", max(s.cfg.CountEvery, s.countPause) // when they are counted again
	return e
}

func one(bytes int) eventlog.Waiting { return eventlog.Waiting{Events: 1, Bytes: int64(bytes)} }

// Return cancels the reservation of an event that was not scheduled.
func (s *Scheduler) Return(topic string, bytes int) {
	s.change(topic, func(r *room) { r.reserved = r.reserved.Minus(one(bytes)) })
}

// released notes events that are not scheduled any more, with the mean of the topic for their size.
func (r *room) released(n int64) {
	if n = min(n, r.counted.Events); n > 0 {
		r.counted = r.counted.Minus(eventlog.Waiting{Events: n, Bytes: r.counted.Bytes / r.counted.Events * n})
	}
}

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
	before := map[string]eventlog.Waiting{} // stored, and so counted
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
		r.counted, r.stored = n, r.stored.Minus(stored)
		if (*r == room{}) {
			delete(s.rooms, topic)
		}
		s.mu.Unlock()
	}
}

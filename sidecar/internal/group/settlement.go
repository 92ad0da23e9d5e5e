package group

import (
	"fmt"
	"slices"
	"time"

	"github.com/sluice-bus/sluice/internal/clock"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/group/dispatch"
	"github.com/sluice-bus/sluice/sidecar/internal/tracing"
)

// Settled is called once with the outcome of a settlement: nil once it is durable, or an error if
// that is not known. By index, absent are the events that were not in flight, and lost are those
// that another sidecar or a seek took before they were settled. It must not block.
type Settled func(absent, lost []int, err error)

// settlement is an ack, a nack or a seek that waits to be durable.
type settlement struct {
	events      []settledEvent // whose partitions may still be lost before the next save
	absent      []int
	lost        []int
	deadLetters int // of its events, that are not durable yet
	spans       []*tracing.Settle
	timer       clock.Timer // nil: it waits without a bound
	done        Settled
}

// settledEvent is what a settlement has changed in a partition, and how often the partition had been
// lost by then.
type settledEvent struct {
	index     int
	partition *partition
	losses    int
}

func (x *settlement) settles(index int, p *partition) {
	x.events = append(x.events, settledEvent{index, p, p.losses})
}

// trace adds the span of an ack or a nack, which may be nil.
func (x *settlement) trace(span *tracing.Settle) {
	if span != nil {
		x.spans = append(x.spans, span)
	}
}

// timeout answers with an error if the store does not answer in time; 0: never. The progress may
// still be saved later.
func (x *settlement) timeout(c clock.Clock, after time.Duration) {
	if after > 0 {
		x.timer = c.AfterFunc(after, func() {
			x.end(fmt.Errorf("save progress: %w: %w", eventlog.ErrUnavailable, eventlog.ErrTimeout))
		})
	}
}

// checkOwners finds the events whose partitions were lost before any save could have them.
func (x *settlement) checkOwners() {
	x.events = slices.DeleteFunc(x.events, func(e settledEvent) bool {
		lost := e.partition.losses != e.losses
		if lost {
			x.lost = append(x.lost, e.index)
		}
		return lost
	})
}

func (x *settlement) answer(err error) {
	if x.timer == nil || x.timer.Stop() {
		x.end(err)
	}
}

func (x *settlement) end(err error) {
	for _, span := range x.spans {
		span.End(err)
	}
	if err != nil { // after a timeout, the others are still the group's
		x.done(nil, nil, err)
	} else {
		x.done(x.absent, x.lost, nil)
	}
}

func answerAll(waiters []*settlement, err error) {
	for _, x := range waiters {
		x.answer(err)
	}
}

// pendingDeadLetter is the dead letter of an event, which a nack asked for and waits for.
type pendingDeadLetter struct {
	*settlement
	index     int
	appending bool // the dead letter may become durable, whatever happens to the event
}

// appending notes whether the dead letter of an event is being appended.
func (s *saver) appending(e *dispatch.Event, is bool) {
	if x := s.pendingDeadLetters[e]; x != nil {
		x.appending = is
	}
}

// deadLettered ends the wait of a nack for an event, if one waits: its dead letter is durable, or
// this sidecar will not make it.
func (s *saver) deadLettered(e *dispatch.Event, durable bool) {
	x := s.pendingDeadLetters[e]
	if x == nil {
		return
	}
	delete(s.pendingDeadLetters, e)
	if !durable {
		x.lost = append(x.lost, x.index)
	}
	if x.settlement.deadLetters--; x.settlement.deadLetters == 0 {
		s.waiters = append(s.waiters, x.settlement)
	}
}

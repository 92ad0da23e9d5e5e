package eventlog

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// Scheduled is an event that the log keeps until it is due. Its id is taken, and readers do not see
// it.
type Scheduled struct {
	Topic, ID, Key string
	// DeliverAt is when it is due, in milliseconds since the epoch.
	DeliverAt int64
	// Place distinguishes it from other events with its id and time. Due continues after it. Only
	// the log that set it understands it, and ListScheduled does not set it.
	Place string
}

// Waiting is how many events are scheduled, and about how many bytes they have.
type Waiting struct{ Events, Bytes int64 }

// Plus is the sum of both.
func (w Waiting) Plus(o Waiting) Waiting { return Waiting{w.Events + o.Events, w.Bytes + o.Bytes} }

// Minus is what is left without the other.
func (w Waiting) Minus(o Waiting) Waiting { return Waiting{w.Events - o.Events, w.Bytes - o.Bytes} }

// SchedulerSlots is the number of slots of a store's scheduled events, which its sidecars share
// out. All of a topic is in one slot.
const SchedulerSlots = 16

// SlotOf is the slot of a topic's scheduled events. The function is part of the data format.
func SlotOf(topic string) int { return PartitionOf(topic, "", SchedulerSlots) }

// Acceptances numbers scheduled events in the order in which a log accepts them, so that those due
// at one time go into the log in it. A number is the time by this sidecar's clock, in nanoseconds,
// with random low bits, since other sidecars number theirs as well. It is safe for concurrent use.
type Acceptances struct {
	mu   sync.Mutex
	last int64
}

// Next is a number above all that were given here before.
func (a *Acceptances) Next(now time.Time) int64 {
	const random = 1<<10 - 1
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last = max(a.last+1, now.UnixNano()&^random|rand.Int64N(random+1))
	return a.last
}

// Scheduler keeps events that were appended with a DeliverAt. An operation survives a power cut
// once it returns nil.
type Scheduler interface {
	// Due returns up to limit scheduled events of these slots (nil: all slots) that are due at now
	// (milliseconds since the epoch), from the one after the given event on (nil: from the first
	// on). Their order is that of their times, and of one topic and time that in which they were
	// accepted. If there are fewer than limit, next is about when the next event will be due; 0:
	// there is none. The result may have events that do not exist any more.
	Due(ctx context.Context, slots []int, after *Scheduled, now int64, limit int) (due []Scheduled, next int64, err error)

	// Release moves scheduled events of one topic into their partitions, in order, with now as
	// their TS and AcceptedAt. It returns an Outcome for each, as Append does. An event that is not
	// scheduled any more gets an Err that wraps ErrNotFound, or a Duplicate. An event is in the log
	// once, however often it is released.
	Release(ctx context.Context, topic string, due []Scheduled, now int64) []Outcome

	// ListScheduled returns up to limit scheduled events of a topic, ordered by the time when they
	// are due and by id, after that point (nil: from the first on).
	ListScheduled(ctx context.Context, topic string, after *Point, limit int) ([]Scheduled, error)

	// CountScheduled counts a topic's scheduled events.
	CountScheduled(ctx context.Context, topic string) (Waiting, error)

	// CountSlots counts the scheduled events of each topic of these slots (nil: all slots). Topics
	// without any may be missing.
	CountSlots(ctx context.Context, slots []int) (map[string]Waiting, error)

	// Cancel removes a scheduled event and frees its id. ErrNotFound if no event of that id is
	// scheduled. Once Cancel has returned nil, the event does not come into the log.
	Cancel(ctx context.Context, topic, id string) error
}

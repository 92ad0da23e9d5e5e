package eventlog

import "context"

// Scheduled is an event that is kept until it is due: its id is taken, and no reader gets it.
type Scheduled struct {
	Topic, ID, Key string
	// DeliverAt is when it is due, in milliseconds since the epoch.
	DeliverAt int64
	// Place tells it from others of its id and time, and is where Due goes on
	// behind it. It is the log's own, and not in lists.
	Place string
}

// SchedulerSlots is how many parts the scheduled events of a store have, so that
// the sidecars on it share them out. A topic is all in one.
const SchedulerSlots = 16

// SlotOf is the slot of a topic's scheduled events. It is part of the data format.
func SlotOf(topic string) int { return PartitionOf(topic, "", SchedulerSlots) }

// Scheduler keeps events that were appended with a DeliverAt. An operation that it returns nil for
// survives a power cut.
type Scheduler interface {
	// Due returns up to limit scheduled events of these slots, or of all where
	// slots is nil, that are due at now (milliseconds since the epoch), the
	// first due first: those behind the one that is given, unless that is nil.
	// With fewer than limit, next is when the next one will be due, about; 0:
	// there is none. It may name events that have gone.
	Due(ctx context.Context, slots []int, after *Scheduled, now int64, limit int) (due []Scheduled, next int64, err error)

	// Release puts scheduled events of one topic into their partitions, in
	// order, each with now as its ts and the time of its acceptance, and
	// returns an Outcome for each, on Append's terms. An event that is not
	// scheduled any more has an Err that wraps ErrNotFound, or is a Duplicate.
	// However often and by however many it is released, it is in the log once.
	Release(ctx context.Context, topic string, due []Scheduled, now int64) []Outcome

	// ListScheduled returns up to limit scheduled events of a topic by the time
	// when they are due and their ids: those behind that point, or from the first
	// on where it is nil.
	ListScheduled(ctx context.Context, topic string, after *Point, limit int) ([]Scheduled, error)

	// CountScheduled counts a topic's scheduled events.
	CountScheduled(ctx context.Context, topic string) (int64, error)

	// CountSlots counts the scheduled events of the topics of these slots, or of
	// all where slots is nil; topics without any may be left out.
	CountSlots(ctx context.Context, slots []int) (map[string]int64, error)

	// Cancel removes a scheduled event, and its id is free again; ErrNotFound
	// where none of that id is scheduled. Once it has returned nil the event
	// does not come into the log.
	Cancel(ctx context.Context, topic, id string) error
}

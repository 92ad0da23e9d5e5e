// Package position finds the seqs at which a subscription or a seek starts.
package position

import (
	"context"
	"errors"
	"slices"

	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// Seek turns a position as a client gives it into the seq to start at, per partition; 0 stands for a
// partition that the position does not name.
func Seek(ctx context.Context, log eventlog.Reader, topic string, o wire.SubscribeOptions) ([]uint64, error) {
	p := eventlog.Position{From: o.From}
	switch o.From {
	case wire.FromPositions:
		return behind(ctx, log, topic, o.Positions)
	case "":
		p.From = wire.FromLatest
	case wire.FromTS:
		p.TS = *o.TS
	case wire.FromAfterID:
		rec, err := log.Lookup(ctx, topic, o.AfterID)
		if errors.Is(err, eventlog.ErrNotFound) {
			return nil, unknown(topic, o.AfterID)
		}
		if err != nil {
			return nil, err
		}
		p.After = eventlog.Point{TS: rec.TS, ID: rec.ID}
	}
	return log.Seek(ctx, topic, p)
}

// After returns where a reader without a group goes on after an event: right behind it in its
// partition, and in the others as Seek does. gone says that the event was removed. If the topic does
// not remember where it was, every event that is left may be behind it. An event that is not there
// although neither retention nor compaction removed any never was: NotFound.
func After(ctx context.Context, log eventlog.Reader, topic, id string, keeps policy.Retention) (starts []uint64, gone bool, err error) {
	at, err := log.Locate(ctx, topic, id)
	if err == nil {
		starts, err = log.Seek(ctx, topic, eventlog.Position{From: wire.FromAfterID, After: eventlog.Point{TS: at.TS, ID: id}})
		if err == nil {
			starts[at.Partition] = at.Seq + 1
		}
		return starts, at.Gone, err
	}
	if !errors.Is(err, eventlog.ErrNotFound) {
		return nil, false, err
	}
	extents, err := log.Extents(ctx, topic)
	if err != nil && !errors.Is(err, eventlog.ErrNotFound) {
		return nil, false, err
	}
	gone = keeps.Compact
	for _, x := range extents {
		starts = append(starts, x.First)
		gone = gone || x.Removed > 0
	}
	if len(starts) == 0 || !gone {
		return nil, false, unknown(topic, id)
	}
	return starts, true, nil
}

func unknown(topic, id string) error {
	return wire.Errorf(wire.NotFound, "afterId: topic %q has no event with id %q", topic, id)
}

// Starts is Seek for a subscription: a partition that the position does not name starts at its first
// event.
func Starts(ctx context.Context, log eventlog.Reader, topic string, o wire.SubscribeOptions) ([]uint64, error) {
	starts, err := Seek(ctx, log, topic, o)
	if err != nil || !slices.Contains(starts, 0) {
		return starts, err
	}
	first, err := log.Seek(ctx, topic, eventlog.Position{From: wire.FromEarliest})
	for p := range min(len(starts), len(first)) {
		if starts[p] == 0 {
			starts[p] = first[p]
		}
	}
	return starts, err
}

// behind starts each partition right behind its position. A position is too old once retention, or
// the topic's deletion, has removed an event behind it. An event that compaction removed was replaced by a
// later one, and a void was none.
func behind(ctx context.Context, log eventlog.Reader, topic string, positions map[int]uint64) ([]uint64, error) {
	extents, err := log.Extents(ctx, topic)
	if err != nil {
		return nil, err
	}
	starts := make([]uint64, len(extents))
	for p, seq := range positions {
		if p >= len(extents) {
			return nil, wire.Errorf(wire.BadRequest, "positions: topic %q has partitions 0 to %d, not %d", topic, len(extents)-1, p)
		}
		x := extents[p]
		switch last := x.Head + x.Voids; {
		case seq > last:
			return nil, wire.Errorf(wire.BadRequest, "positions: partition %d has seqs up to %d, not %d", p, last, seq)
		case seq < x.Removed:
			return nil, wire.Errorf(wire.OutOfRange,
				"positions: partition %d begins at seq %d now; the event after position %d is gone", p, x.First, seq)
		}
		starts[p] = min(seq, x.Head) + 1
	}
	return starts, nil
}

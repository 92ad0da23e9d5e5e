package mongolog

import (
	"context"
	"errors"
	"fmt"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// errNotScheduled refuses what this log does not keep yet.
var errNotScheduled = errors.New("events are not scheduled in MongoDB yet: publish it without deliver_at and delay_ms")

// Due implements eventlog.Scheduler.
func (l *Log) Due(context.Context, []int, *eventlog.Scheduled, int64, int) ([]eventlog.Scheduled, int64, error) {
	return nil, 0, nil
}

// Release implements eventlog.Scheduler.
func (l *Log) Release(_ context.Context, topic string, due []eventlog.Scheduled, _ int64) []eventlog.Outcome {
	outs := make([]eventlog.Outcome, len(due))
	for i := range outs {
		outs[i].Err = fmt.Errorf("topic %q: %w", topic, eventlog.ErrNotFound)
	}
	return outs
}

// ListScheduled implements eventlog.Scheduler.
func (l *Log) ListScheduled(context.Context, string, *eventlog.Point, int) ([]eventlog.Scheduled, error) {
	return nil, nil
}

// CountScheduled implements eventlog.Scheduler.
func (l *Log) CountScheduled(context.Context, string) (int64, error) { return 0, nil }

// CountSlots implements eventlog.Scheduler.
func (l *Log) CountSlots(context.Context, []int) (map[string]int64, error) { return nil, nil }

// Cancel implements eventlog.Scheduler.
func (l *Log) Cancel(_ context.Context, topic, id string) error {
	return fmt.Errorf("scheduled event %q of topic %q: %w", id, topic, eventlog.ErrNotFound)
}

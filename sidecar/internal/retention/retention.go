// Package retention removes what topics no longer keep, a bounded batch at a
// time, so that it never gets in the way of publishes. It decides when; the log
// decides how, the policies what.
package retention

import (
	"context"
	"log/slog"
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/policy"
)

// Log is what a Sweeper needs of the event log.
type Log interface {
	eventlog.Retainer
	Topics(ctx context.Context) ([]eventlog.Topic, error)
}

// Sweeper removes expired events, remembered ids and marks.
type Sweeper struct {
	Log      Log
	Policies *policy.Current
	Logger   *slog.Logger
	// Interval is the pause between two rounds over all topics.
	Interval time.Duration
	// Batch is how many events, ids or marks one call removes.
	Batch int
}

// Run sweeps until ctx ends, and returns nil then. What cannot be removed now is
// tried again in the next round.
func (s *Sweeper) Run(ctx context.Context) error {
	ticker := time.NewTicker(s.Interval)
	defer ticker.Stop()
	for {
		if err := s.round(ctx); err != nil && ctx.Err() == nil {
			s.Logger.Warn("retention sweep failed; trying again later", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// round sweeps every topic until nothing expired is left.
func (s *Sweeper) round(ctx context.Context) error {
	topics, err := s.Log.Topics(ctx)
	if err != nil {
		return err
	}
	for _, tp := range topics {
		err := s.sweep(ctx, func(now int64) (int, bool, error) {
			return s.Log.Sweep(ctx, tp.Name, rules(s.Policies.Load().Topic(tp.Name)), now, s.Batch)
		})
		if err != nil {
			return err
		}
	}
	return s.sweep(ctx, func(now int64) (int, bool, error) {
		return s.Log.SweepMarks(ctx, now, s.Batch)
	})
}

// sweep calls step until it has no more to do.
func (s *Sweeper) sweep(ctx context.Context, step func(now int64) (removed int, more bool, err error)) error {
	for more := true; more; {
		if err := ctx.Err(); err != nil {
			return err
		}
		var err error
		if _, more, err = step(time.Now().UnixMilli()); err != nil {
			return err
		}
	}
	return nil
}

// rules is a topic's policy as the log takes it.
func rules(e *policy.Effective) eventlog.Retention {
	return eventlog.Retention{
		TTLMS:          e.Retention.TTL.Milliseconds(),
		DedupeWindowMS: e.Dedupe.Window.Milliseconds(),
	}
}

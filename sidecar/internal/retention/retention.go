// Package retention removes what topics no longer keep, a bounded batch at a
// time and with rests in between, so that it never gets in the way of
// publishes. It decides when; the log decides how, the policies what.
package retention

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/policy"
)

// Log is what a Sweeper needs of the event log.
type Log interface {
	eventlog.Retainer
	Topics(ctx context.Context) ([]eventlog.Topic, error)
}

// Sweeper removes expired events, remembered ids and marks. Every field is
// required.
type Sweeper struct {
	Log      Log
	Policies *policy.Current
	Logger   *slog.Logger
	// Interval is the pause between two rounds over all topics; above 0.
	Interval time.Duration
	// Batch is how many events, ids or marks one call removes; at least 1.
	Batch int
}

// Run sweeps until ctx ends, and returns nil then. What cannot be removed now is
// tried again in the next round.
func (s *Sweeper) Run(ctx context.Context) error {
	for {
		s.round(ctx)
		if !pause(ctx, s.Interval) {
			return nil
		}
	}
}

// job is one thing to sweep: a topic, or the marks.
type job struct {
	what  string
	batch func(now int64) (removed int, more bool, err error)
}

// round sweeps until nothing expired is left. The jobs take turns of one batch,
// so that a large backlog does not hold up the others; one that fails is left
// to the next round, and does not stop them either.
func (s *Sweeper) round(ctx context.Context) {
	jobs, err := s.jobs(ctx)
	failures := 0
	for len(jobs) > 0 {
		jobs = slices.DeleteFunc(jobs, func(j job) (over bool) {
			if ctx.Err() != nil {
				return true
			}
			began := time.Now()
			removed, more, failure := j.batch(began.UnixMilli())
			if failure != nil {
				if failures++; err == nil {
					err = fmt.Errorf("%s: %w", j.what, failure)
				}
				return true
			}
			if removed > 0 {
				pause(ctx, time.Since(began)) // leaves half of the log's time to others
			}
			return !more
		})
	}
	if err != nil && ctx.Err() == nil {
		s.Logger.Warn("retention sweep failed; trying again later", "failures", max(failures, 1), "first", err)
	}
}

// jobs are those of one round.
func (s *Sweeper) jobs(ctx context.Context) ([]job, error) {
	topics, err := s.Log.Topics(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the topics: %w", err)
	}
	jobs := []job{{"marks", func(now int64) (int, bool, error) { return s.Log.SweepMarks(ctx, now, s.Batch) }}}
	for _, tp := range topics {
		jobs = append(jobs, job{"topic " + tp.Name, func(now int64) (int, bool, error) {
			return s.Log.Sweep(ctx, tp.Name, rules(s.Policies.Load().Topic(tp.Name)), now, s.Batch)
		}})
	}
	return jobs, nil
}

// pause waits; false if ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// rules is a topic's policy as the log takes it, in whole milliseconds. A policy
// without a window remembers no id for longer than its event, where the log
// takes 0 for for ever.
func rules(e *policy.Effective) eventlog.Retention {
	return eventlog.Retention{
		TTLMS:          wholeMS(e.Retention.TTL),
		DedupeWindowMS: max(wholeMS(e.Dedupe.Window), 1),
	}
}

// wholeMS rounds up, so that what is short does not become 0, which is for ever.
func wholeMS(d time.Duration) int64 {
	ms := d.Milliseconds()
	if d%time.Millisecond > 0 {
		ms++
	}
	return ms
}

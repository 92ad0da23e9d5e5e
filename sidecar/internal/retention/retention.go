// Package retention removes expired events, events beyond the bytes that a topic may hold, and
// events that compaction finds superseded. It works in bounded batches with pauses in between, so
// that it does not delay publishes. It decides when to remove events. The policies decide which,
// and the log how.
package retention

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/sluice-bus/sluice/internal/clock"
	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// Log is what a Sweeper needs of the event log.
type Log interface {
	eventlog.Retainer
	eventlog.Compactor
	Counted
	Topics(ctx context.Context) ([]eventlog.Topic, error)
}

// Sweeper removes expired events, remembered ids and marks, and superseded events. Every field is
// required but Mine, Known and Clock.
type Sweeper struct {
	Log      Log
	Policies *policy.Current
	Logger   *slog.Logger
	// Interval is the pause between two rounds; above 0. Topics that keep their events for ever are
	// swept in every second round only. Every sixth round lists the topics.
	Interval time.Duration
	// Batch is how many events, ids or marks one call removes or examines; at least 1.
	Batch int
	// Mine reports whether this sidecar sweeps a topic, so that the sidecars of a store share the
	// work; nil: it sweeps all. The topic Marks stands for the marks. The answer may change at any
	// time, and it is safe if two sidecars sweep one topic.
	Mine func(topic string) bool
	// Known reports whether the policies are in force. Until then topics are not swept: other rules
	// might remove more, and a removal is final. nil: they are.
	Known func() bool
	Clock clock.Clock

	// Of Run alone.
	rounds  int
	topics  []eventlog.Topic // as listed last
	known   map[string]*known
	failing bool // the last round was incomplete
}

// known is what the last rounds have learned about a topic.
type known struct {
	compaction compaction // where the topic is compacted
	sizing     sizing     // where there is a bound on its bytes
}

// Marks stands for the marks where sidecars share out topics. No topic has that name.
const Marks = "_marks"

// Bounds of the load that many sidecars put on an idle store.
const (
	idleRounds = 2
	listRounds = 6
)

// Run sweeps until ctx ends. Then it returns nil. The next round repeats failed removals.
func (s *Sweeper) Run(ctx context.Context) error {
	s.known = make(map[string]*known)
	for {
		s.round(ctx)
		if !s.Clock.Sleep(ctx, s.Interval) {
			return nil
		}
	}
}

// job is one task of a round. worked says that a batch put load on the log, more that there is more
// to do.
type job struct {
	what  string
	batch func(now time.Time) (worked, more bool, err error)
}

// round works until nothing is left to do. The jobs take turns of one batch, so that a large
// backlog does not delay the others. A job that fails ends until the next round, and the others
// continue.
func (s *Sweeper) round(ctx context.Context) {
	jobs, err := s.jobs(ctx)
	failures := 0
	for len(jobs) > 0 {
		jobs = slices.DeleteFunc(jobs, func(j job) (over bool) {
			if ctx.Err() != nil {
				return true
			}
			began := s.Clock.Now()
			worked, more, failure := j.batch(began)
			if errors.Is(failure, eventlog.ErrNotFound) {
				return true // the topic was deleted
			}
			if failure != nil {
				if failures++; err == nil {
					err = fmt.Errorf("%s: %w", j.what, failure)
				}
				return true
			}
			if worked {
				s.Clock.Sleep(ctx, s.Clock.Since(began)) // leaves half of the log's time to others
			}
			return !more
		})
	}
	if err != nil && !s.failing && ctx.Err() == nil {
		s.Logger.Warn("retention sweep failed; trying again, and silent until one succeeds", "failures", max(failures, 1), "error", err)
	}
	if s.failing = err != nil; s.failing {
		s.rounds = 0 // the next round is of all topics
	}
}

func (s *Sweeper) jobs(ctx context.Context) ([]job, error) {
	all := s.rounds%idleRounds == 0
	if s.rounds%listRounds == 0 {
		topics, err := s.Log.Topics(ctx)
		if err != nil {
			return nil, fmt.Errorf("list the topics: %w", err)
		}
		s.topics = topics
	}
	s.rounds++
	var jobs []job
	if s.mine(Marks) {
		jobs = append(jobs, job{"marks", func(now time.Time) (bool, bool, error) {
			removed, more, err := s.Log.SweepMarks(ctx, now.UnixMilli(), s.Batch)
			return removed > 0, more, err
		}})
	}
	for _, tp := range s.topics {
		keep := s.policy(tp.Name).Retention
		bounded := keep.TTL > 0 || keep.Compact || keep.MaxBytes > 0
		sweep, ready := all || bounded, s.Known == nil || s.Known()
		if !sweep || !ready || !s.mine(tp.Name) {
			delete(s.known, tp.Name)
			continue
		}
		k := s.known[tp.Name]
		if k == nil {
			k = &known{}
			s.known[tp.Name] = k
		}
		jobs = append(jobs, s.sweepJob(ctx, tp.Name, &k.sizing))
		if keep.Compact {
			jobs = append(jobs, s.compactJob(ctx, tp.Name, k))
		} else {
			k.compaction = compaction{}
		}
	}
	return jobs, nil
}

// policy is the topic's policy that is in force. It is read before every batch, since a round may
// take long and a removal is final.
func (s *Sweeper) policy(topic string) *policy.Effective { return s.Policies.Load().Topic(topic) }

func (s *Sweeper) mine(topic string) bool { return s.Mine == nil || s.Mine(topic) }

// Rules is a topic's policy for the log, in whole milliseconds. A policy without a window remembers
// no id for longer than its event. To the log a window of 0 is for ever, so it gets 1 ms.
func Rules(e *policy.Effective) eventlog.Retention {
	return eventlog.Retention{
		TTLMS:          wholeMS(e.Retention.TTL),
		DedupeWindowMS: max(wholeMS(e.Dedupe.Window), 1),
	}
}

// wholeMS rounds up, so that a short duration does not become 0, which is for ever.
func wholeMS(d time.Duration) int64 {
	ms := d.Milliseconds()
	if d%time.Millisecond > 0 {
		ms++
	}
	return ms
}

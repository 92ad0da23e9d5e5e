// Package retention removes what topics no longer keep: what has expired, what
// is more than a topic may hold, and what compaction finds superseded. It goes
// by bounded batches with rests in between, so that it never gets in the way of
// publishes. It decides when; the log decides how, the policies what.
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

// Sweeper removes expired events, remembered ids and marks, and superseded
// events. Every field is required but Mine, Known and Clock.
type Sweeper struct {
	Log      Log
	Policies *policy.Current
	Logger   *slog.Logger
	// Interval is the pause between two rounds; above 0. Topics that keep their
	// events for ever have little to be swept: they are in every second round.
	// Every sixth asks which topics there are.
	Interval time.Duration
	// Batch is how many events, ids or marks one call removes or looks at; at
	// least 1.
	Batch int
	// Mine says whether it is for this sidecar to sweep a topic, so that those
	// on one store share the work; nil: it sweeps all. The marks go by the
	// name Marks. It may change its mind at any time, and two that sweep one
	// topic do no harm.
	Mine func(topic string) bool
	// Known says whether the policies are in force. Until then topics are left alone:
	// by other rules more might be removed, and what is gone does not come back. nil:
	// they are.
	Known func() bool
	Clock clock.Clock

	// Of Run alone.
	rounds  int
	topics  []eventlog.Topic // as listed last
	known   map[string]*known
	failing bool // the last round was incomplete
}

// known is what the last rounds have found out about a topic.
type known struct {
	compaction compaction // where the topic is compacted
	sizing     sizing     // where there is a bound on its bytes
}

// Marks stands for the marks where they are shared out like a topic; no topic
// has that name.
const Marks = "_marks"

// Bounds of the load that many sidecars put on an idle store.
const (
	idleRounds = 2
	listRounds = 6
)

// Run sweeps until ctx ends, and returns nil then. The next round repeats failed removals.
func (s *Sweeper) Run(ctx context.Context) error {
	s.known = make(map[string]*known)
	for {
		s.round(ctx)
		if !s.Clock.Sleep(ctx, s.Interval) {
			return nil
		}
	}
}

// job is one thing to do in a round. worked says that a batch was some effort
// to the log, more that there is more to do.
type job struct {
	what  string
	batch func(now time.Time) (worked, more bool, err error)
}

// round works until nothing is left to do. The jobs take turns of one batch,
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
		s.Logger.Warn("retention sweep failed; trying again, and silent until one succeeds", "failures", max(failures, 1), "first", err)
	}
	if s.failing = err != nil; s.failing {
		s.rounds = 0 // the next one is of all
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
		if !all && !bounded || !s.mine(tp.Name) || s.Known != nil && !s.Known() {
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

// policy is the topic's that is in force now. It is asked for before every
// batch: a round may be long, and what is gone does not come back.
func (s *Sweeper) policy(topic string) *policy.Effective { return s.Policies.Load().Topic(topic) }

func (s *Sweeper) mine(topic string) bool { return s.Mine == nil || s.Mine(topic) }

// Rules is a topic's policy as the log takes it, in whole milliseconds. A policy
// without a window remembers no id for longer than its event, where the log
// takes 0 for for ever.
func Rules(e *policy.Effective) eventlog.Retention {
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

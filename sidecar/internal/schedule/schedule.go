// Package schedule releases scheduled events when they are due. It decides when, by this sidecar's
// clock, and which sidecar of a store does it. The log promises that each event is released once.
// Scheduled events are stored in the log; this package does not keep them in memory.
package schedule

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-bus/sluice/internal/clock"
	"github.com/sluice-bus/sluice/internal/pause"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

const (
	// lookEvery is the longest pause between two looks at the scheduled events: another sidecar may
	// have scheduled some, or this one may have new slots.
	lookEvery = 5 * time.Second
	// clockEvery is the longest sleep before the clock is read again, since it may have been set.
	clockEvery = time.Second
	// grace is how long the sidecar that scheduled an event leaves it to the owner of its slot
	// after its time.
	grace = 50 * time.Millisecond
	// page is how many events are released at a time, and parallel of how many topics at once.
	page     = 1000
	parallel = 8
	// retryFirst and retryMost bound the pause after a release that failed.
	retryFirst = 100 * time.Millisecond
	retryMost  = 10 * time.Second
	// countShare bounds counting to one part in so many of the time.
	countShare = 100
)

// Config is what a Scheduler needs; every field but Mine, Late, Most and Clock is required.
type Config struct {
	Log eventlog.Scheduler
	// Mine reports whether this sidecar releases the events of a slot. It is safe if two sidecars
	// do. nil: it has all slots.
	Mine func(slot int) bool
	// Released is called when a partition has new events, up to seq head at least.
	Released func(topic string, partition int, head uint64)
	// Late, if set, is called with how late each event was.
	Late   func(topic string, by time.Duration)
	Logger *slog.Logger
	// CountEvery is the least pause between two counts of the scheduled events.
	CountEvery time.Duration
	// Most is about how many events of a topic may be scheduled; 0: any number.
	Most int
	// MostBytes is about how many bytes the scheduled events of a topic may have; 0: any number.
	MostBytes func(topic string) int64
	Clock     clock.Clock
}

// Task names the work of a slot, which one sidecar of a store does; see roster's Mine.
func Task(slot int) string { return "_scheduled-" + strconv.Itoa(slot) }

// Scheduler releases due events. Its methods are safe for concurrent use.
type Scheduler struct {
	cfg    Config
	wake   pause.Wake // set when earliest has come nearer
	counts atomic.Pointer[map[string]eventlog.Waiting]

	mu         sync.Mutex
	rooms      map[string]*room
	countPause time.Duration // between two counts
	earliest   int64         // when the first event scheduled here since the last look is due
	// others has for each slot of another sidecar in which events were scheduled here the time
	// until which they may be due before that sidecar looks.
	others [eventlog.SchedulerSlots]int64

	// Of Run alone.
	failing map[string]failure // topics
	away    bool               // the store did not answer
}

// failure is the state of a topic whose events could not be released.
type failure struct {
	pause time.Duration
	until int64 // in whole milliseconds, like all times of looks, so that a look at that time tries again
}

// New makes a Scheduler; Run has to follow.
func New(cfg Config) *Scheduler {
	s := &Scheduler{
		cfg: cfg, wake: pause.NewWake(), earliest: math.MaxInt64, rooms: make(map[string]*room), failing: make(map[string]failure),
	}
	s.counts.Store(new(map[string]eventlog.Waiting))
	return s
}

// Accepted records that an event was scheduled here.
func (s *Scheduler) Accepted(topic string, bytes int, due int64) {
	slot := eventlog.SlotOf(topic)
	mine := s.mine(slot)
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.rooms[topic]; r != nil {
		r.reserved, r.stored = r.reserved.Minus(one(bytes)), r.stored.Plus(one(bytes))
	}
	if !mine {
		if due > s.cfg.Clock.Now().Add(2*lookEvery).UnixMilli() {
			return // the owner of the slot looks before that
		}
		due += grace.Milliseconds()
		s.others[slot] = max(s.others[slot], due)
	}
	if due >= s.earliest {
		return
	}
	s.earliest = due
	s.wake.Set()
}

func (s *Scheduler) mine(slot int) bool { return s.cfg.Mine == nil || s.cfg.Mine(slot) }

// slots are those of this sidecar; nil: all.
func (s *Scheduler) slots() []int {
	if s.cfg.Mine == nil {
		return nil
	}
	own := []int{}
	for slot := range eventlog.SchedulerSlots {
		if s.cfg.Mine(slot) {
			own = append(own, slot)
		}
	}
	return own
}

// Counts is what is scheduled of each topic, in the slots of this sidecar, as they were
// counted last.
func (s *Scheduler) Counts() map[string]eventlog.Waiting {
	return *s.counts.Load()
}

// Run releases due events until ctx ends. Then it returns nil.
func (s *Scheduler) Run(ctx context.Context) error {
	var counting sync.WaitGroup
	defer counting.Wait()
	counting.Go(func() { s.count(ctx) })
	for s.sleepUntil(ctx, s.look(ctx)) {
	}
	return nil
}

// sleepUntil waits until a time by the clock, or until an event scheduled since is due, and for
// lookEvery at most: the clock may have been ahead and been set back.
func (s *Scheduler) sleepUntil(ctx context.Context, next int64) bool {
	began := s.cfg.Clock.Now()
	for {
		s.mu.Lock()
		until := min(next, s.earliest)
		s.mu.Unlock()
		now := s.cfg.Clock.Now()
		if now.UnixMilli() >= until || now.Sub(began) >= lookEvery {
			return ctx.Err() == nil
		}
		if !s.cfg.Clock.SleepUnless(ctx, min(time.UnixMilli(until).Sub(now), clockEvery), s.wake) {
			return false
		}
	}
}

// look releases all due events, and returns when to look again.
func (s *Scheduler) look(ctx context.Context) (next int64) {
	now := s.cfg.Clock.Now()
	next = now.Add(lookEvery).UnixMilli()
	var others []int
	s.mu.Lock()
	s.earliest = math.MaxInt64
	for slot, until := range s.others {
		if until+lookEvery.Milliseconds() >= now.UnixMilli() && !s.mine(slot) {
			others = append(others, slot)
		}
	}
	s.mu.Unlock()
	first, err := s.releaseDue(ctx, s.slots(), 0)
	next = min(next, first)
	if err == nil && len(others) > 0 {
		first, err = s.releaseDue(ctx, others, grace)
		next = min(next, first)
	}
	if err != nil && ctx.Err() == nil {
		if !s.away {
			s.cfg.Logger.Warn("scheduled events cannot be released; trying again, and silent until it works", "error", err)
		}
		next = s.cfg.Clock.Now().Add(clockEvery).UnixMilli()
	}
	s.away = err != nil
	return next
}

// releaseDue releases the events of slots that have been due for a time ago, and returns when more
// will be due. It returns only errors that concern all topics.
func (s *Scheduler) releaseDue(ctx context.Context, slots []int, ago time.Duration) (next int64, err error) {
	next = math.MaxInt64
	if slots != nil && len(slots) == 0 {
		return next, nil
	}
	var last *eventlog.Scheduled
	for {
		now := s.cfg.Clock.Now()
		due, then, err := s.cfg.Log.Due(ctx, slots, last, now.Add(-ago).UnixMilli(), page)
		if err != nil {
			return next, err
		}
		again, err := s.releasePage(ctx, due, now)
		if next = min(next, again); err != nil {
			return next, err
		}
		if len(due) < page {
			if then != 0 {
				next = min(next, then+ago.Milliseconds())
			}
			return next, nil
		}
		last = &due[len(due)-1]
	}
}

// releasePage releases due events, in order within a topic, and returns when to try the failed ones
// again.
func (s *Scheduler) releasePage(ctx context.Context, due []eventlog.Scheduled, now time.Time) (next int64, err error) {
	next = math.MaxInt64
	byTopic := map[string][]eventlog.Scheduled{}
	for _, w := range due {
		if f, failing := s.failing[w.Topic]; failing && now.UnixMilli() < f.until {
			next = min(next, f.until)
			continue
		}
		byTopic[w.Topic] = append(byTopic[w.Topic], w)
	}
	var mu sync.Mutex
	var work errgroup.Group
	work.SetLimit(parallel)
	for topic, list := range byTopic {
		work.Go(func() error {
			failed := s.releaseTopic(ctx, topic, list, now)
			mu.Lock()
			defer mu.Unlock()
			if failed == nil {
				delete(s.failing, topic)
				return nil
			}
			if errors.Is(failed, eventlog.ErrUnavailable) || ctx.Err() != nil {
				return failed
			}
			f := s.failing[topic]
			if f.pause == 0 {
				s.cfg.Logger.Error("scheduled events of a topic cannot be released; trying again", "topic", topic, "error", failed)
			}
			f.pause = min(max(2*f.pause, retryFirst), retryMost)
			f.until = s.cfg.Clock.Now().Add(f.pause).UnixMilli()
			s.failing[topic] = f
			next = min(next, f.until)
			return nil
		})
	}
	err = work.Wait()
	return next, err
}

// releaseTopic releases events of one topic. It returns the error of the first event that is still
// scheduled.
func (s *Scheduler) releaseTopic(ctx context.Context, topic string, due []eventlog.Scheduled, now time.Time) (failed error) {
	heads, released := map[int]uint64{}, int64(0)
	outs := s.cfg.Log.Release(ctx, topic, due, now.UnixMilli())
	took := s.cfg.Clock.Now()
	for i, out := range outs {
		switch {
		case errors.Is(out.Err, eventlog.ErrNotFound): // it was cancelled, or went with its topic
		case out.Err != nil:
			if failed == nil {
				failed = out.Err
			}
		case !out.Duplicate:
			released++
			heads[out.Partition] = max(heads[out.Partition], out.Seq)
			if s.cfg.Late != nil {
				s.cfg.Late(topic, took.Sub(time.UnixMilli(due[i].DeliverAt)))
			}
		}
	}
	s.change(topic, func(r *room) { r.released(released) })
	for p, head := range heads {
		s.cfg.Released(topic, p, head)
	}
	return failed
}

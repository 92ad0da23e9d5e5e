package schedule

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-bus/sluice/internal/clock"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/test/clocktest"
)

// fakeLog is the log that several schedulers share: the scheduled events, and when each event came
// into the log.
type fakeLog struct {
	eventlog.Scheduler

	mu      sync.Mutex
	waiting map[string]eventlog.Scheduled
	came    map[string]int64 // ts by id
	at      map[string]time.Time
	order   []string
	looks   int
	counted int // calls of CountScheduled
	away    bool
	refuses map[string]bool // topics
	races   int             // releases of what was released already
	takes   time.Duration   // for a call of Due
}

func newLog() *fakeLog {
	return &fakeLog{waiting: map[string]eventlog.Scheduled{}, came: map[string]int64{}, at: map[string]time.Time{}, refuses: map[string]bool{}}
}

func (l *fakeLog) schedule(topic, id string, due time.Time) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting[id] = eventlog.Scheduled{Topic: topic, ID: id, DeliverAt: due.UnixMilli()}
	return due.UnixMilli()
}

func (l *fakeLog) set(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
}

func (l *fakeLog) Due(_ context.Context, slots []int, last *eventlog.Scheduled, now int64, limit int) (due []eventlog.Scheduled, next int64,
	err error) {
	time.Sleep(l.takes)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.looks++; l.away {
		return nil, 0, eventlog.ErrUnavailable
	}
	compare := func(a, b eventlog.Scheduled) int {
		return cmp.Or(cmp.Compare(a.DeliverAt, b.DeliverAt), cmp.Compare(a.ID, b.ID))
	}
	for _, w := range l.waiting {
		switch {
		case slots != nil && !slices.Contains(slots, eventlog.SlotOf(w.Topic)), last != nil && compare(w, *last) <= 0:
		case w.DeliverAt <= now:
			due = append(due, w)
		case next == 0 || w.DeliverAt < next:
			next = w.DeliverAt
		}
	}
	slices.SortFunc(due, compare)
	if len(due) >= limit {
		return due[:limit], 0, nil
	}
	return due, next, nil
}

func (l *fakeLog) Release(_ context.Context, topic string, due []eventlog.Scheduled, now int64) []eventlog.Outcome {
	time.Sleep(5 * time.Millisecond)
	l.mu.Lock()
	defer l.mu.Unlock()
	outs := make([]eventlog.Outcome, len(due))
	for i, w := range due {
		switch _, there := l.waiting[w.ID]; {
		case l.away:
			outs[i].Err = eventlog.ErrUnavailable
		case l.refuses[topic]:
			outs[i].Err = &eventlog.ConcernError{Topic: topic, Concern: "w:3"}
		case !there:
			l.races++
			outs[i].Err = eventlog.ErrNotFound
		default:
			delete(l.waiting, w.ID)
			l.came[w.ID], l.at[w.ID] = now, time.Now()
			l.order = append(l.order, w.ID)
			outs[i] = eventlog.Outcome{Seq: uint64(len(l.order)), TS: now}
		}
	}
	return outs
}

func (l *fakeLog) CountSlots(context.Context, []int) (map[string]eventlog.Waiting, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	counts := map[string]eventlog.Waiting{}
	for _, w := range l.waiting {
		counts[w.Topic] = counts[w.Topic].Plus(one(10))
	}
	return counts, nil
}

func (l *fakeLog) CountScheduled(ctx context.Context, topic string) (eventlog.Waiting, error) {
	counts, err := l.CountSlots(ctx, nil)
	l.set(func() { l.counted++ })
	return counts[topic], err
}

// start runs a scheduler until stop.
func start(l *fakeLog, mine func(int) bool, c clock.Clock) (s *Scheduler, stop func()) {
	s = New(Config{Log: l, Mine: mine, Released: func(string, int, uint64) {}, Logger: slog.New(slog.DiscardHandler), CountEvery: time.Second,
		Most: 1 << 30, MostBytes: func(string) int64 { return 0 }, Clock: c})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	return s, func() {
		cancel()
		<-done
	}
}

// late fails unless all of these events came, none of them early and none later than by that.
func late(t *testing.T, l *fakeLog, due map[string]int64, most time.Duration) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, at := range due {
		ts, came := l.came[id]
		if by := l.at[id].Sub(time.UnixMilli(at)); !came || ts < at || by < 0 || by > most {
			t.Errorf("%s came %t, with ts %d, due at %d, late by %v", id, came, ts, at, by)
		}
	}
}

func TestReleasesWhatIsDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, due := newLog(), map[string]int64{}
		l.schedule("t", "before", time.Now().Add(-time.Hour))
		s, stop := start(l, nil, clock.System())
		defer stop()
		base := time.Now()
		for i := range 3000 {
			id := fmt.Sprintf("e%04d", i)
			due[id] = l.schedule("t", id, base.Add(time.Duration(100+i)*time.Millisecond))
			s.Accepted("t", 10, due[id])
		}
		due["far"] = l.schedule("t", "far", base.Add(time.Hour))
		s.Accepted("t", 10, due["far"])
		time.Sleep(10 * time.Second)
		if n := s.Counts()["t"].Events; n != 1 {
			t.Errorf("counted %d", n)
		}
		time.Sleep(time.Hour)
		late(t, l, due, 100*time.Millisecond)
		l.set(func() {
			if !slices.IsSorted(l.order[1:len(l.order)-1]) || l.order[0] != "before" {
				t.Errorf("they came in the order %q…", l.order[:10])
			}
		})
	})
}

// A store that is away, and a topic that does not take its events, hold up nothing else, and lose
// nothing.
func TestStoreAndTopicsThatFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, due := newLog(), map[string]int64{}
		s, stop := start(l, nil, clock.System())
		defer stop()
		l.set(func() { l.refuses["bad"] = true })
		for i := range 2500 {
			l.schedule("bad", fmt.Sprint("bad", i), time.Now().Add(time.Second))
		}
		for i := range 100 {
			id := fmt.Sprint("good", i)
			due[id] = l.schedule("good", id, time.Now().Add(time.Second+time.Duration(i)*100*time.Millisecond))
		}
		s.Accepted("good", 10, time.Now().Add(time.Second).UnixMilli())
		time.Sleep(30 * time.Second)
		late(t, l, due, 200*time.Millisecond)
		l.set(func() { l.refuses["bad"], l.away, l.looks = false, true, 0 })
		time.Sleep(time.Minute)
		l.set(func() {
			if l.away = false; l.looks > 120 {
				t.Errorf("looked %d times in a minute in which the store was away", l.looks)
			}
		})
		time.Sleep(15 * time.Second)
		l.set(func() {
			if len(l.came) != 2600 || len(l.waiting) != 0 {
				t.Errorf("%d events came, %d wait", len(l.came), len(l.waiting))
			}
		})
	})
}

// The store is looked at once for each time that a topic is tried again, also by a clock between
// two milliseconds: a look a fraction before that time would be followed by another at once, until
// it has come.
func TestTopicThatFailsIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(300 * time.Microsecond)
		l := newLog()
		l.takes, l.refuses["bad"] = 10*time.Microsecond, true
		l.schedule("bad", "e", time.Now())
		_, stop := start(l, nil, clock.System())
		defer stop()
		time.Sleep(time.Minute)
		l.set(func() {
			if l.looks > 40 {
				t.Errorf("looked %d times in a minute", l.looks)
			}
		})
	})
}

// setBack is a clock whose wall time can be set.
type setBack struct {
	mu sync.Mutex
	by time.Duration
}

func (c *setBack) set(by time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.by = by
}

func (c *setBack) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.by)
}

func (c *setBack) AfterFunc(d time.Duration, f func()) clock.Timer { return time.AfterFunc(d, f) }

// By a clock that is set back, or forward, while an event waits, it is not early, and not late by
// more than a second.
func TestClockIsSet(t *testing.T) {
	for _, by := range []time.Duration{-time.Minute, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			wall := &setBack{}
			l := newLog()
			s, stop := start(l, nil, clock.New(wall))
			defer stop()
			at := l.schedule("t", "e", wall.Now().Add(90*time.Second))
			s.Accepted("t", 10, at)
			time.Sleep(30 * time.Second)
			wall.set(by)
			time.Sleep(4 * time.Minute)
			l.set(func() {
				ts, came := l.came["e"]
				if by := l.at["e"].Add(by).Sub(time.UnixMilli(at)); !came || ts < at || by < 0 || by > clockEvery+100*time.Millisecond {
					t.Errorf("came %t with ts %d, due at %d, late by %v", came, ts, at, by)
				}
			})
		})
	}
}

// A look while the clock is ahead puts the next one off by no more than other looks do, once the
// clock is set right.
func TestClockWasAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clocktest.New()
		c.SetWall(10 * time.Minute)
		l := newLog()
		_, stop := start(l, nil, c.Clock())
		defer stop()
		time.Sleep(time.Second)
		c.SetWall(0)
		due := map[string]int64{"e": l.schedule("t", "e", time.Now().Add(10*time.Second))} // by another sidecar
		time.Sleep(time.Minute)
		late(t, l, due, lookEvery+clockEvery)
	})
}

// Several sidecars share out the slots. Each event comes in time through any sidecar, hardly any is
// released twice at a time, and events of a killed sidecar come once another has its slots.
func TestSidecarsShareTheSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, due := newLog(), map[string]int64{}
		var mu sync.Mutex
		alive := 3
		mine := func(n int) func(int) bool {
			return func(slot int) bool {
				mu.Lock()
				defer mu.Unlock()
				return slot%alive == n
			}
		}
		var all []*Scheduler
		var stops []func()
		for n := range 3 {
			s, stop := start(l, mine(n), clock.System())
			all, stops = append(all, s), append(stops, stop)
		}
		for i := range 600 {
			topic, id := fmt.Sprint("t", i%40), fmt.Sprint("e", i)
			due[id] = l.schedule(topic, id, time.Now().Add(time.Duration(i%7)*3*time.Second+200*time.Millisecond))
			all[i%3].Accepted(topic, 10, due[id])
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(30 * time.Second)
		late(t, l, due, 100*time.Millisecond)
		l.set(func() {
			if l.races > 30 {
				t.Errorf("%d releases of what others had released", l.races)
			}
		})
		clear(due)
		for i := range 100 {
			topic, id := fmt.Sprint("t", i%40), fmt.Sprint("k", i)
			due[id] = l.schedule(topic, id, time.Now().Add(time.Duration(i)*50*time.Millisecond))
			all[2].Accepted(topic, 10, due[id])
		}
		stops[2]() // as if it was killed
		time.Sleep(10 * time.Second)
		mu.Lock()
		alive = 2 // which the others see by its lease
		mu.Unlock()
		time.Sleep(lookEvery + time.Second)
		late(t, l, due, 10*time.Second+lookEvery+time.Second)
		stops[0]()
		stops[1]()
	})
}

package wakeup_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/tail"
	"github.com/sluice-bus/sluice/sidecar/internal/wakeup"
)

// fakeLog is a store of heads whose signals the test sends.
type fakeLog struct {
	eventlog.Signals
	wanted  eventlog.Topics
	signals chan eventlog.Signal
	missed  chan []string // topics of which some were missed

	mu    sync.Mutex
	heads map[string][]uint64
	asked int // calls of Ahead
	err   error
}

func (l *fakeLog) Follow(ctx context.Context, wanted eventlog.Topics, heard func(eventlog.Signal, []string)) error {
	l.mu.Lock()
	l.wanted = wanted
	l.mu.Unlock()
	for {
		select {
		case s := <-l.signals:
			heard(s, nil)
		case topics := <-l.missed:
			heard(eventlog.Signal{}, topics)
		case <-ctx.Done():
			return nil
		}
	}
}

func (l *fakeLog) Extents(_ context.Context, topic string) (xs []eventlog.Extent, _ error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, head := range l.heads[topic] {
		xs = append(xs, eventlog.Extent{First: 1, Head: head})
	}
	return xs, l.err
}

func (l *fakeLog) Ahead(_ context.Context, known []eventlog.Hint) (ahead []eventlog.Hint, _ error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked++
	for _, k := range known {
		if head := l.heads[k.Topic][k.Partition]; head > k.Head {
			ahead = append(ahead, eventlog.Hint{Topic: k.Topic, Partition: k.Partition, Head: head})
		}
	}
	return ahead, l.err
}

func (l *fakeLog) set(topic string, heads ...uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.heads[topic] = heads
}

// bench runs a Waker on a fakeLog, and counts how often the one watch of topic "a" is woken.
func bench(t *testing.T, run func(log *fakeLog, watch *tail.Watch, woken func() int)) {
	synctest.Test(t, func(t *testing.T) {
		log := &fakeLog{signals: make(chan eventlog.Signal), missed: make(chan []string), heads: map[string][]uint64{"a": {0, 0}}}
		tails := tail.New(tail.DefaultBounds())
		var mu sync.Mutex
		n := 0
		watch := tails.Watch("a", func() {
			mu.Lock()
			n++
			mu.Unlock()
		})
		defer watch.Close()
		w := wakeup.New(wakeup.Config{Log: log, Tails: tails, Unread: []string{"_unread"}, Logger: slog.New(slog.DiscardHandler)})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- w.Run(ctx) }()
		run(log, watch, func() int {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			return n
		})
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run = %v", err)
		}
	})
}

func TestWantedTopics(t *testing.T) {
	bench(t, func(log *fakeLog, watch *tail.Watch, woken func() int) {
		woken()
		log.mu.Lock()
		defer log.mu.Unlock()
		names, changed := log.wanted()
		if slices.Sort(names); !slices.Equal(names, []string{"_unread", "a"}) {
			t.Errorf("signals are wanted of %q", names)
		}
		watch.Close()
		<-changed
		if names, _ = log.wanted(); !slices.Equal(names, []string{"_unread"}) {
			t.Errorf("signals are wanted of %q, with no reader", names)
		}
	})
}

func TestASignalWakes(t *testing.T) {
	bench(t, func(log *fakeLog, watch *tail.Watch, woken func() int) {
		log.signals <- eventlog.Signal{Appended: []eventlog.Hint{{Topic: "a", Partition: 1, Head: 3}, {Topic: "b", Partition: 0, Head: 9}}}
		if n := woken(); n != 1 || watch.Head(1) != 3 || watch.Head(0) != 0 {
			t.Errorf("woken %d times; heads %d and %d, want 0 and 3", n, watch.Head(0), watch.Head(1))
		}
		log.signals <- eventlog.Signal{Appended: []eventlog.Hint{{Topic: "a", Partition: 1, Head: 2}}} // late
		if n := woken(); n != 1 || watch.Head(1) != 3 {
			t.Errorf("a late signal: woken %d times, head %d", n, watch.Head(1))
		}
	})
}

// An event whose signal was lost is found soon where others were heard, and after some time in any
// case.
func TestALostSignal(t *testing.T) {
	for name, c := range map[string]struct {
		before func(*fakeLog, *tail.Watch)
		within time.Duration
	}{
		"while it is quiet": {func(*fakeLog, *tail.Watch) {}, 15 * time.Second},
		"after a signal": {func(l *fakeLog, _ *tail.Watch) {
			l.signals <- eventlog.Signal{Appended: []eventlog.Hint{{Topic: "a", Head: 1}}}
		}, 5 * time.Second},
		"after a lost one": {func(l *fakeLog, w *tail.Watch) {
			for l.set("a", 1, 0); w.Head(0) != 1; {
				time.Sleep(100 * time.Millisecond)
			}
		}, 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			bench(t, func(log *fakeLog, watch *tail.Watch, woken func() int) {
				time.Sleep(20 * time.Minute)
				c.before(log, watch)
				before := woken()
				log.set("a", 1, 7)
				time.Sleep(c.within)
				if n := woken(); n <= before || watch.Head(1) != 7 {
					t.Errorf("woken %d times more; head %d, want 7", n-before, watch.Head(1))
				}
			})
		})
	}
}

func TestTheLogIsAskedSeldomWhileItIsQuiet(t *testing.T) {
	bench(t, func(log *fakeLog, _ *tail.Watch, _ func() int) {
		time.Sleep(time.Hour)
		log.mu.Lock()
		defer log.mu.Unlock()
		if most := int(time.Hour / (11 * time.Second)); log.asked > most {
			t.Errorf("asked %d times in an hour, want %d at most", log.asked, most)
		}
	})
}

func TestTheLogIsAskedAtOnce(t *testing.T) {
	for name, signal := range map[string]func(*fakeLog){
		"after a gap":           func(l *fakeLog) { l.missed <- []string{"a"} },
		"for an unknown number": func(l *fakeLog) { l.signals <- eventlog.Signal{Appended: []eventlog.Hint{{Topic: "a"}}} },
	} {
		t.Run(name, func(t *testing.T) {
			bench(t, func(log *fakeLog, watch *tail.Watch, woken func() int) {
				log.set("a", 4, 0)
				signal(log)
				if woken() == 0 || watch.Head(0) != 4 {
					t.Errorf("head %d, want 4", watch.Head(0))
				}
			})
		})
	}
}

func TestAFailingLogIsAskedAgain(t *testing.T) {
	bench(t, func(log *fakeLog, watch *tail.Watch, woken func() int) {
		log.mu.Lock()
		log.err = errors.New("down")
		log.mu.Unlock()
		time.Sleep(30 * time.Second)
		log.mu.Lock()
		log.err = nil
		log.mu.Unlock()
		log.set("a", 1, 1)
		time.Sleep(10 * time.Second)
		if woken() == 0 || watch.Head(0) != 1 || watch.Head(1) != 1 {
			t.Error("not woken once the log is back")
		}
	})
}

func TestOthersAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &fakeLog{signals: make(chan eventlog.Signal), missed: make(chan []string), heads: map[string][]uint64{}}
		var moved []eventlog.GroupName
		var doubts []string
		nodes := 0
		w := wakeup.New(wakeup.Config{
			Log: log, Tails: tail.New(tail.DefaultBounds()), Logger: slog.New(slog.DiscardHandler),
			Moved:      func(gs []eventlog.GroupName) { moved = append(moved, gs...) },
			MaybeMoved: func(topics []string) { doubts = append(doubts, topics...) },
			Nodes:      func() { nodes++ },
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- w.Run(ctx) }()
		group := eventlog.GroupName{Topic: "a", Group: "g"}
		log.signals <- eventlog.Signal{Moved: []eventlog.GroupName{group}}
		log.signals <- eventlog.Signal{Nodes: []string{"a"}}
		log.missed <- []string{"b"} // nodes may have come and gone meanwhile
		synctest.Wait()
		cancel()
		<-ended
		if !slices.Equal(moved, []eventlog.GroupName{group}) || nodes != 2 {
			t.Errorf("moved %v, nodes %d times; want the group, and 2", moved, nodes)
		}
		if !slices.Equal(doubts, []string{"b"}) {
			t.Errorf("outdated %v after one gap", doubts)
		}
		if log.asked != 0 {
			t.Errorf("the log was asked %d times, and nobody watches", log.asked)
		}
	})
}

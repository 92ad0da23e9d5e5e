// Package wakeup wakes readers when another sidecar on the same store has appended events that they
// wait for: by that sidecar's signals, and, since any of them may be lost, by asking the log from
// time to time.
package wakeup

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-bus/sluice/internal/clock"
	"github.com/sluice-bus/sluice/internal/pause"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/tail"
)

// Log is the part of a shared log that a Waker uses.
type Log interface {
	eventlog.Signals
	Extents(ctx context.Context, topic string) ([]eventlog.Extent, error)
}

// Config configures a Waker. Moved, MaybeMoved and Nodes may be nil.
type Config struct {
	Log   Log
	Tails *tail.Tails
	// Moved is called with groups whose epochs another sidecar may have taken from this one.
	Moved func([]eventlog.GroupName)
	// MaybeMoved is called with topics of which such signals may have been lost.
	MaybeMoved func(topics []string)
	// Erased, if set, is called with topics of which events were erased.
	Erased func(topics []string)
	// Nodes is called when other sidecars came, went or changed their groups.
	Nodes func()
	// Unread are topics without readers whose signals the Waker follows nevertheless.
	Unread []string
	Logger *slog.Logger
	Clock  clock.Clock
}

const (
	// interval is the least time between two queries of the log, which find events whose signals
	// were lost. A query is cheap. If a signal is lost shortly after others were heard, as when
	// their sender dies, interval bounds the delay of its events.
	interval = 5 * time.Second
	// quietIntervals is the number of intervals after which the Waker asks the log even if it has
	// heard nothing. It bounds the delay of any event.
	quietIntervals = 3
)

// Waker follows the signals of the other sidecars.
type Waker struct {
	cfg   Config
	check pause.Wake  // holds one token: ask the log at once
	due   atomic.Bool // a signal was heard or missed since the last query

	// topics are the watched topics in the last query, with their heads then; only ask uses it.
	topics map[string][]uint64
}

// New makes a Waker.
func New(cfg Config) *Waker {
	return &Waker{cfg: cfg, check: pause.NewWake(), topics: make(map[string][]uint64)}
}

// Run follows until ctx ends, and returns nil then.
func (w *Waker) Run(ctx context.Context) error {
	var both errgroup.Group
	both.Go(func() error { return w.cfg.Log.Follow(ctx, w.wanted, w.heard) })
	both.Go(func() error { return w.ask(ctx) })
	return both.Wait()
}

// wanted are the topics whose signals the Waker follows.
func (w *Waker) wanted() (names []string, changed <-chan struct{}) {
	names, changed = w.cfg.Tails.Topics()
	return append(names, w.cfg.Unread...), changed
}

func (w *Waker) heard(s eventlog.Signal, missed []string) {
	unclear := len(missed) > 0
	if unclear || len(s.Appended) > 0 {
		w.due.Store(true)
	}
	for _, h := range s.Appended {
		if h.Head == 0 {
			unclear = true
			continue
		}
		w.cfg.Tails.Heard(h.Topic, h.Partition, h.Head)
	}
	if unclear {
		w.check.Set()
	}
	if len(s.Moved) > 0 && w.cfg.Moved != nil {
		w.cfg.Moved(s.Moved)
	}
	if len(s.Erased) > 0 && w.cfg.Erased != nil {
		w.cfg.Erased(s.Erased)
	}
	if len(missed) > 0 && w.cfg.MaybeMoved != nil {
		w.cfg.MaybeMoved(missed)
	}
	if len(s.Nodes)+len(missed) > 0 && w.cfg.Nodes != nil {
		w.cfg.Nodes()
	}
}

// ask asks the log from time to time, and when a signal says so.
func (w *Waker) ask(ctx context.Context) error {
	failing := false
	for quiet := 1; ; quiet++ {
		wait := interval - rand.N(interval/4) // sidecars that started together drift apart
		if !w.cfg.Clock.SleepUnless(ctx, wait, w.check) {
			return nil
		}
		if !w.due.Swap(false) && quiet < quietIntervals {
			continue
		}
		quiet = 0
		err := w.askOnce(ctx)
		if err != nil && !failing && ctx.Err() == nil {
			w.cfg.Logger.Warn("cannot ask the log for events of other sidecars; trying again", "error", err)
		}
		if failing = err != nil; failing {
			w.due.Store(true)
		}
	}
}

// askOnce looks for events above the heads that readers know.
func (w *Waker) askOnce(ctx context.Context) error {
	known, err := w.known(ctx)
	if err != nil || len(known) == 0 {
		return err
	}
	ahead, err := w.cfg.Log.Ahead(ctx, known)
	if len(ahead) > 0 {
		w.due.Store(true) // one signal was lost, and maybe more
	}
	for _, h := range ahead {
		w.cfg.Tails.Heard(h.Topic, h.Partition, h.Head)
	}
	return err
}

// known are the heads of all watched partitions, as far as this sidecar knows. It asks for the
// extents of a topic that is new here once.
func (w *Waker) known(ctx context.Context) ([]eventlog.Hint, error) {
	watched := w.cfg.Tails.Watched()
	for topic := range w.topics {
		if _, still := watched[topic]; !still {
			delete(w.topics, topic)
		}
	}
	var known []eventlog.Hint
	for topic, announced := range watched {
		heads, asked := w.topics[topic]
		if !asked {
			extents, err := w.cfg.Log.Extents(ctx, topic)
			if err != nil {
				return nil, err
			}
			for p, x := range extents {
				heads = append(heads, x.Head)
				w.cfg.Tails.Heard(topic, p, x.Head)
			}
			w.topics[topic] = heads
		}
		for p, head := range heads {
			known = append(known, eventlog.Hint{Topic: topic, Partition: p, Head: max(head, announced[p])})
		}
	}
	return known, nil
}

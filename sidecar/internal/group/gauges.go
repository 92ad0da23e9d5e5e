package group

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/group/deadletter"
	"github.com/sluice-bus/sluice/sidecar/internal/telemetry"
)

// gaugesInterval is the shortest time between two queries of the store, and gaugesPerDocument the
// time for each document that a query of groups reads, and for each query of dead letters. So the
// gauges of a large fleet's groups may be older.
const (
	gaugesInterval    = 5 * time.Second
	gaugesPerDocument = 5 * time.Millisecond
)

// polled has the last answer of a store that may be slow, or away.
type polled[T any] struct{ last atomic.Pointer[[]T] }

// Get returns the last answer.
func (p *polled[T]) Get() []T {
	if last := p.last.Load(); last != nil {
		return *last
	}
	return nil
}

// drop leaves entries out until the next answer.
func (p *polled[T]) drop(out func(T) bool) {
	if last := p.last.Load(); last != nil {
		rest := slices.DeleteFunc(slices.Clone(*last), out)
		p.last.CompareAndSwap(last, &rest) // else there is a newer answer
	}
}

// Gauges are the latest Stats of a Manager.
type Gauges struct{ polled[telemetry.GroupStat] }

// Run asks until ctx ends, and returns nil then.
func (g *Gauges) Run(ctx context.Context, m *Manager) error {
	for {
		stats, read := m.Stats()
		g.last.Store(&stats)
		if !m.cfg.Clock.Sleep(ctx, max(gaugesInterval, time.Duration(read)*gaugesPerDocument)) {
			return nil
		}
	}
}

// statsOfDead is the task of one sidecar of a store: it counts dead letters.
const statsOfDead = "dead letter statistics"

// DeadStats are the dead letters of all groups, as they were counted last.
type DeadStats struct{ polled[telemetry.DeadStat] }

// Forget leaves out a topic that was deleted.
func (d *DeadStats) Forget(topic string) {
	d.drop(func(s telemetry.DeadStat) bool { return s.Topic == topic })
}

// Run counts until ctx ends, and returns nil then. One sidecar of a store does it.
func (d *DeadStats) Run(ctx context.Context, m *Manager) error {
	var counter deadletter.Counter
	for {
		var stats []telemetry.DeadStat
		var reads int
		var err error
		if m.cfg.Roster.Mine(statsOfDead) {
			stats, reads, err = counter.Count(ctx, m.cfg.Log, m.cfg.Clock.Now())
		}
		if err == nil { // else the last count remains
			d.last.Store(&stats)
		}
		if !m.cfg.Clock.Sleep(ctx, max(gaugesInterval, time.Duration(reads)*gaugesPerDocument)) {
			return nil
		}
	}
}

package group

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/telemetry"
)

// gaugesInterval is the shortest time between two queries of the store, and gaugesPerDocument the
// time for each document that a query reads. So the gauges of a large fleet's groups may be older.
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

const (
	// deadStatsInterval is how often dead letters are counted.
	deadStatsInterval = time.Minute
	// deadStatsMost bounds how many dead letters of a topic are counted, and deadStatsBytes how
	// many bytes are read for that. A larger number would not matter.
	deadStatsMost  = 10_000
	deadStatsBytes = 8 << 20
	// statsOfDead is the task of one sidecar of a store: it counts dead letters.
	statsOfDead = "dead letter statistics"
)

// DeadStats are the dead letters of all topics, as they were counted last.
type DeadStats struct{ polled[telemetry.DeadStat] }

// Run counts until ctx ends, and returns nil then. One sidecar of a store does it.
func (d *DeadStats) Run(ctx context.Context, m *Manager) error {
	for {
		var stats []telemetry.DeadStat
		var err error
		if m.cfg.Roster.Mine(statsOfDead) {
			stats, err = m.deadStats(ctx)
		}
		if err == nil { // else the last count remains
			d.last.Store(&stats)
		}
		if !m.cfg.Clock.Sleep(ctx, deadStatsInterval) {
			return nil
		}
	}
}

func (m *Manager) deadStats(ctx context.Context) (stats []telemetry.DeadStat, err error) {
	topics, err := m.cfg.Log.Topics(ctx)
	if err != nil {
		return nil, err
	}
	for _, t := range topics {
		topic, is := strings.CutSuffix(t.Name, wire.DeadLetterSuffix)
		if !is {
			continue
		}
		st := telemetry.DeadStat{Topic: topic}
		size := 0
		for page, err := range eventlog.Pages(ctx, m.cfg.Log, t.Name, eventlog.ScanQuery{}, eventlog.Bounds{Events: 1000, Bytes: deadStatsBytes / 8}) {
			if err != nil {
				return nil, err
			}
			if st.Count == 0 {
				st.Oldest = time.UnixMilli(page[0].TS)
			}
			st.Count += int64(len(page))
			for _, rec := range page {
				size += rec.Size()
			}
			if st.Count >= deadStatsMost || size >= deadStatsBytes {
				break
			}
		}
		stats = append(stats, st)
	}
	return stats, nil
}

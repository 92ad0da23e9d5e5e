package group

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/telemetry"
)

// How often Gauges ask the store, if little is to be read there, and how long a
// document is worth else: the gauges of a large fleet's groups may be older.
const (
	gaugesInterval    = 5 * time.Second
	gaugesPerDocument = 5 * time.Millisecond
)

// Gauges are a Manager's Stats as they were asked for last, for a store that may
// be slow to answer, or away.
type Gauges struct {
	last atomic.Pointer[[]telemetry.GroupStat]
}

// Get is what was asked for last.
func (g *Gauges) Get() []telemetry.GroupStat {
	if last := g.last.Load(); last != nil {
		return *last
	}
	return nil
}

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

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

// polled is what was asked for last of a store that may be slow to answer, or away.
type polled[T any] struct{ last atomic.Pointer[[]T] }

// Get is what was asked for last.
func (p *polled[T]) Get() []T {
	if last := p.last.Load(); last != nil {
		return *last
	}
	return nil
}

// Gauges are a Manager's Stats as they were asked for last.
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

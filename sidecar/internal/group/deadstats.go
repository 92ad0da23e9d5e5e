package group

import (
	"context"
	"strings"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/telemetry"
)

const (
	// deadStatsInterval is how often dead letters are counted.
	deadStatsInterval = time.Minute
	// deadStatsMost is how many of a topic are counted, and deadStatsBytes how
	// much of them is read for that: many is all that more would say.
	deadStatsMost  = 10_000
	deadStatsBytes = 8 << 20
	// statsOfDead is what the sidecar has to be chosen for that counts them.
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
		if err == nil { // else what was counted last is nearer to the truth
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

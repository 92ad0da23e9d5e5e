package sidecar

import (
	"context"
	"time"

	"github.com/sluice-bus/sluice/internal/health"
	"github.com/sluice-bus/sluice/internal/setting"
	"github.com/sluice-bus/sluice/sdk/wire"
	report "github.com/sluice-bus/sluice/sidecar/internal/health"
)

// diskUnit is the size to which the free space of the disk is rounded for the control plane: it changes all the
// time.
const diskUnit = 16 << 20

// reportHealth tells the control plane how this sidecar is, until ctx ends.
func (s *Sidecar) reportHealth(ctx context.Context) error {
	started := time.Now()
	if s.policies.control.AwaitSynced(ctx) != nil { // before that the control plane does not know this sidecar
		return nil
	}
	var sources map[health.SourceName]health.Source
	groups := report.Groups{
		AckTimeout: func(topic string) time.Duration { return s.policyOf(topic).Delivery.AckTimeout },
		BlockedBy:  s.groups.BlockedBy,
	}
	return report.New(report.Config{
		Conn: s.policies.control.Conn(), NodeID: s.cfg.NodeID, InstanceSecret: s.secret, Recent: s.cfg.Recent, Logger: s.cfg.Logger,
		Refused: func() map[health.Refusal]int64 {
			all := map[health.Refusal]int64{}
			s.metrics.EachRefused(func(topic string, code wire.Code, n int64) { all[health.Refusal{Topic: topic, Code: code}] = n })
			return all
		},
		Look: func(ctx context.Context) health.State {
			now := time.Now()
			sources = s.sources(sources, now)
			return health.State{
				Process:     s.process(ctx, started),
				Groups:      groups.Look(s.store.GroupStats(s.groups), now),
				DeadLetters: report.DeadLetters(s.dead.Get()),
				Sources:     sources,
			}
		},
	}).Run(ctx)
}

// process is the state of what there is once.
func (s *Sidecar) process(ctx context.Context, started time.Time) health.Process {
	st, totals := s.store.Status(), s.metrics.Totals()
	p := health.Process{
		Started: started.UnixMilli(), StoreKind: "embedded", StoreState: string(st.State), StoreSince: st.Since.UnixMilli(),
		SpoolEvents: st.Spool.Events, SpoolBytes: st.Spool.Bytes, MemoryUsed: s.budget.Used(), MemoryBound: s.cfg.MaxBufferedBytes,
		DiskFree: st.Disk.Free / diskUnit * diskUnit, DiskLow: st.Disk.LowWater, Connections: s.gateway.Stats().Connections,
		Counts: health.Counts{Published: totals.Published, Refused: totals.Refused, Delivered: totals.Delivered, Dead: totals.Dead},
	}
	if setting.IsMongoDB(s.cfg.Store) {
		p.StoreKind = "mongodb"
	}
	if st.Err != nil {
		p.StoreError = health.Cut(st.Err.Error())
	}
	if queue := s.store.Spool(); queue != nil && st.Spool.Events > 0 {
		if oldest := queue.Oldest(ctx); !oldest.IsZero() {
			p.SpoolOldest = oldest.UnixMilli()
		}
	}
	return p
}

// sources are the states of the outboxes and captures, given those before.
func (s *Sidecar) sources(before map[health.SourceName]health.Source, now time.Time) map[health.SourceName]health.Source {
	all := map[health.SourceName]health.Source{}
	add := func(kind, name string, x health.Source) {
		key := health.SourceName{Kind: kind, Name: health.Cut(name)}
		x.State, x.FailedAt = health.Cut(x.State), before[key].FailedAt
		if x.Failed > before[key].Failed {
			x.FailedAt = now.UnixMilli()
		}
		all[key] = x
	}
	for _, o := range s.outboxes {
		x := o.Stats()
		add("outbox", x.Outbox, health.Source{State: x.State, Failing: x.State != "ok", Failed: x.Errors})
	}
	for _, c := range s.captures {
		x := c.Stats()
		add("capture", x.Capture, health.Source{State: x.State, Failing: x.Active && x.State != "ok", Stopped: x.Stopped, Failed: x.Failed})
	}
	return all
}

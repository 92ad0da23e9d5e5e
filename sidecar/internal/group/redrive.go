package group

import (
	"context"
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/group/deadletter"
	"github.com/sluice-bus/sluice/sidecar/internal/group/ownership"
)

// Redriven says that the group has new redrives: its sidecars look for them.
func (m *Manager) Redriven(topic, name string) {
	if g := m.inMemory(topic, name); g != nil {
		g.lookForRedrives()
	}
	m.cfg.notifyMoved(eventlog.GroupName{Topic: topic, Group: name})
}

// redrivesToFetch are the partitions that may have new redrives, and have room for them.
func (g *Group) redrivesToFetch(now time.Time) (parts []*partition) {
	reads := !g.stopped && !g.lapsed && g.watch != nil && len(g.members) > 0
	if !reads || g.redrivesAt.After(now) || g.dispatch.Demand() <= 0 {
		return nil
	}
	for _, p := range g.parts {
		if p.own.State == ownership.Owned && p.Redrive.Wanted() {
			parts = append(parts, p)
		}
	}
	return parts
}

// fetchRedrives reads the redrives that partitions have room for.
func (g *Group) fetchRedrives(ctx context.Context) {
	g.mu.Lock()
	parts := g.redrivesToFetch(g.cfg.Clock.Now())
	reads, generations := make([]*deadletter.Read, len(parts)), make([]int, len(parts))
	for i, p := range parts {
		reads[i], generations[i] = &deadletter.Read{Partition: p.Index, Known: p.Redrive.Begin()}, p.Generation
	}
	redrives := deadletter.Redrives{Log: g.cfg.Log, Group: g.id}
	if g.dispatch.ExactlyOnce() {
		redrives.Acked = g.marked
	}
	g.mu.Unlock()
	if len(parts) == 0 {
		return
	}
	found, err := redrives.Read(ctx, reads)
	g.mu.Lock()
	defer g.mu.Unlock()
	if err != nil {
		g.warn("read its redrives", err)
		g.redrivesAt = g.cfg.Clock.Now().Add(retryAfterFailure)
	}
	for i, p := range parts {
		if err != nil || p.Generation != generations[i] || p.own.State != ownership.Owned || len(g.members) == 0 {
			p.Redrive.Look = true
			continue
		}
		g.dispatch.AdmitRedrives(p.Partition, reads[i].Redrives, reads[i].More, found.Events, func(r eventlog.Redrive) bool {
			return found.Settled[r.Letter] || g.dispatch.ExactlyOnce() && g.saver.isMarked(found.Events[r.Letter].ID)
		}, g.cfg.Clock.Now())
	}
}

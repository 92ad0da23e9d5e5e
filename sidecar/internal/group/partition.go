package group

import (
	"context"
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/group/dispatch"
	"github.com/sluice-bus/sluice/sidecar/internal/group/ownership"
)

// abandon forgets a partition that was taken over, without saving. Settlements of its events that no
// save has are stale.
func (g *Group) abandon(p *partition) {
	g.drop(p)
	p.Restore(eventlog.Progress{}, time.Time{})
	g.disown(p)
	p.losses++
}

func (g *Group) disown(p *partition) {
	g.dispatch.Revoke(p.Partition)
	p.own.Disown()
	p.Dirty, p.unread = false, nil
	p.Withdraw()
}

// finishDrains ends the drains of partitions that are drained, or have waited for DrainWait.
func (g *Group) finishDrains(now time.Time) {
	for _, p := range g.parts {
		if p.own.State != ownership.Draining || now.Before(p.own.DrainDeadline) && p.Count(dispatch.InFlight, dispatch.DeadLettering) > 0 {
			continue
		}
		g.dispatch.GiveBackAll(p.Partition)
		g.park(p)
		g.dispatch.Revoke(p.Partition)
		p.own.State, p.Dirty = ownership.Leaving, true
	}
}

// park forgets the fetched events of a partition but keeps its progress.
func (g *Group) park(p *partition) {
	now := g.cfg.Clock.Now()
	pr := p.Progress(p.own.Life, now)
	g.drop(p)
	p.Restore(pr, now)
}

func (g *Group) drop(p *partition) {
	for _, e := range g.dispatch.Drop(p.Partition) {
		if x := g.saver.pendingDeadLetters[e]; x != nil && !x.appending {
			g.saver.deadLettered(e, false)
		}
	}
}

// epoch is the document of one partition as of now.
func (g *Group) epoch(p *partition, released bool) eventlog.Epoch {
	e := g.own.EpochOf(p.Index, p.own.Epoch, p.own.Life)
	e.Beat, e.Released, e.Progress = g.saver.beat, released, p.Progress(p.own.Life, g.cfg.Clock.Now())
	if released {
		p.Withdraw()
	} else if e.Progress.Reach = p.Reach(g.roomAhead()); e.Progress.Reach > 0 {
		e.Progress.ReachBy = p.own.Life
	}
	return e
}

// roomAhead is for how many events saves may reach ahead. A sidecar that is not announced to have members
// saves first, since Delete relies on that.
func (g *Group) roomAhead() int {
	if !g.cfg.Reach || !g.cfg.Roster.Announces(g.id) {
		return 0
	}
	return g.dispatch.Room()
}

// reachFirst has the partitions saved from which nothing may go unsaved yet, so that no event waits for
// that. It reports whether there are any.
func (g *Group) reachFirst() (found bool) {
	room := g.roomAhead()
	for _, p := range g.parts {
		if room > 0 && p.Open && !p.Reaches() {
			p.Dirty, found = true, true
		}
	}
	return found
}

// latest asks for the highest epoch of every partition; the zero value stands for those without
// one.
func (g *Group) latest(ctx context.Context) ([]eventlog.Epoch, error) {
	stored, err := g.cfg.Log.LatestEpochs(ctx, g.id.Topic, g.id.Group)
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	n := len(g.parts)
	g.mu.Unlock()
	return byPartition(stored, n), nil
}

func byPartition(stored []eventlog.Epoch, n int) []eventlog.Epoch {
	all := make([]eventlog.Epoch, n)
	for _, e := range stored {
		if e.Partition < n {
			all[e.Partition] = e
		}
	}
	return all
}

// open notes which partitions deliver.
func (g *Group) open(now time.Time) {
	st := g.cfg.Roster.Standing()
	for _, p := range g.parts {
		p.Open, p.Draining = p.own.Delivers(st, now), p.own.State == ownership.Draining
	}
}

// load makes the partitions known; none is owned yet.
func (g *Group) load(partitions int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.parts != nil {
		return
	}
	g.own.Load(partitions)
	g.dispatch.Load(partitions)
	for i, own := range g.own.Parts {
		g.parts = append(g.parts, &partition{own: own, Partition: g.dispatch.Parts[i]})
	}
}

// inUse reports whether the group has members or partitions here.
func (g *Group) inUse() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.members)+g.joining > 0 || g.own.Any()
}

// marked asks the store which events the group acked before.
func (g *Group) marked(ctx context.Context, ids []string) (map[string]bool, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	acked, err := g.cfg.Log.Marked(ctx, g.id.Topic, g.id.Group, ids, g.cfg.Clock.Now().UnixMilli())
	if err != nil {
		return nil, err
	}
	marked := map[string]bool{}
	for i, id := range ids {
		marked[id] = acked[i]
	}
	return marked, nil
}

// retune adapts the limits to the policy, and to the partitions that are owned here.
func (g *Group) retune(now time.Time) {
	g.dispatch.Retune(g.cfg.Policy(g.id.Topic), g.own.Owned(), len(g.parts), now)
}

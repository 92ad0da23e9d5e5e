package group

import (
	"errors"
	"fmt"
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/roster"
)

// ownership is what this sidecar has of a group's partition; doc.go draws it.
type ownership uint8

const (
	foreign  ownership = iota // somebody else's, or nobody's
	owned                     // delivered from, while the roster is valid
	draining                  // somebody else is to have it: nothing new is delivered
	leaving                   // drained: the next save says that it is released
)

// DrainWait is how long a partition that is to go elsewhere waits for what its
// members have in flight; what is left then goes back without counting.
const DrainWait = 3 * time.Second

// errTakenOver answers what was settled too late: the partition was taken over
// before it was saved.
var errTakenOver = fmt.Errorf("another sidecar has taken over: %w", errors.Join(eventlog.ErrFenced, eventlog.ErrUnavailable))

// delivers reports whether events of the partition may be handed out at now.
func (p *partition) delivers(st *roster.Standing, now time.Time) bool {
	return p.own == owned && p.life == st.ID && st.Valid(now)
}

// adopt begins to own a partition whose epoch was taken.
func (g *Group) adopt(p *partition, e eventlog.Epoch, head uint64) {
	p.own, p.epoch, p.life, p.dirty = owned, e.Number, e.Owner, false
	p.Head = max(p.Head, head)
	now := g.cfg.Clock.Now()
	p.restore(inherited(e.Progress, g.cfg.Roster.View().Ended, now), now)
	g.dispatch.assignDue = true
}

// renew goes on owning a partition in a later life: since this sidecar has had
// the epoch before too, nobody else can have had the partition in between.
func (p *partition) renew(number uint64, life string) {
	p.epoch, p.life, p.dirty = number, life, true
}

// abandon forgets a partition that was taken over, without saving. It returns
// who waits for progress that is lost with it.
func (g *Group) abandon(p *partition) (waiters []func(error)) {
	g.drop(p)
	if p.dirty {
		waiters, g.saver.waiters = g.saver.waiters, nil
	}
	p.restore(eventlog.Progress{}, time.Time{})
	g.disown(p)
	return waiters
}

// disown ends the ownership.
func (g *Group) disown(p *partition) {
	g.dispatch.revoke(p)
	p.own, p.epoch, p.life, p.dirty = foreign, 0, "", false
}

// drain begins to give a partition up.
func (g *Group) drain(p *partition, now time.Time) {
	p.own, p.drainDue = draining, now.Add(DrainWait)
}

// finishDrains takes off the partitions that are drained, or have waited for
// long enough.
func (g *Group) finishDrains(now time.Time) {
	for _, p := range g.parts {
		if p.own != draining || now.Before(p.drainDue) && p.busy() {
			continue
		}
		for e := range p.all() {
			if e.state == inflight {
				g.dispatch.giveBack(e)
			}
		}
		g.park(p)
		g.dispatch.revoke(p)
		p.own, p.dirty = leaving, true
	}
}

// busy reports whether something of the partition is in flight, or on its way
// to the dead letter topic.
func (p *partition) busy() bool {
	for e := range p.all() {
		if e.state == inflight || e.state == burying {
			return true
		}
	}
	return false
}

// park forgets what was fetched of a partition but keeps its progress.
func (g *Group) park(p *partition) {
	now := g.cfg.Clock.Now()
	pr := p.progress(now)
	g.drop(p)
	p.restore(pr, now)
}

// drop forgets what was fetched of a partition.
func (g *Group) drop(p *partition) {
	p.generation++
	for _, e := range g.dispatch.drop(p) {
		g.saver.deadLettered(e, errTakenOver)
	}
}

package group

import (
	"errors"
	"fmt"
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/group/dispatch"
	"github.com/sluice-bus/sluice/sidecar/internal/group/ownership"
)

// both is one partition of the group's topic: who has it, and its events and progress here.
type partition struct {
	own *ownership.Partition
	*dispatch.Partition
}

// errTakenOver answers late settlements: another sidecar took the partition over before they were
// saved.
var errTakenOver = fmt.Errorf("another sidecar has taken over: %w", errors.Join(eventlog.ErrFenced, eventlog.ErrUnavailable))

// abandon forgets a partition that was taken over, without saving. It returns the callers that wait
// for progress that is lost.
func (g *Group) abandon(p *partition) (waiters []func(error)) {
	g.drop(p)
	if p.Dirty {
		waiters, g.saver.waiters = g.saver.waiters, nil
	}
	p.Restore(eventlog.Progress{}, time.Time{})
	g.disown(p)
	return waiters
}

func (g *Group) disown(p *partition) {
	g.dispatch.Revoke(p.Partition)
	p.own.Disown()
	p.Dirty = false
}

// finishDrains ends the drains of partitions that are drained, or have waited for DrainWait.
func (g *Group) finishDrains(now time.Time) {
	for _, p := range g.parts {
		if p.own.State != ownership.Draining || now.Before(p.own.DrainDeadline) && p.Busy() {
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
		g.saver.deadLettered(e, errTakenOver)
	}
}

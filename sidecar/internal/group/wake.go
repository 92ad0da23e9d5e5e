package group

import (
	"math/rand/v2"
	"time"
)

// askOwners makes the group ask soon whether another sidecar has taken over its partitions.
func (g *Group) askOwners() {
	g.lookForRedrives()
	g.refreshOwners()
	g.balancer.Wake()
}

func (g *Group) rosterChanged(changed bool) {
	g.mu.Lock()
	turn := g.lapsed || g.reachFirst() // it may be valid again, or announced
	g.mu.Unlock()
	if turn {
		g.worker.Wake()
	}
	if changed {
		g.balancer.Wake()
	}
}

// recheckOwners makes the group ask whether it still owns its partitions; it reports false if it has
// none.
func (g *Group) recheckOwners() bool {
	g.mu.Lock()
	owns := g.own.Any()
	g.mu.Unlock()
	if owns {
		g.askOwners()
	}
	return owns
}

// refreshOwners makes the next balance ask for the owners of partitions.
func (g *Group) refreshOwners() {
	g.mu.Lock()
	g.own.Doubt = true
	g.mu.Unlock()
}

// lookLater balances again after a while, and then asks the store if there is doubt.
func (g *Group) lookLater(doubt bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.own.Doubt = g.own.Doubt || doubt
	if !g.stopped {
		g.balanceTimer.Reset(lookAgain - time.Duration(rand.Int64N(int64(lookAgain)/4)))
	}
}

// warn logs that the store does not answer, unless the sidecar is stopping.
func (g *Group) warn(what string, err error) {
	if g.cfg.Context.Err() == nil {
		g.cfg.Logger.Warn("consumer group cannot "+what, "topic", g.id.Topic, "group", g.id.Group, "error", err)
	}
}

// lookForRedrives makes the next turn with room ask for redrives.
func (g *Group) lookForRedrives() {
	g.mu.Lock()
	for _, p := range g.parts {
		p.Redrive.Look = true
	}
	g.mu.Unlock()
	g.worker.Wake()
}

// lookAgain is the wait before the next look at a partition that is assigned here but still another
// sidecar's, unless a signal arrives first.
const lookAgain = time.Second

// notifyPullers tells pullers at the end of a turn that the group has no more for them now.
func (g *Group) notifyPullers() {
	if !g.own.Complete || g.lapsed {
		return
	}
	for _, m := range g.members {
		if m.puller != nil && m.window.Started {
			m.puller.Looked(m.window.Asked)
		}
	}
}

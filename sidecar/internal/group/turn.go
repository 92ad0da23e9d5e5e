package group

import (
	"cmp"
	"slices"
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/group/ownership"
)

// turn moves the group on: fetch, assign, save, answer, send.
func (g *Group) turn() {
	g.prepare(g.cfg.Clock.Now())
	g.fetch(g.cfg.Context)
	g.fetchRedrives(g.cfg.Context)
	s, ok := g.step(g.cfg.Clock.Now())
	g.flush()
	switch {
	case ok && g.cfg.Reach && !s.empty():
		g.storing.Go(func() {
			g.store(s)
			g.worker.Wake() // the next turn finds what waits for its end
		})
	case ok:
		g.store(s)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if now := g.cfg.Clock.Now(); !g.saver.removeAt.IsZero() && !g.saver.removeAt.After(now) {
		g.saver.removeAt = time.Time{}
		g.syncer.Wake()
	}
	g.rest(g.cfg.Clock.Now())
}

// store saves, and does what waits for that.
func (g *Group) store(s save) {
	err := s.store(g.cfg.Context, g.cfg.Log)
	g.saved(s, err)
	g.flush()
	if err == nil { // the next owner would now know that the last delivery failed
		for _, e := range s.deadLetters {
			g.appendDeadLetter(e)
		}
	}
}

// flush sends what members have been assigned and is cleared.
func (g *Group) flush() {
	var members []*Member
	g.mu.Lock()
	for _, m := range g.members {
		if m.window.Sends() {
			members = append(members, m)
		}
	}
	g.mu.Unlock()
	for _, m := range members {
		m.flush()
	}
}

// prepare follows the roster and the policy, ends drains, and divides the partitions among the
// members.
func (g *Group) prepare(now time.Time) {
	g.mu.Lock()
	if !g.stopped {
		g.lapse(now)
		g.finishDrains(now)
		g.retune(now) // it decides how far to read ahead
	}
	g.mu.Unlock()
	g.divide(now)
}

// lapse notes whether the roster is valid. While it is not, nothing is delivered, and no deadline
// or backoff ends. Afterwards deadlines have as much time left as before.
func (g *Group) lapse(now time.Time) {
	st := g.cfg.Roster.Standing()
	if lapsed := !st.Valid(now); lapsed != g.lapsed {
		g.lapsed, g.dispatch.NeedsDivision = lapsed, true
		if !lapsed {
			g.dispatch.Timers.Postpone(now.Sub(g.validUntil))
		}
	}
	if !g.lapsed {
		g.validUntil = st.Until
	}
}

// step handles due events, assigns ready ones, and collects the progress to save. For a while after
// a failed save nothing is saved, hence nothing is sent.
func (g *Group) step(now time.Time) (save, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stopped {
		return save{}, false
	}
	g.lapse(now)
	if !g.lapsed {
		g.dispatch.Expire(now)
	}
	if g.saver.retryAt.After(now) {
		return save{}, false
	}
	g.retune(now)
	g.open(now)
	g.reachFirst()
	g.dispatch.Saving = g.saver.busy
	leaves := slices.ContainsFunc(g.parts, func(p *partition) bool { return p.own.State == ownership.Leaving })
	g.dispatch.Assign(now)
	linger := g.saver.retryAt.IsZero() && now.Before(g.saver.saveAt) // a save that is tried again does not wait for more
	if g.saver.busy || linger && !leaves && !g.dispatch.Urgent() {
		return save{}, false
	}
	return g.collect(), true
}

// rest ends a turn: it parks a group without members, asks for another turn if there is more to do
// at once, and sets the timer for the next due time.
func (g *Group) rest(now time.Time) {
	if g.stopped {
		return
	}
	unused := len(g.members) == 0 && g.joining == 0
	if unused && g.dispatch.DeadLettering == 0 && g.dispatch.Timers.Next().IsZero() && g.watch != nil {
		for _, p := range g.parts {
			g.park(p)
		}
		g.watch.Close()
		g.watch = nil
	}
	busy := g.saver.busy // its end wakes the worker
	save := !busy && g.saver.retryAt.IsZero() && !now.Before(g.saver.saveAt) && g.unsaved()
	read := g.nextToFetch(now) != nil || len(g.redrivesToFetch(now)) > 0
	if g.dispatch.Round.More || save || read {
		g.worker.Wake()
	} else if !busy {
		g.notifyPullers()
	}
	if due := g.nextWake(now); due.IsZero() {
		g.turnTimer.Stop()
	} else {
		g.turnTimer.Reset(due.Sub(now))
	}
}

// nextWake is when time alone gives the group something to do; zero: never.
func (g *Group) nextWake(now time.Time) (due time.Time) {
	sooner := func(t time.Time) {
		if !t.IsZero() && (due.IsZero() || t.Before(due)) {
			due = t
		}
	}
	if !g.lapsed {
		sooner(g.dispatch.Timers.Next())
	}
	sooner(g.dispatch.Round.TokenAt)
	if g.noMemory {
		sooner(now.Add(retryAfterFailure))
	}
	if g.redrivesAt.After(now) {
		sooner(g.redrivesAt)
	}
	sooner(g.saver.removeAt)
	if !g.saver.busy {
		sooner(cmp.Or(g.saver.retryAt, g.saver.saveAt)) // the next save
	}
	for _, p := range g.parts {
		sooner(p.RetryAt(now))
		if p.own.State == ownership.Draining {
			sooner(p.own.DrainDeadline)
		}
	}
	if g.dispatch.Divided && !g.lapsed { // members are told when it lapses
		sooner(g.cfg.Roster.ValidUntil())
	}
	return due
}

package group

import (
	"cmp"
	"time"
)

// turn moves the group on: fetch, assign, save, answer, send.
func (g *Group) turn() {
	g.prepare(g.cfg.Clock.Now())
	g.fetch(g.cfg.Context)
	g.fetchRedrives(g.cfg.Context)
	if s, ok := g.step(g.cfg.Clock.Now()); ok {
		err := s.store(g.cfg.Context, g.cfg.Log)
		g.saved(s, err)
		for _, m := range s.members {
			m.flush()
		}
		if err == nil { // the next owner would now know that the last delivery failed
			for _, e := range s.deadLetters {
				g.appendDeadLetter(e)
			}
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if now := g.cfg.Clock.Now(); !g.saver.endAgain.IsZero() && !g.saver.endAgain.After(now) {
		g.saver.endAgain = time.Time{}
		g.syncer.Wake()
	}
	g.rest(g.cfg.Clock.Now())
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
		g.lapsed, g.dispatch.assignDue = lapsed, true
		if !lapsed {
			g.dispatch.timers.postpone(now.Sub(g.validUntil))
		}
	}
	if !g.lapsed {
		g.validUntil = st.Until
	}
}

// retune adapts the limits to the policy, and to the partitions that are owned here.
func (g *Group) retune(now time.Time) {
	g.dispatch.retune(g.cfg.Policy(g.topic), g.own.parts.owned(), len(g.own.parts), now)
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
		g.dispatch.expire(now)
	}
	if g.saver.again.After(now) {
		return save{}, false
	}
	g.retune(now)
	st := g.cfg.Roster.Standing()
	leaves := false
	for _, p := range g.own.parts {
		p.open = p.delivers(st, now)
		leaves = leaves || p.own == leaving
	}
	g.dispatch.assign(now)
	if g.saver.again.IsZero() && now.Before(g.saver.due) && !leaves && !g.dispatch.urgent() { // a save that is tried again does not wait for more
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
	if len(g.dispatch.members) == 0 && g.joining == 0 && g.dispatch.deadLettering == 0 && len(g.dispatch.timers) == 0 && g.watch != nil {
		for _, p := range g.own.parts {
			g.park(p)
		}
		g.watch.Close()
		g.watch = nil
	}
	if g.dispatch.round.again || g.saver.again.IsZero() && !now.Before(g.saver.due) && g.saver.unsaved(g.own.parts) || g.nextToFetch(now) != nil || len(g.redrivesToFetch(now)) > 0 {
		g.worker.Wake()
	} else {
		g.tellPullers()
	}
	if due := g.nextDue(now); due.IsZero() {
		g.turnTimer.Stop()
	} else {
		g.turnTimer.Reset(due.Sub(now))
	}
}

// nextDue is when time alone gives the group something to do; zero: never.
func (g *Group) nextDue(now time.Time) (due time.Time) {
	sooner := func(t time.Time) {
		if !t.IsZero() && (due.IsZero() || t.Before(due)) {
			due = t
		}
	}
	if len(g.dispatch.timers) > 0 && !g.lapsed {
		sooner(g.dispatch.timers[0].due)
	}
	sooner(g.dispatch.round.paceDue)
	if g.scarce {
		sooner(now.Add(retryAfterFailure))
	}
	if g.redriveDue.After(now) {
		sooner(g.redriveDue)
	}
	sooner(g.saver.endAgain)
	sooner(cmp.Or(g.saver.again, g.saver.due)) // the next save
	for _, p := range g.own.parts {
		sooner(p.Due(now))
		if p.own == draining {
			sooner(p.drainDue)
		}
	}
	if g.dispatch.divided && !g.lapsed { // members are told when it lapses
		sooner(g.cfg.Roster.ValidUntil())
	}
	return due
}

package group

import (
	"context"
	"errors"
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/group/deadletter"
	"github.com/sluice-bus/sluice/sidecar/internal/group/dispatch"
	"github.com/sluice-bus/sluice/sidecar/internal/group/ownership"
	"github.com/sluice-bus/sluice/sidecar/internal/retention"
)

// collect collects all progress that is not saved. The store refuses progress of partitions that
// are no longer this sidecar's, so collect does not ask whether the roster is valid.
func (g *Group) collect() save {
	s := g.saver.begin()
	s.checkOwners()
	s.deadLetters, g.dispatch.DeadLetters = g.dispatch.DeadLetters, nil
	for _, p := range g.parts {
		if p.Dirty {
			p.Dirty = false
			s.epochs = append(s.epochs, g.epoch(p, p.own.State == ownership.Leaving))
			s.redriven = append(s.redriven, p.Redrive.ToEnd(g.id.Topic, g.id.Group, p.Index)...)
		}
	}
	if len(s.epochs) > 0 {
		g.saver.beat++
	}
	g.saver.busy = !s.empty()
	return s
}

// saved handles the outcome of a save. After a failure it takes the turn's deliveries back, and the
// progress is saved again later.
func (g *Group) saved(s save, err error) {
	g.mu.Lock()
	moved := false
	for i := range s.epochs {
		if p := g.parts[s.epochs[i].Partition]; err == nil {
			p.Reached()
		} else {
			p.Withdraw()
		}
	}
	if err == nil {
		g.saver.saved(s)
		g.dispatch.Saved()
		moved = g.endReleased(s)
	} else {
		g.unsave(s, err)
	}
	g.mu.Unlock()
	switch {
	case errors.Is(err, eventlog.ErrFenced):
		g.askOwners()
	case err != nil:
		answerAll(s.waiters, err)
	case len(s.waiters)+len(s.redriven) > 0:
		g.syncer.Wake()
	}
	if moved {
		g.cfg.notifyMoved(g.id)
		g.balancer.Wake()
	}
}

// endReleased ends the ownership of partitions that were saved as released.
func (g *Group) endReleased(s save) (moved bool) {
	for i := range s.epochs {
		e := &s.epochs[i]
		if p := g.parts[e.Partition]; e.Released && p.own.State == ownership.Leaving && p.own.Epoch == e.Number && !p.Dirty {
			g.disown(p)
			moved = true
		}
	}
	return moved
}

func (g *Group) unsave(s save, err error) {
	fenced := errors.Is(err, eventlog.ErrFenced)
	if fenced { // the next save has what was not lost
		g.saver.waiters = append(s.waiters, g.saver.waiters...)
	}
	if g.saver.failed(s) && !errors.Is(err, context.Canceled) && !fenced {
		g.cfg.Logger.Error("consumer group cannot save its progress", "topic", g.id.Topic, "group", g.id.Group, "error", err)
	}
	g.dispatch.Round.More, g.dispatch.Round.TokenAt = false, time.Time{} // the next turn assigns again
	unknown := false                                                     // why the store has refused it
	for i := range s.epochs {
		e := &s.epochs[i]
		// It may have been lost meanwhile, or renewed.
		if p := g.parts[e.Partition]; p.own.State != ownership.Foreign && p.own.Epoch >= e.Number {
			p.Dirty = true
			p.Redrive.EndAgain()
			unknown = unknown || p.own.Epoch == e.Number
		}
	}
	if fenced && !unknown { // abandonTaken came before, so the next save need not wait
		g.saver.retryAt = time.Time{}
		g.worker.Wake()
	}
	for _, m := range g.members {
		g.dispatch.TakeBack(m.window)
	}
	for _, e := range s.deadLetters {
		if e.State == dispatch.DeadLettering {
			g.dispatch.Timers.Set(e, g.saver.retryAt)
		}
	}
}

// sync makes saved progress durable and answers the callers that wait for it. It runs beside the
// turns, so that no delivery waits for it.
func (g *Group) sync() {
	g.mu.Lock()
	waiters, upTo, ended := g.saver.unsynced, g.saver.saves, g.saver.redriven
	g.saver.unsynced, g.saver.redriven = nil, nil
	g.mu.Unlock()
	if len(waiters)+len(ended) == 0 {
		return
	}
	err := g.cfg.Log.Sync(g.cfg.Context)
	if err == nil {
		g.mu.Lock()
		g.saver.synced = max(g.saver.synced, upTo)
		g.mu.Unlock()
	}
	if len(ended) > 0 {
		err = errors.Join(err, g.removeRedriven(ended, err))
	}
	answerAll(waiters, err)
}

// unsaved reports whether there is progress that no save has begun to store.
func (g *Group) unsaved() bool { return len(g.saver.marks) > 0 || g.dispatch.Dirty() }

// whenDurable answers a settlement once its dead letters, and after them all progress so far, are
// durable. It is called with mu held and releases it.
func (g *Group) whenDurable(x *settlement) {
	switch {
	case x.deadLetters > 0:
		x.timeout(g.cfg.Clock, g.cfg.AckTimeout)
		g.mu.Unlock()
	case g.released:
		g.mu.Unlock()
		x.answer(errStopped)
	case g.unsaved() || g.saver.busy || len(g.saver.waiters) > 0:
		x.timeout(g.cfg.Clock, g.cfg.AckTimeout)
		g.saver.waiters = append(g.saver.waiters, x)
		g.mu.Unlock()
		g.worker.Wake()
	case g.saver.synced < g.saver.saves:
		x.timeout(g.cfg.Clock, g.cfg.AckTimeout)
		g.saver.unsynced = append(g.saver.unsynced, x)
		g.mu.Unlock()
		g.syncer.Wake()
	default:
		g.mu.Unlock()
		x.answer(nil)
	}
}

// removeRedriven removes redrives that are settled and saved as settled, unless that save failed:
// first the dead letters, and then the redrives. After a failure it tries again.
func (g *Group) removeRedriven(rs []eventlog.Redrive, failed error) error {
	ctx := g.cfg.Context
	letters := make([]string, len(rs))
	for i, r := range rs {
		letters[i] = r.Letter
	}
	err := failed
	if err == nil {
		rules := func(topic string) eventlog.Retention { return retention.Rules(g.cfg.Policy(topic)) }
		if err = deadletter.Remove(ctx, g.cfg.Log, g.id.Topic, letters, rules, g.cfg.Clock.Now()); err == nil {
			err = g.cfg.Log.EndRedrives(ctx, g.id.Topic, rs)
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if err != nil {
		if failed == nil {
			g.warn("remove settled dead letters", err)
		}
		g.saver.redriven = append(g.saver.redriven, rs...)
		g.saver.removeAt = g.cfg.Clock.Now().Add(retryAfterFailure)
		g.worker.Wake()
		return err
	}
	gone := map[string]bool{}
	for _, letter := range letters {
		gone[letter] = true
	}
	for _, p := range g.parts {
		if p.Redrive.Gone(gone) {
			g.worker.Wake()
		}
	}
	return nil
}

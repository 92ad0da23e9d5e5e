package group

import (
	"context"
	"errors"
	"fmt"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/group/dispatch"
	"github.com/sluice-bus/sluice/sidecar/internal/group/ownership"
)

// errStopped answers calls after the sidecar has begun to stop.
var errStopped = fmt.Errorf("shutting down: %w", eventlog.ErrUnavailable)

// save is the progress of one turn on its way to the store, with the work that follows once it is
// stored.
type save struct {
	epochs      []eventlog.Epoch
	marks       []eventlog.Mark
	waiters     []func(error) // are called once it is synced
	members     []*Member     // that have been assigned events
	deadLetters []*dispatch.Event
	ended       []eventlog.Redrive // that are settled
}

// collect collects all progress that is not saved. The store refuses progress of partitions that
// are no longer this sidecar's, so collect does not ask whether the roster is valid.
func (g *Group) collect() save {
	s := g.saver.begin()
	s.deadLetters = g.dispatch.TakeDeadLetters()
	for _, p := range g.parts {
		if p.Dirty {
			p.Dirty = false
			s.epochs = append(s.epochs, g.epoch(p, p.own.State == ownership.Leaving))
			s.ended = append(s.ended, p.Redrive.ToEnd(g.topic, g.name, p.Index)...)
		}
	}
	if len(s.epochs) > 0 {
		g.saver.beat++
	}
	for _, m := range g.members {
		if len(m.window.Out) > 0 {
			s.members = append(s.members, m)
		}
	}
	g.saver.busy = !s.empty()
	return s
}

// epoch is the document of one partition as of now.
func (g *Group) epoch(p *partition, released bool) eventlog.Epoch {
	e := g.own.EpochOf(p.Index, p.own.Epoch, p.own.Life)
	e.Beat, e.Released, e.Progress = g.saver.beat, released, p.Progress(p.own.Life, g.cfg.Clock.Now())
	return e
}

func (s *save) empty() bool { return len(s.epochs) == 0 && len(s.marks) == 0 }

// store writes the save, unless it is empty.
func (s save) store(ctx context.Context, log eventlog.Groups) error {
	if s.empty() {
		return nil
	}
	return log.SaveEpochs(ctx, s.epochs, s.marks)
}

// saved handles the outcome of a save. After a failure it takes the turn's deliveries back, and the
// progress is saved again later.
func (g *Group) saved(s save, err error) {
	g.mu.Lock()
	moved := false
	if err == nil {
		g.saver.saved(s)
		moved = g.released(s)
	} else {
		g.unsave(s, err)
	}
	g.mu.Unlock()
	switch {
	case errors.Is(err, eventlog.ErrFenced):
		g.suspect()
		answerAll(s.waiters, errTakenOver)
	case err != nil:
		answerAll(s.waiters, err)
	case len(s.waiters)+len(s.ended) > 0:
		g.syncer.Wake()
	}
	if moved {
		g.cfg.tellMoved(g.topic, g.name)
		g.balancer.Wake()
	}
}

// released ends the ownership of partitions that were saved as released.
func (g *Group) released(s save) (moved bool) {
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
	if g.saver.failed(s) && !errors.Is(err, context.Canceled) && !errors.Is(err, eventlog.ErrFenced) {
		g.cfg.Logger.Error("consumer group cannot save its progress", "topic", g.topic, "group", g.name, "error", err)
	}
	g.dispatch.Resume()
	for i := range s.epochs {
		e := &s.epochs[i]
		// It may have been lost meanwhile, or renewed.
		if p := g.parts[e.Partition]; p.own.State != ownership.Foreign && p.own.Epoch >= e.Number {
			p.Dirty = true
			p.Redrive.EndAgain()
		}
	}
	for _, m := range s.members {
		g.dispatch.TakeBack(m.window)
	}
	for _, e := range s.deadLetters {
		if e.State == dispatch.DeadLettering {
			g.dispatch.SetTimer(e, g.saver.again)
		}
	}
}

// sync makes saved progress durable and answers the callers that wait for it. It runs beside the
// turns, so that no delivery waits for it.
func (g *Group) sync() {
	g.mu.Lock()
	waiters, upTo, ended := g.saver.unsynced, g.saver.saves, g.saver.ended
	g.saver.unsynced, g.saver.ended = nil, nil
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
		err = errors.Join(err, g.end(ended, err))
	}
	answerAll(waiters, err)
}

func answerAll(waiters []func(error), err error) {
	for _, done := range waiters {
		done(err)
	}
}

// unsaved reports whether there is progress that no save has begun to store.
func (g *Group) unsaved() bool { return len(g.saver.marks) > 0 || g.dispatch.Dirty() }

// whenDurable arranges for done to be called once all progress so far is durable. It is called with
// mu held and releases it.
func (g *Group) whenDurable(done func(error)) {
	done = g.saver.traced(done)
	switch {
	case g.over:
		g.mu.Unlock()
		done(errStopped)
	case g.unsaved() || g.saver.busy || len(g.saver.waiters) > 0:
		g.saver.waiters = append(g.saver.waiters, g.saver.timed(done))
		g.mu.Unlock()
		g.worker.Wake()
	case g.saver.synced < g.saver.saves:
		g.saver.unsynced = append(g.saver.unsynced, g.saver.timed(done))
		g.mu.Unlock()
		g.syncer.Wake()
	default:
		g.mu.Unlock()
		done(nil)
	}
}

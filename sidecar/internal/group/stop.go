package group

import (
	"context"
	"errors"
	"slices"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/group/ownership"
)

// stop ends the group in this process: events in flight go back, and the progress is saved as
// released.
func (g *Group) stop(ctx context.Context) error {
	g.mu.Lock()
	g.stopped = true
	members := g.members
	g.mu.Unlock()
	for _, m := range members {
		m.Close(Unsubscribed)
	}
	g.worker.Stop()
	g.storing.Wait()
	g.syncer.Stop()
	g.balancer.Stop()
	g.turnTimer.Stop()
	g.balanceTimer.Stop()
	g.moving.Lock()
	defer g.moving.Unlock()
	s, ok := g.release()
	if !ok {
		return nil
	}
	err := g.storeReleased(ctx, s)
	if err == nil {
		err = g.cfg.Log.Sync(ctx)
	}
	answerAll(s.waiters, err)
	if err == nil {
		g.cfg.notifyMoved(g.id)
	}
	return err
}

// release ends the ownership of all partitions, and collects their progress.
func (g *Group) release() (s save, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.watch != nil {
		g.watch.Close()
		g.watch = nil
	}
	if g.released {
		return save{}, false
	}
	g.released = true
	for e := range g.saver.pendingDeadLetters {
		g.saver.deadLettered(e, false)
	}
	for _, p := range g.parts {
		if p.own.State != ownership.Foreign {
			p.own.State, p.Dirty = ownership.Leaving, true
		}
	}
	s = g.collect()
	s.waiters = append(s.waiters, g.saver.unsynced...)
	g.saver.unsynced = nil
	return s, !s.empty() || len(s.waiters) > 0
}

// storeReleased saves the partitions that are not taken over yet.
func (g *Group) storeReleased(ctx context.Context, s save) error {
	for {
		err := s.store(ctx, g.cfg.Log)
		if !errors.Is(err, eventlog.ErrFenced) {
			return err
		}
		latest, err := g.latest(ctx)
		if err != nil {
			return err
		}
		before := len(s.epochs)
		g.mu.Lock()
		s.epochs = slices.DeleteFunc(s.epochs, func(e eventlog.Epoch) bool {
			lost := latest[e.Partition].Number > e.Number
			if lost {
				g.parts[e.Partition].losses++
			}
			return lost
		})
		s.checkOwners()
		g.mu.Unlock()
		if len(s.epochs) == before {
			return eventlog.ErrFenced // the store contradicts itself
		}
	}
}

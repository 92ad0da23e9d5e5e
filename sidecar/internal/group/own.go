package group

import (
	"context"
	"errors"
	"slices"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// restore sets the group's partitions to what the store says.
func (g *Group) restore(epochs []eventlog.Epoch) {
	g.generation++
	g.parts = make([]*partition, len(epochs))
	for i, e := range epochs {
		g.parts[i] = &partition{index: i, epoch: e.Number}
		g.parts[i].restore(e.Progress)
	}
}

func (g *Group) isLoaded() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.parts != nil
}

// own takes the group's partitions from whoever had them before: with the
// progress that is stored, or at the position that o asks for where there is
// none.
func (g *Group) own(ctx context.Context, o wire.SubscribeOptions) error {
	g.opening.Lock()
	defer g.opening.Unlock()
	g.mu.Lock()
	owned, stopped := g.owned, g.stopped
	g.mu.Unlock()
	if stopped {
		return errStopped
	}
	if owned {
		return nil
	}
	tp, err := g.cfg.Log.EnsureTopic(ctx, g.topic, g.cfg.Policy(g.topic).Partitions)
	if err != nil {
		return err
	}
	stored, err := g.cfg.Log.LatestEpochs(ctx, g.topic, g.name)
	if err != nil {
		return err
	}
	epochs := make([]eventlog.Epoch, tp.Partitions)
	for _, e := range stored {
		epochs[e.Partition] = e
	}
	if len(stored) < tp.Partitions {
		starts, err := seek(ctx, g.cfg.Log, g.topic, o)
		if err != nil {
			return err
		}
		for i := range epochs {
			if epochs[i].Number == 0 {
				epochs[i].Progress.Cursor = starts[i]
			}
		}
	}
	for i := range epochs {
		epochs[i].GroupPartition = eventlog.GroupPartition{Topic: g.topic, Group: g.name, Partition: i}
		epochs[i].Number++
		epochs[i].Owner, epochs[i].Beat, epochs[i].Released = g.cfg.NodeID, 0, false
	}
	if err := errors.Join(g.cfg.Log.TakeEpochs(ctx, epochs)...); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.restore(epochs)
	g.owned = true
	return nil
}

// seek turns a position as a client gives it into the seq to start at, per
// partition.
func seek(ctx context.Context, log eventlog.Reader, topic string, o wire.SubscribeOptions) ([]uint64, error) {
	p := eventlog.Position{From: o.From}
	switch o.From {
	case "":
		p.From = wire.FromLatest
	case wire.FromTS:
		p.TS = *o.TS
	case wire.FromAfterID:
		rec, err := log.Lookup(ctx, topic, o.AfterID)
		if errors.Is(err, eventlog.ErrNotFound) {
			return nil, wire.Errorf(wire.NotFound, "afterId: topic %q has no event with id %q", topic, o.AfterID)
		}
		if err != nil {
			return nil, err
		}
		p.After = eventlog.Point{TS: rec.TS, ID: rec.ID}
	}
	return log.Seek(ctx, topic, p)
}

// join adds a member to a group that is owned. The group follows its topic
// from here on, until it has no members any more.
func (g *Group) join(ctx context.Context, m *Member) error {
	g.mu.Lock()
	if g.stopped {
		g.mu.Unlock()
		return errStopped
	}
	g.joining++ // keeps the watch open
	if g.watch == nil {
		g.watch = g.cfg.Tails.Watch(g.topic, g.worker.wake)
	}
	g.mu.Unlock()
	extents, err := g.cfg.Log.Extents(ctx, g.topic)

	g.mu.Lock()
	defer g.mu.Unlock()
	defer g.worker.wake()
	g.joining--
	if g.stopped {
		return errStopped
	}
	if err != nil {
		return err
	}
	for i, p := range g.parts {
		p.head = max(p.head, extents[i].Head)
	}
	m.opts = Resolve(m.requested, g.cfg.Policy(g.topic).Delivery)
	g.members = append(slices.Clip(g.members), m) // a turn may hold the old list
	g.reorder()
	return nil
}

// stop ends the group in this process: what is in flight goes back, and the
// progress is saved as released.
func (g *Group) stop(ctx context.Context) error {
	g.mu.Lock()
	g.stopped = true
	members := g.members
	g.mu.Unlock()
	for _, m := range members {
		m.Close(Unsubscribed)
	}
	g.worker.stop()
	g.syncer.stop()
	g.alarm.Stop()
	g.opening.Lock()
	defer g.opening.Unlock()
	s, owned := g.release()
	if !owned {
		return nil
	}
	err := s.store(ctx, g.cfg.Log)
	if err == nil {
		err = g.cfg.Log.Sync(ctx)
	}
	answerAll(s.waiters, err)
	return err
}

// release gives up the ownership and collects what is to be saved of it.
func (g *Group) release() (s save, owned bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.watch != nil {
		g.watch.Close()
		g.watch = nil
	}
	if !g.owned {
		return save{}, false
	}
	g.owned = false
	g.beat++
	for _, p := range g.parts {
		p.dirty = false // saved below, as released
	}
	s = g.collect()
	s.waiters = append(s.waiters, g.unsynced...)
	g.unsynced = nil
	for _, p := range g.parts {
		s.epochs = append(s.epochs, g.epoch(p, true))
	}
	return s, true
}

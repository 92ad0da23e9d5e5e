package group

import (
	"context"
	"errors"
	"slices"
	"strconv"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// load makes the partitions known; none is owned yet.
func (g *Group) load(partitions int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.parts != nil {
		return
	}
	g.parts = make([]*partition, partitions)
	for i := range g.parts {
		g.parts[i] = &partition{index: i}
	}
}

func (g *Group) isLoaded() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.parts != nil
}

// plant gives the partitions that nobody ever had a first epoch, at the position
// that o asks for. It is released from the start, so whoever is to have the
// partition takes it from there, and of racing subscribers the first one's
// position counts.
func (g *Group) plant(ctx context.Context, o wire.SubscribeOptions) error {
	g.mu.Lock()
	planted, stopped := g.planted, g.stopped
	g.mu.Unlock()
	if stopped {
		return errStopped
	}
	if planted {
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
	if len(stored) < tp.Partitions {
		starts, err := seek(ctx, g.cfg.Log, g.topic, o)
		if err != nil {
			return err
		}
		var first []eventlog.Epoch
		for i, e := range byPartition(stored, tp.Partitions) {
			if e.Number == 0 {
				e = g.epochOf(i, 1, g.cfg.Roster.Standing().ID)
				e.Released, e.Progress.Cursor = true, starts[i]
				first = append(first, e)
			}
		}
		for _, err := range g.cfg.Log.TakeEpochs(ctx, first) {
			if err != nil && !errors.Is(err, eventlog.ErrEpochTaken) {
				return err
			}
		}
	}
	g.load(tp.Partitions)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.planted = true
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

// join adds a member. The group follows its topic from here on, until it has no
// members any more.
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
	g.joined++
	m.name = m.id + "#" + strconv.Itoa(g.joined)
	m.opts = Resolve(m.requested, g.cfg.Policy(g.topic).Delivery)
	g.members = append(slices.Clip(g.members), m) // a turn may hold the old list
	g.complete = g.complete && len(g.members) > 1 // without members it was not known what there is to be
	g.reorder()
	g.recut = true
	g.cfg.Roster.Join(eventlog.GroupName{Topic: g.topic, Group: g.name})
	g.balancer.wake()
	return nil
}

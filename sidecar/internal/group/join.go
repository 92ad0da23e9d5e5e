package group

import (
	"context"
	"errors"
	"slices"
	"strconv"

	"github.com/sluice-bus/sluice/internal/policy"
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
	g.own.Load(partitions)
	g.dispatch.Load(partitions)
	for i, own := range g.own.Parts {
		g.parts = append(g.parts, &partition{own, g.dispatch.Parts[i]})
	}
}

// inUse reports whether the group has members or partitions here.
func (g *Group) inUse() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.members)+g.joining > 0 || g.own.Any()
}

// create gives a first epoch to the partitions that have had no owner, or none since the group was
// deleted, at the position that o asks for. It is released from the start, so that the sidecar to
// which the partition falls can take it. Of concurrent subscribers the first one's position counts.
func (g *Group) create(ctx context.Context, o wire.SubscribeOptions) error {
	g.mu.Lock()
	created, stopped := g.own.Created, g.stopped
	g.mu.Unlock()
	if stopped {
		return errStopped
	}
	if created {
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
	placed := 0
	for _, e := range stored {
		if !e.Deleted {
			placed++
		}
	}
	if placed == 0 {
		if err := g.cfg.count.reserve(ctx, &g.cfg); err != nil {
			return err
		}
	}
	if placed < tp.Partitions {
		starts, err := startsOf(ctx, g.cfg.Log, g.topic, o, g.cfg.Policy(g.topic).Retention)
		if err != nil {
			return err
		}
		var first []eventlog.Epoch
		for i, e := range byPartition(stored, tp.Partitions) {
			if e.Number == 0 || e.Deleted {
				e = g.own.EpochOf(i, e.Number+1, g.cfg.Roster.Standing().ID)
				now := g.cfg.Clock.Now().UnixMilli()
				e.Released, e.Progress = true, eventlog.Progress{Cursor: starts[i], Since: now, By: eventlog.Maker(ctx), Unused: now}
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
	g.own.Created = true
	return nil
}

// seek turns a position as a client gives it into the seq to start at, per partition.
func seek(ctx context.Context, log eventlog.Reader, topic string, o wire.SubscribeOptions, keeps policy.Retention) ([]uint64, error) {
	p := eventlog.Position{From: o.From}
	switch o.From {
	case wire.FromPositions:
		return behindPositions(ctx, log, topic, o.Positions, keeps)
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

// startsOf is where a subscription starts in each partition: at its first event if the position
// names no seq of it.
func startsOf(ctx context.Context, log eventlog.Reader, topic string, o wire.SubscribeOptions, keeps policy.Retention) ([]uint64, error) {
	starts, err := seek(ctx, log, topic, o, keeps)
	if err != nil || !slices.Contains(starts, 0) {
		return starts, err
	}
	first, err := log.Seek(ctx, topic, eventlog.Position{From: wire.FromEarliest})
	for p := range min(len(starts), len(first)) {
		if starts[p] == 0 {
			starts[p] = first[p]
		}
	}
	return starts, err
}

// behindPositions starts each partition right behind its position; 0 stands for a partition without
// one. If only compaction removes events, every missing event was replaced by a later one, and no
// position is too old.
func behindPositions(ctx context.Context, log eventlog.Reader, topic string, positions map[int]uint64, keeps policy.Retention) ([]uint64, error) {
	expires := !keeps.Compact || keeps.TTL > 0 || keeps.MaxBytes > 0
	extents, err := log.Extents(ctx, topic)
	if err != nil {
		return nil, err
	}
	starts := make([]uint64, len(extents))
	for p, seq := range positions {
		switch {
		case p >= len(extents):
			return nil, wire.Errorf(wire.BadRequest, "positions: topic %q has partitions 0 to %d, not %d", topic, len(extents)-1, p)
		case seq > extents[p].Head && seq >= extents[p].First:
			return nil, wire.Errorf(wire.BadRequest, "positions: partition %d has seqs up to %d, not %d", p, extents[p].Head, seq)
		case expires && seq+1 < extents[p].First:
			return nil, wire.Errorf(wire.OutOfRange, "positions: partition %d begins at seq %d now; the event after position %d is gone", p, extents[p].First, seq)
		}
		starts[p] = seq + 1
	}
	return starts, nil
}

// join adds a member. From then on the group follows its topic, until it has no members.
func (g *Group) join(ctx context.Context, m *Member) error {
	g.mu.Lock()
	if g.stopped {
		g.mu.Unlock()
		return errStopped
	}
	g.joining++ // keeps the watch open
	if g.watch == nil {
		g.watch = g.cfg.Tails.Watch(g.topic, g.worker.Wake)
	}
	g.mu.Unlock()
	extents, err := g.cfg.Log.Extents(ctx, g.topic)

	g.mu.Lock()
	defer g.mu.Unlock()
	defer g.worker.Wake()
	g.joining--
	if g.stopped {
		return errStopped
	}
	if err != nil {
		return err
	}
	for i, p := range g.parts {
		p.Head = max(p.Head, extents[i].Head)
	}
	g.joined++
	m.window.Name = m.window.Id + "#" + strconv.Itoa(g.joined)
	g.retune(g.cfg.Clock.Now())
	g.dispatch.Join(m.window)
	g.members = append(slices.Clip(g.members), m)         // a turn may hold the old list
	g.own.Complete = g.own.Complete && len(g.members) > 1 // the first member makes partitions due
	g.cfg.Roster.Join(eventlog.GroupName{Topic: g.topic, Group: g.name})
	g.balancer.Wake()
	return nil
}

package group

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-bus/sluice/internal/pause"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/group/dispatch"
	"github.com/sluice-bus/sluice/sidecar/internal/group/ownership"
	"github.com/sluice-bus/sluice/sidecar/internal/group/position"
)

// Seek moves a group, also while it has members here or elsewhere: the leases of their events in
// flight become stale. ErrNotFound if the group never had a subscription. After another error the
// group may have moved nevertheless.
func (m *Manager) Seek(ctx context.Context, topic, name string, o wire.SubscribeOptions) error {
	g, starts, err := m.starts(ctx, topic, name, o)
	if err != nil {
		return err
	}
	defer m.release(g)
	return g.untilKept(ctx, func() error {
		saved, err := g.move(ctx, starts)
		if saved == nil {
			return err
		}
		select { // without g.moving, which a stop needs before it saves the last time
		case failed := <-saved:
			return errors.Join(err, failed)
		case <-ctx.Done():
			return ctx.Err()
		}
	})
}

// Bounds of untilKept: 10 s at most, since a Backoff waits at least half.
const (
	moveTries   = 40
	movePause   = 5 * time.Millisecond
	moveLongest = 300 * time.Millisecond
)

// untilKept repeats a change of all partitions that has lost some to other sidecars, which take them at the same time. Each
// of these makes progress of its own, so the losses end, unless several callers move the group over and over.
func (g *Group) untilKept(ctx context.Context, change func() error) error {
	wait := pause.Backoff{First: movePause, Most: moveLongest}
	for range moveTries {
		err := change()
		if !errors.Is(err, eventlog.ErrEpochTaken) && !errors.Is(err, eventlog.ErrFenced) {
			return err
		}
		if !g.cfg.Clock.Sleep(ctx, wait.Step()) {
			return ctx.Err()
		}
	}
	return &wire.Error{Code: wire.Overloaded, RetryAfter: time.Second, Msg: fmt.Sprintf("others move group %q at the same time, "+
		"and took its partitions back at each of %d tries; it may have moved in part: try again", g.id.Group, moveTries)}
}

// starts holds a group, and translates a position into seqs of its topic.
func (m *Manager) starts(ctx context.Context, topic, name string, o wire.SubscribeOptions) (g *Group, starts []uint64, err error) {
	if g, err = m.find(ctx, topic, name); err != nil {
		return nil, nil, err
	}
	if starts, err = position.Seek(ctx, m.cfg.Log, topic, o); err != nil {
		m.release(g)
	}
	return g, starts, err
}

// move sets the cursors. Partitions that this sidecar owns move as with an ack. For each other
// partition, move makes the next epoch for its owner, who may go on delivering until it learns of that
// and takes the partition from itself: nobody else may take it before. saved gets nil once the
// progress of the owned partitions is durable, or an error; a nil saved says that nothing was moved.
func (g *Group) move(ctx context.Context, starts []uint64) (saved <-chan error, err error) {
	g.moving.Lock()
	defer g.moving.Unlock()
	latest, err := g.latest(ctx)
	if err != nil {
		return nil, err
	}
	g.abandonTaken(latest)
	g.mu.Lock()
	if g.stopped {
		g.mu.Unlock()
		return nil, errStopped
	}
	answer := make(chan error, 1)
	x := &settlement{done: func(_, lost []int, err error) {
		if len(lost) > 0 {
			err = eventlog.ErrFenced
		}
		answer <- err
	}}
	var forced []eventlog.Epoch
	now := g.cfg.Clock.Now()
	since := now.UnixMilli()
	for i, p := range g.parts {
		if starts[i] == 0 { // not named
			continue
		}
		if p.own.State == ownership.Foreign {
			e := g.own.KeptBy(latest[i], i)
			e.Progress = eventlog.Progress{Cursor: starts[i], Since: since, By: latest[i].Progress.By,
				Redrives: latest[i].Progress.Redrives, OutBy: latest[i].Progress.OutBy}
			forced = append(forced, e)
			continue
		}
		pr := p.ProgressFrom(starts[i], now)
		g.drop(p)
		p.Restore(pr, now)
		p.Dirty = true
		p.Withdraw()
		x.settles(i, p)
	}
	g.whenDurable(x)
	if len(forced) > 0 {
		err = errors.Join(g.cfg.Log.TakeEpochs(ctx, forced)...)
		g.cfg.notifyMoved(g.id)
		g.balancer.Wake()
	}
	return answer, err
}

// PlanSeek returns the effect that Seek would have now, and changes nothing.
func (m *Manager) PlanSeek(ctx context.Context, topic, name string, o wire.SubscribeOptions) (wire.SeekPlan, error) {
	g, starts, err := m.starts(ctx, topic, name, o)
	if err != nil {
		return wire.SeekPlan{}, err
	}
	defer m.release(g)
	extents, err := m.cfg.Log.Extents(ctx, topic)
	if err != nil {
		return wire.SeekPlan{}, err
	}
	latest, err := g.latest(ctx)
	if err != nil {
		return wire.SeekPlan{}, err
	}
	plan := wire.SeekPlan{Partitions: []wire.PartitionMove{}}
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, x := range g.parts {
		p := x.Partition
		if x.own.State == ownership.Foreign {
			p = dispatch.Stored(&latest[i])
		}
		to, extent := starts[i], extents[i]
		if to == 0 {
			to = p.Cursor()
		} else {
			above := eventlog.Extent{First: max(to, extent.First), Head: extent.Head}
			left := p.UnsettledFrom(above)
			plan.Skips += p.Unsettled(extent) - left
			plan.Replays += max(int64(above.Head)-int64(above.First)+1, 0) - left
		}
		plan.Partitions = append(plan.Partitions, wire.PartitionMove{Partition: i, From: p.Cursor(), To: to})
	}
	return plan, nil
}

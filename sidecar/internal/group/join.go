package group

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/group/position"
)

// join adds a member. From then on the group follows its topic, until it has no members.
func (g *Group) join(ctx context.Context, m *Member, deadLetterTopic string) error {
	g.mu.Lock()
	if g.stopped {
		g.mu.Unlock()
		return errStopped
	}
	g.joining++ // keeps the watch open
	if g.watch == nil {
		g.watch = g.cfg.Tails.Watch(g.id.Topic, g.worker.Wake)
	}
	g.mu.Unlock()
	extents, err := g.cfg.Log.Extents(ctx, g.id.Topic)

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
	g.deadLetterTopic = deadLetterTopic
	m.since = g.cfg.Clock.Now()
	m.window.Name = m.window.ID + "#" + strconv.Itoa(g.joined)
	g.retune(g.cfg.Clock.Now())
	g.dispatch.Join(m.window)
	g.members = append(slices.Clip(g.members), m)         // a turn may hold the old list
	g.own.Complete = g.own.Complete && len(g.members) > 1 // the first member makes partitions assigned here
	g.cfg.Roster.Join(g.id)
	g.balancer.Wake()
	return nil
}

// MaxDeadLetterTopics is how many topics may have the dead letters of one, beside its own.
const MaxDeadLetterTopics = 16

// addDeadLetterTopic notes, before the first dead letter goes there, that a topic has dead letters of the group's.
func (g *Group) addDeadLetterTopic(ctx context.Context, letters string) error {
	if letters == "" {
		return nil
	}
	there, err := g.cfg.Log.DeadLetterTopics(ctx, g.id.Topic)
	if err != nil || slices.Contains(there, letters) {
		return err
	}
	if len(there) > MaxDeadLetterTopics {
		return wire.Errorf(wire.BadRequest, "dead letters of topic %q go to %d topics already, and no more are allowed: %s",
			g.id.Topic, MaxDeadLetterTopics, strings.Join(there[1:], ", "))
	}
	if _, err := g.cfg.Log.EnsureTopic(ctx, letters, g.cfg.Policy(letters).Partitions); err != nil {
		return err
	}
	return g.cfg.Log.AddDeadLetterTopic(ctx, g.id.Topic, letters)
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
	tp, err := g.cfg.Log.EnsureTopic(ctx, g.id.Topic, g.cfg.Policy(g.id.Topic).Partitions)
	if err != nil {
		return err
	}
	stored, err := g.cfg.Log.LatestEpochs(ctx, g.id.Topic, g.id.Group)
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
		if err := g.count.reserve(ctx); err != nil {
			return err
		}
	}
	if placed < tp.Partitions {
		starts, err := position.Starts(ctx, g.cfg.Log, g.id.Topic, o)
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
	g.metrics() // which begin at 0
	return nil
}

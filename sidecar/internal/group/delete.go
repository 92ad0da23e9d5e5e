package group

import (
	"context"
	"slices"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/group/ownership"
)

func (m *Manager) countFollower(topic string, by int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.followers[topic] += by; m.followers[topic] == 0 {
		delete(m.followers, topic)
	}
}

// Unused returns an error with in_use while the topic has subscriptions: to one of its groups on
// any sidecar of the store, as far as the roster tells at the time of the call, or without a group
// here. Other sidecars are not told of the latter.
func (m *Manager) Unused(ctx context.Context, topic string) error {
	if err := m.cfg.Roster.Refresh(ctx); err != nil {
		return err
	}
	m.mu.Lock()
	followers := m.followers[topic]
	m.mu.Unlock()
	if followers > 0 {
		return wire.Errorf(wire.InUse, "topic %q has %d subscriptions without a group here; it can go once they have ended", topic, followers)
	}
	names, err := m.cfg.Log.ListGroups(ctx, topic)
	for _, g := range m.all() {
		if g.id.Topic == topic && !slices.Contains(names, g.id.Group) { // it is being made
			names = append(names, g.id.Group)
		}
	}
	for _, name := range names {
		if err == nil {
			err = m.unused(ctx, topic, name)
		}
	}
	return err
}

// unused returns an error with in_use while a group has members.
func (m *Manager) unused(ctx context.Context, topic, name string) (err error) {
	info := &wire.GroupInfo{Topic: topic, Group: name}
	if g := m.inMemory(topic, name); g != nil {
		g.mu.Lock()
		info.Members, info.More = g.describeMembers(m.cfg.Clock.Now()), g.joining
		g.mu.Unlock()
	}
	if len(m.cfg.Roster.View().Others(eventlog.GroupName{Topic: topic, Group: name})) > 0 {
		err = m.addElsewhere(ctx, info)
	}
	if err == nil {
		err = inUse(info)
	}
	return err
}

// Delete removes a group, its progress and its marks. ErrNotFound if there is none, and a
// *wire.Error with in_use while it has members, on any sidecar. Members that join elsewhere just
// before the roster shows them begin again where they asked to start. After another error the call
// may be repeated.
func (m *Manager) Delete(ctx context.Context, topic, name string) error {
	g, err := m.find(ctx, topic, name)
	if err != nil {
		return err
	}
	defer m.release(g)
	unused := func() error {
		if err := m.cfg.Roster.Refresh(ctx); err != nil {
			return err
		}
		return m.unused(ctx, topic, name)
	}
	err = g.untilKept(ctx, func() error {
		if err := unused(); err != nil {
			return err
		}
		if err := g.endRedrives(ctx); err != nil {
			return err
		}
		return g.delete(ctx, unused)
	})
	if err != nil {
		return err
	}
	m.cfg.notifyMoved(eventlog.GroupName{Topic: topic, Group: name})
	return m.cfg.Log.ForgetGroup(ctx, topic, name)
}

// endRedrives removes the group's redrives, since no sidecar would deliver them. The dead letters
// stay.
func (g *Group) endRedrives(ctx context.Context) error {
	const some = 1000
	for _, p := range g.parts {
		for {
			rs, err := g.cfg.Log.ListRedrives(ctx, g.id.Topic, g.id.Group, p.Index, some)
			if err == nil && len(rs) > 0 {
				err = g.cfg.Log.EndRedrives(ctx, g.id.Topic, rs)
			}
			if err != nil {
				return err
			}
			if len(rs) == 0 {
				break
			}
		}
	}
	return nil
}

// delete takes the next epoch of all partitions, including those of other sidecars, and then stores
// that the group is deleted with these epochs. Until then each partition continues from its
// progress, so nothing is lost if delete fails half-way. In between, it asks once more whether the
// group is unused. A sidecar delivers without a save only once it is announced that it has members, so
// one that may still do so is found then; else an owner's first save is refused.
func (g *Group) delete(ctx context.Context, unused func() error) error {
	g.moving.Lock()
	defer g.moving.Unlock()
	latest, err := g.latest(ctx)
	if err != nil {
		return err
	}
	g.abandonTaken(latest)
	life := g.cfg.Roster.Standing().ID
	var last []eventlog.Epoch
	for _, e := range latest {
		if e.Number == 0 || e.Deleted {
			continue
		}
		next := g.own.After(e, life)
		if !e.Released {
			next.Owner, next.Kept = e.Owner, true
		}
		last = append(last, next)
	}
	if _, err = g.takeEpochs(ctx, last); err == nil {
		err = unused()
	}
	if err == nil {
		for i := range last {
			last[i].Inherit, last[i].Released, last[i].Deleted, last[i].Progress = false, true, true, eventlog.Progress{}
		}
		if err = g.cfg.Log.SaveEpochs(ctx, last, nil); err == nil {
			err = g.cfg.Log.Sync(ctx)
		}
	}
	if err != nil {
		g.refreshOwners() // a balance releases the epochs that were taken
		g.balancer.Wake()
		return err
	}
	g.mu.Lock()
	g.own.Created = false
	for _, p := range g.parts {
		if p.own.Tried = 0; p.own.State != ownership.Foreign {
			g.abandon(p)
		}
	}
	clear(g.saver.marks)
	clear(g.saver.marking)
	g.mu.Unlock()
	g.worker.Wake()
	return nil
}

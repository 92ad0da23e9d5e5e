package group

import (
	"context"
	"errors"

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
	for _, g := range m.all() {
		if g.id.Topic != topic {
			continue
		}
		if err := m.unused(g); err != nil {
			return err
		}
	}
	names, err := m.cfg.Log.ListGroups(ctx, topic)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := m.unusedElsewhere(topic, name); err != nil {
			return err
		}
	}
	return nil
}

func (m *Manager) unused(g *Group) error {
	g.mu.Lock()
	members := len(g.members) + g.joining
	g.mu.Unlock()
	if members > 0 {
		return wire.Errorf(wire.InUse, "group %q of topic %q still has members here (%d); it can go once they have left",
			g.id.Group, g.id.Topic, members)
	}
	return m.unusedElsewhere(g.id.Topic, g.id.Group)
}

func (m *Manager) unusedElsewhere(topic, name string) error {
	if others := m.cfg.Roster.View().Others(eventlog.GroupName{Topic: topic, Group: name}); len(others) > 0 {
		return wire.Errorf(wire.InUse, "group %q of topic %q has members at sidecar %q; it can go once they have left", name, topic, others[0])
	}
	return nil
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
	if err = m.cfg.Roster.Refresh(ctx); err != nil {
		return err
	}
	for range seekTries {
		if err = m.unused(g); err != nil {
			return err
		}
		if err = g.endRedrives(ctx); err != nil {
			return err
		}
		if err = g.delete(ctx); !errors.Is(err, eventlog.ErrEpochTaken) && !errors.Is(err, eventlog.ErrFenced) {
			break
		}
	}
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
// progress, so nothing is lost if delete fails half-way.
func (g *Group) delete(ctx context.Context) error {
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
		last = append(last, g.own.After(e, life))
	}
	if _, err = g.takeEpochs(ctx, last); err == nil {
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
	g.mu.Unlock()
	g.worker.Wake()
	return nil
}

package group

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// descriptionValid is how old another sidecar's description of its members may be.
const descriptionValid = 10 * time.Second

// describeMembers describes the group's members at this sidecar. It is called with mu held.
func (g *Group) describeMembers(now time.Time) []wire.GroupMember {
	g.open(now)
	unread := g.watch != nil && slices.ContainsFunc(g.parts, func(p *partition) bool { return g.fetchable(p, now) })
	statuses := g.dispatch.Statuses(unread, now)
	described := make([]wire.GroupMember, len(g.members))
	for i, m := range g.members {
		w, address := m.window, m.address
		if m.puller != nil {
			address = cmp.Or(m.puller.Address(), address)
		}
		described[i] = wire.GroupMember{
			ID: w.ID, NodeID: g.cfg.Roster.View().Name, Address: address, Since: m.since.UnixMilli(),
			Inflight: w.Count, MaxInflight: w.Opts.MaxInflight, Paused: w.Paused,
		}
		described[i].OldestUnackedMS, described[i].BlockedBy = statuses(w)
	}
	return described
}

// describe describes the members at this sidecar to the others, as many as there is room for.
func (m *Manager) describe() (all []eventlog.NodeMembers) {
	room := eventlog.MaxMembers
	for _, g := range m.all() {
		if room == 0 {
			break
		}
		g.mu.Lock()
		members := g.describeMembers(g.cfg.Clock.Now())
		g.mu.Unlock()
		if n := min(len(members), room); n > 0 {
			all = append(all, eventlog.NodeMembers{GroupName: g.id, Members: members[:n], More: len(members) - n})
			room -= n
		}
	}
	return all
}

// addElsewhere adds the members at other sidecars.
func (m *Manager) addElsewhere(ctx context.Context, info *wire.GroupInfo) error {
	nodes, err := m.cfg.Roster.Elsewhere(ctx, eventlog.GroupName{Topic: info.Topic, Group: info.Group})
	for _, n := range nodes {
		if !n.Described || n.Age > descriptionValid {
			info.Missing = append(info.Missing, n.Name)
			continue
		}
		info.Members, info.More = append(info.Members, n.Members...), info.More+n.More
	}
	return err
}

// inUse is the refusal of what a group with members prevents; nil if it has none. It names some.
func inUse(info *wire.GroupInfo) error {
	var who []string
	for _, m := range info.Members[:min(len(info.Members), 3)] {
		who = append(who, fmt.Sprintf("%s (%s) at sidecar %q", m.ID, cmp.Or(m.Address, "no address"), m.NodeID))
	}
	for _, node := range info.Missing[:min(len(info.Missing), 3)] {
		who = append(who, fmt.Sprintf("members at sidecar %q", node))
	}
	if more := len(info.Members) + info.More + len(info.Missing) - len(who); more > 0 {
		who = append(who, fmt.Sprintf("%d more", more))
	}
	if len(who) == 0 {
		return nil
	}
	return wire.Errorf(wire.InUse, "group %q of topic %q has members: %s; it can go once they have left",
		info.Group, info.Topic, strings.Join(who, ", "))
}

// BlockedBy is why the members of a group at this sidecar are sent nothing: what holds for most of
// them, "" if that is nothing.
func (m *Manager) BlockedBy(topic, name string) string {
	g := m.inMemory(topic, name)
	if g == nil {
		return ""
	}
	g.mu.Lock()
	members := g.describeMembers(m.cfg.Clock.Now())
	g.mu.Unlock()
	counts, most := map[string]int{}, ""
	for _, member := range members {
		if why := member.BlockedBy; why != nil {
			counts[*why]++
		}
	}
	for why, n := range counts {
		if n > counts[most] || n == counts[most] && why < most {
			most = why
		}
	}
	return most
}

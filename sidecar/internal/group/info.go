package group

import (
	"context"
	"slices"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/group/dispatch"
	"github.com/sluice-bus/sluice/sidecar/internal/group/ownership"
	"github.com/sluice-bus/sluice/sidecar/internal/telemetry"
)

// Info describes a group; eventlog.ErrNotFound if it never had a subscription. For partitions of
// other sidecars it uses their last saved progress. Members and events in flight are only this
// sidecar's.
func (m *Manager) Info(ctx context.Context, topic, name string) (wire.GroupInfo, error) {
	g, err := m.find(ctx, topic, name)
	if err != nil {
		return wire.GroupInfo{}, err
	}
	defer m.release(g)
	extents, err := m.cfg.Log.Extents(ctx, topic)
	if err != nil {
		return wire.GroupInfo{}, err
	}
	elsewhere, err := g.latest(ctx)
	if err != nil {
		return wire.GroupInfo{}, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	info := wire.GroupInfo{
		Topic: topic, Group: name, Paused: m.paused(g.id),
		Partitions: []wire.GroupPartition{}, Members: []wire.GroupMember{},
	}
	for i, x := range g.parts {
		p := x.Partition
		pi := wire.GroupPartition{Partition: i, Owner: m.cfg.Roster.View().Name, Head: extents[i].Head}
		if x.own.State == ownership.Foreign {
			pi.Owner = m.owner(&elsewhere[i])
			p = dispatch.Stored(&elsewhere[i])
		}
		pi.Cursor, pi.Lag, pi.Inflight = p.Cursor(), p.Unsettled(extents[i])+extents[i].Hidden, p.Count(dispatch.InFlight)
		info.Lag += pi.Lag
		info.Inflight += pi.Inflight
		info.Partitions = append(info.Partitions, pi)
	}
	for _, mb := range g.members {
		w := mb.window
		mi := wire.GroupMember{ID: w.ID, Inflight: w.Count, MaxInflight: w.Opts.MaxInflight, Paused: w.Paused}
		if why := g.blockedBy(mb); why != "" {
			if why == BlockedSlowReader && info.Lag == 0 {
				why = dispatch.BlockedCaughtUp // however fast it reads
			}
			mi.BlockedBy = &why
		}
		info.Members = append(info.Members, mi)
	}
	return info, nil
}

// paused reports whether the policy pauses a group.
func (m *Manager) paused(id eventlog.GroupName) bool {
	return m.cfg.Policy(id.Topic).Groups.Of(id.Group).Paused
}

// owner is the name of the sidecar that owns an epoch which is not owned here, "" if none does.
func (m *Manager) owner(e *eventlog.Epoch) string {
	if e.Released || m.cfg.Roster.Ours(e.Owner) {
		return ""
	}
	name, _ := m.cfg.Roster.View().Alive(e.Owner)
	return name
}

// blockedBy says why a member gets nothing right now, or "".
func (g *Group) blockedBy(m *Member) string {
	now := g.cfg.Clock.Now()
	g.open(now)
	why := g.dispatch.BlockedBy(m.window, g.nextToFetch(now) != nil)
	if why == BlockedSlowReader && m.puller != nil {
		return m.puller.Blocked()
	}
	return why
}

// Groups names the groups of a topic.
func (m *Manager) Groups(ctx context.Context, topic string) ([]string, error) {
	return m.cfg.Log.ListGroups(ctx, topic)
}

// Stats are the gauges of the groups that have members here or partitions that this sidecar owns,
// and the lag of partitions without an owner if this sidecar is chosen to report them. A group may
// have several entries: sums over them, and over all sidecars, are right. read is how many
// documents of a store were read for it, roughly.
func (m *Manager) Stats() (stats []telemetry.GroupStat, read int) {
	unfollowed, read, err := m.ownerless() // partitions whose heads are not known here
	for _, g := range m.all() {
		st, owned, ok := g.stat()
		unfollowed = append(unfollowed, owned...)
		if ok {
			stats = append(stats, st)
		}
	}
	if err != nil || len(unfollowed) == 0 {
		return stats, read
	}
	heads := make([]eventlog.Hint, len(unfollowed))
	for i, e := range unfollowed {
		heads[i] = eventlog.Hint{Topic: e.Topic, Partition: e.Partition, Head: max(e.Progress.Cursor, 1) - 1}
	}
	extents, err := m.cfg.Log.Backlog(m.queries, heads)
	if err != nil { // a gauge that cannot be read is left out
		return stats, read
	}
	lags := map[eventlog.GroupName]int64{}
	for i, e := range unfollowed {
		lags[eventlog.GroupName{Topic: e.Topic, Group: e.Group}] += dispatch.Stored(&e).Unsettled(extents[i])
	}
	for g, lag := range lags {
		stats = append(stats, telemetry.GroupStat{Topic: g.Topic, Group: g.Group, Lag: lag, Paused: m.paused(g)})
	}
	return stats, read + len(heads)
}

// stat is the group's own figures; ok says that it has some. A group without members does not
// follow its topic, so it does not know the lag of its partitions, and returns them in owned.
func (g *Group) stat() (st telemetry.GroupStat, owned []eventlog.Epoch, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	st = telemetry.GroupStat{Topic: g.id.Topic, Group: g.id.Group, Paused: g.dispatch.Paused(), Inflight: int64(g.dispatch.InFlightCount())}
	for _, p := range g.parts {
		switch {
		case p.own.State == ownership.Foreign:
		case g.watch == nil:
			owned = append(owned, g.epoch(p, false))
		default:
			st.Lag += p.Unsettled(eventlog.Extent{First: 1, Head: max(p.Head, g.watch.Head(p.Index))})
			ok = true
		}
	}
	return st, owned, ok || len(g.members) > 0
}

// statsOfOwnerless is a task that one sidecar of a store does: it reports the lag of partitions
// without an owner.
const statsOfOwnerless = "group statistics"

// ownerless are the latest epochs of the partitions without an owner, if this sidecar is chosen to
// report them.
func (m *Manager) ownerless() (epochs []eventlog.Epoch, read int, err error) {
	if !m.cfg.Roster.Mine(statsOfOwnerless) {
		return nil, 0, nil
	}
	all, err := m.cfg.Log.AllEpochs(m.queries)
	if err != nil {
		return nil, 0, err
	}
	read = len(all)
	return slices.DeleteFunc(all, func(e eventlog.Epoch) bool { return m.owner(&e) != "" || m.owns(e.GroupPartition) }), read, nil
}

func (m *Manager) owns(at eventlog.GroupPartition) bool {
	g := m.inMemory(at.Topic, at.Group)
	if g == nil {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return at.Partition < len(g.parts) && g.parts[at.Partition].own.State != ownership.Foreign
}

package group

import (
	"context"
	"slices"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/reader"
	"github.com/sluice-bus/sluice/sidecar/internal/telemetry"
)

// The values of wire.GroupMember.BlockedBy.
const (
	BlockedPaused      = "paused"
	BlockedNoPartition = "no_partition"
	BlockedMaxInflight = "max_inflight"
	BlockedSlowReader  = "slow_reader"
	BlockedRate        = "rate"
	BlockedKeyOrder    = "key_order"
	BlockedBackoff     = "backoff"
	BlockedCaughtUp    = "caught_up"
)

// Info describes a group; eventlog.ErrNotFound if it never had a subscription. For partitions of
// other sidecars it uses their last saved progress. Members and events in flight are only this
// sidecar's.
func (m *Manager) Info(ctx context.Context, topic, name string) (wire.GroupInfo, error) {
	g, err := m.known(ctx, topic, name)
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
	info := wire.GroupInfo{Topic: topic, Group: name, Paused: m.cfg.Policy(topic).Groups.Of(name).Paused, Partitions: []wire.GroupPartition{}, Members: []wire.GroupMember{}}
	for i, p := range g.own.parts {
		pi := wire.GroupPartition{Partition: i, Owner: m.cfg.Roster.View().Name, Head: extents[i].Head}
		if p.own == foreign {
			pi.Owner = m.owner(&elsewhere[i])
			p = stored(&elsewhere[i])
		}
		pi.Cursor, pi.Lag = p.cursor(), p.unsettled(extents[i])+extents[i].Hidden
		for e := range p.all() {
			if e.state == inflight {
				pi.Inflight++
			}
		}
		info.Lag += pi.Lag
		info.Inflight += pi.Inflight
		info.Partitions = append(info.Partitions, pi)
	}
	for _, mb := range g.dispatch.members {
		mi := wire.GroupMember{ID: mb.id, Inflight: mb.count, MaxInflight: mb.opts.MaxInflight, Paused: mb.paused}
		if why := g.blockedBy(mb); why != "" {
			if why == BlockedSlowReader && info.Lag == 0 {
				why = BlockedCaughtUp // however fast it reads
			}
			mi.BlockedBy = &why
		}
		info.Members = append(info.Members, mi)
	}
	return info, nil
}

// owner is the name of the sidecar that owns an epoch which is not owned here, "" if none does.
func (m *Manager) owner(e *eventlog.Epoch) string {
	if e.Released || m.cfg.Roster.Ours(e.Owner) {
		return ""
	}
	name, _ := m.cfg.Roster.View().Alive(e.Owner)
	return name
}

// stored is a partition in the state of an epoch in the store.
func stored(e *eventlog.Epoch) *partition {
	p := &partition{Place: reader.Place{Index: e.Partition}}
	p.restore(e.Progress, time.Time{}) // nobody asks when its events are due
	return p
}

// blockedBy says why a member gets nothing right now, or "".
func (g *Group) blockedBy(m *Member) string {
	switch {
	case m.paused, g.dispatch.limits.Paused:
		return BlockedPaused
	case !g.serves(m):
		return BlockedNoPartition
	case m.count >= m.opts.MaxInflight, g.dispatch.room() == 0:
		return BlockedMaxInflight
	case !m.sink.Room() && m.puller != nil:
		return m.puller.Blocked()
	case !m.sink.Room():
		return BlockedSlowReader
	}
	switch has := g.own.parts.states(m.opts.Filter); {
	case has[ready] && (m.starved || g.dispatch.round.starved):
		return BlockedRate
	case has[ready] || g.nextToFetch(g.cfg.Clock.Now()) != nil:
		return ""
	case has[waiting] || has[doubled]:
		return BlockedKeyOrder
	case has[delayed]:
		return BlockedBackoff
	}
	return BlockedCaughtUp
}

// serves reports whether this sidecar has a partition whose events the member may get.
func (g *Group) serves(m *Member) bool {
	st, now := g.cfg.Roster.Standing(), g.cfg.Clock.Now()
	return slices.ContainsFunc(g.own.parts, func(p *partition) bool {
		return p.delivers(st, now) && (!g.dispatch.divided || p.assignee == m)
	})
}

// states reports in which states there are fetched events that the filter lets pass.
func (ps partitions) states(f *wire.Filter) (has [dropped + 1]bool) {
	for _, p := range ps {
		if p.own != owned {
			continue
		}
		for e := range p.all() {
			if e.state != settled && f.Matches(&e.rec.Event) {
				has[e.state] = true
			}
		}
	}
	return has
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
	extents, err := m.cfg.Log.Backlog(m.asking, heads)
	if err != nil { // a gauge that cannot be read is left out
		return stats, read
	}
	lags := map[eventlog.GroupName]int64{}
	for i, e := range unfollowed {
		lags[eventlog.GroupName{Topic: e.Topic, Group: e.Group}] += stored(&e).unsettled(extents[i])
	}
	for g, lag := range lags {
		stats = append(stats, telemetry.GroupStat{Topic: g.Topic, Group: g.Group, Lag: lag, Paused: m.cfg.Policy(g.Topic).Groups.Of(g.Group).Paused})
	}
	return stats, read + len(heads)
}

// stat is the group's own figures; ok says that it has some. A group without members does not
// follow its topic, so it does not know the lag of its partitions, and returns them in owned.
func (g *Group) stat() (st telemetry.GroupStat, owned []eventlog.Epoch, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	st = telemetry.GroupStat{Topic: g.topic, Group: g.name, Paused: g.dispatch.limits.Paused, Inflight: int64(g.dispatch.members.inflight())}
	for _, p := range g.own.parts {
		switch {
		case p.own == foreign:
		case g.watch == nil:
			owned = append(owned, g.epoch(p, false))
		default:
			st.Lag += p.unsettled(eventlog.Extent{First: 1, Head: max(p.Head, g.watch.Head(p.Index))})
			ok = true
		}
	}
	return st, owned, ok || len(g.dispatch.members) > 0
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
	all, err := m.cfg.Log.AllEpochs(m.asking)
	if err != nil {
		return nil, 0, err
	}
	read = len(all)
	return slices.DeleteFunc(all, func(e eventlog.Epoch) bool { return m.owner(&e) != "" || m.owns(e.GroupPartition) }), read, nil
}

func (m *Manager) owns(at eventlog.GroupPartition) bool {
	g := m.loaded(at.Topic, at.Group)
	if g == nil {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return at.Partition < len(g.own.parts) && g.own.parts[at.Partition].own != foreign
}

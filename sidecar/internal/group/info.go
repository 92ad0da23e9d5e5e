package group

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/group/dispatch"
	"github.com/sluice-bus/sluice/sidecar/internal/group/ownership"
	"github.com/sluice-bus/sluice/sidecar/internal/telemetry"
)

// Info describes a group; eventlog.ErrNotFound if it never had a subscription. For partitions of
// other sidecars it uses their last saved progress, and of members at other sidecars what these said
// of them last.
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
	info := wire.GroupInfo{
		Topic: topic, Group: name, Paused: m.paused(g.id),
		Partitions: []wire.GroupPartition{}, Members: []wire.GroupMember{},
	}
	if err := m.addElsewhere(ctx, &info); err != nil {
		return wire.GroupInfo{}, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, x := range g.parts {
		p := x.Partition
		pi := wire.GroupPartition{Partition: i, Owner: m.cfg.Roster.View().Name, Head: extents[i].Head}
		if x.own.State == ownership.Foreign {
			pi.Owner = m.owner(&elsewhere[i])
			p = dispatch.Stored(&elsewhere[i])
		}
		pi.Cursor, pi.Lag, pi.Inflight = p.Cursor(), p.Unsettled(extents[i])+extents[i].Hidden, p.Count(dispatch.InFlight)
		if pi.Owner != "" && x.own.State == ownership.Foreign {
			pi.Inflight = dispatch.Out(&elsewhere[i].Progress)
		}
		info.Lag += pi.Lag
		info.Inflight += pi.Inflight
		info.Partitions = append(info.Partitions, pi)
	}
	info.Members = append(g.describeMembers(m.cfg.Clock.Now()), info.Members...)
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

// Groups names the groups of a topic.
func (m *Manager) Groups(ctx context.Context, topic string) ([]string, error) {
	return m.cfg.Log.ListGroups(ctx, topic)
}

// GroupsOf are the names of the groups of many topics.
func (m *Manager) GroupsOf(ctx context.Context, topics []string) (map[string][]string, error) {
	return m.cfg.Log.GroupsOf(ctx, topics)
}

// Stats are the gauges of the groups that have members here or partitions that this sidecar owns,
// and the lag of partitions without an owner if this sidecar is chosen to report them. A group may
// have several entries: sums over them, and over all sidecars, are right. read is how many
// documents of a store were read for it, roughly.
func (m *Manager) Stats() (stats []telemetry.GroupStat, read int) {
	unfollowed, read, err := m.ownerless() // partitions whose heads are not known here
	for _, g := range m.all() {
		st, owned, unread, ok := g.stat()
		unfollowed = append(unfollowed, owned...)
		for p, cursor := range unread {
			st.Oldest = telemetry.Earlier(st.Oldest, m.oldest.at(m, p, cursor))
		}
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
	behind := map[eventlog.GroupName]telemetry.GroupStat{}
	for i, e := range unfollowed {
		name := eventlog.GroupName{Topic: e.Topic, Group: e.Group}
		st := behind[name]
		if n := dispatch.Stored(&e).Unsettled(extents[i]); n > 0 {
			st.Lag += n
			st.Oldest = telemetry.Earlier(st.Oldest, m.oldest.at(m, e.GroupPartition, e.Progress.Cursor))
		}
		behind[name] = st
	}
	for g, st := range behind {
		st.Topic, st.Group, st.Paused = g.Topic, g.Group, m.paused(g)
		stats = append(stats, st)
	}
	return stats, read + len(heads) + m.oldest.turn()
}

// oldestReads bounds the events that are read for one call of Stats; the others are read for the
// next ones.
const oldestReads = 100

// oldest knows when the events at the cursors of partitions were accepted that this sidecar does not
// have in memory: nobody consumes them here. Such a cursor stays, so its event is read once.
type oldest struct {
	mu           sync.Mutex
	known, asked map[eventlog.GroupPartition]cursorEvent // before this turn, and in it
	reads        int                                     // in this turn
}

// cursorEvent is the event at a cursor, or the next one that is there; its time is zero if there is
// none.
type cursorEvent struct {
	cursor   uint64
	accepted time.Time
}

// at is when the event at a cursor was accepted; zero: that is not known yet.
func (o *oldest) at(m *Manager, p eventlog.GroupPartition, cursor uint64) time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	e, known := o.known[p]
	if !known || e.cursor != cursor {
		if o.reads >= oldestReads {
			return time.Time{}
		}
		o.reads++
		found, err := m.cfg.Log.Read(m.queries, p.Topic, p.Partition, cursor, eventlog.Bounds{Events: 1})
		if err != nil {
			return time.Time{}
		}
		if e = (cursorEvent{cursor: cursor}); len(found) > 0 {
			e.accepted = time.UnixMilli(found[0].AcceptedAt)
		}
	}
	if o.asked == nil {
		o.asked = map[eventlog.GroupPartition]cursorEvent{}
	}
	o.asked[p] = e
	return e.accepted
}

// turn forgets the partitions that nobody has asked for since the last turn. It returns how many
// events were read since then.
func (o *oldest) turn() (reads int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	reads = o.reads
	o.known, o.asked, o.reads = o.asked, nil, 0
	return reads
}

// stat is the group's own figures; ok says that it has some. A group without members does not
// follow its topic, so it does not know the lag of its partitions, and returns them in owned. unread
// has the cursors of partitions with unsettled events that are not in memory.
func (g *Group) stat() (st telemetry.GroupStat, owned []eventlog.Epoch, unread map[eventlog.GroupPartition]uint64, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	st = telemetry.GroupStat{Topic: g.id.Topic, Group: g.id.Group, Paused: g.dispatch.Paused(), Inflight: int64(g.dispatch.InFlightCount()),
		Members: len(g.members)}
	for _, p := range g.parts {
		switch {
		case p.own.State == ownership.Foreign:
		case g.watch == nil:
			owned = append(owned, g.epoch(p, false))
		default:
			n, at := p.Unsettled(eventlog.Extent{First: 1, Head: max(p.Head, g.watch.Head(p.Index))}), p.Oldest()
			if st.Lag += n; n > 0 && at.IsZero() {
				if unread == nil {
					unread = map[eventlog.GroupPartition]uint64{}
				}
				unread[eventlog.GroupPartition{Topic: g.id.Topic, Group: g.id.Group, Partition: p.Index}] = p.Cursor()
			}
			st.Oldest = telemetry.Earlier(st.Oldest, at)
			ok = true
		}
	}
	return st, owned, unread, ok || len(g.members) > 0
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

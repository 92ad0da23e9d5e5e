package group

import (
	"context"
	"errors"
	"slices"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/telemetry"
)

// Why a member is sent nothing right now.
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

// Info is a group as people and their tools see it.
type Info struct {
	Topic      string          `json:"topic"`
	Group      string          `json:"group"`
	Lag        int64           `json:"lag"`      // events that are not settled
	Inflight   int             `json:"inflight"` // of those, sent and not settled
	Partitions []PartitionInfo `json:"partitions"`
	Members    []MemberInfo    `json:"members"`
}

// PartitionInfo is a group's place in one partition.
type PartitionInfo struct {
	Partition int    `json:"partition"`
	Owner     string `json:"owner"`  // the sidecar that delivers from it; "" if none does
	Cursor    uint64 `json:"cursor"` // the lowest seq that is not settled
	Head      uint64 `json:"head"`   // the highest seq there is
	Lag       int64  `json:"lag"`
	Inflight  int    `json:"inflight"`
}

// MemberInfo is one subscription of a group.
type MemberInfo struct {
	ID          string  `json:"id"`
	Inflight    int     `json:"inflight"`
	MaxInflight int     `json:"max_inflight"`
	Paused      bool    `json:"paused"`
	BlockedBy   *string `json:"blocked_by"` // why it is sent nothing right now, or null
}

// Info describes a group; eventlog.ErrNotFound if nobody ever subscribed to it.
// What other sidecars have is told as they saved it last, and members and
// events in flight only of this one.
func (m *Manager) Info(ctx context.Context, topic, name string) (Info, error) {
	g, err := m.known(ctx, topic, name)
	if err != nil {
		return Info{}, err
	}
	extents, err := m.cfg.Log.Extents(ctx, topic)
	if err != nil {
		return Info{}, err
	}
	elsewhere, err := g.latest(ctx)
	if err != nil {
		return Info{}, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	info := Info{Topic: topic, Group: name, Partitions: []PartitionInfo{}, Members: []MemberInfo{}}
	for i, p := range g.parts {
		pi := PartitionInfo{Partition: i, Owner: m.cfg.Roster.View().Name, Head: extents[i].Head}
		if p.own == foreign {
			pi.Owner = m.owner(&elsewhere[i])
			p = stored(&elsewhere[i])
		}
		pi.Cursor, pi.Lag = p.cursor(), p.unsettled(extents[i])
		for _, e := range p.entries {
			if e.state == inflight {
				pi.Inflight++
			}
		}
		info.Lag += pi.Lag
		info.Inflight += pi.Inflight
		info.Partitions = append(info.Partitions, pi)
	}
	for _, mb := range g.members {
		mi := MemberInfo{ID: mb.id, Inflight: mb.count, MaxInflight: mb.opts.MaxInflight, Paused: mb.paused}
		if why := g.blockedBy(mb); why != "" {
			if why == BlockedSlowReader && info.Lag == 0 {
				why = BlockedCaughtUp // however fast it would read
			}
			mi.BlockedBy = &why
		}
		info.Members = append(info.Members, mi)
	}
	return info, nil
}

// owner is the name of the sidecar that owns an epoch which is not owned here,
// "" if none does.
func (m *Manager) owner(e *eventlog.Epoch) string {
	if e.Released || m.cfg.Roster.Ours(e.Owner) {
		return ""
	}
	name, _ := m.cfg.Roster.View().Alive(e.Owner)
	return name
}

// stored is a partition as an epoch in the store tells of it.
func stored(e *eventlog.Epoch) *partition {
	p := &partition{index: e.Partition}
	p.restore(e.Progress)
	return p
}

// blockedBy says why a member is sent nothing right now, or "".
func (g *Group) blockedBy(m *Member) string {
	switch {
	case m.paused:
		return BlockedPaused
	case !g.serves(m):
		return BlockedNoPartition
	case m.count >= m.opts.MaxInflight:
		return BlockedMaxInflight
	case !m.sink.Room() && m.taker != nil:
		return m.taker.Blocked()
	case !m.sink.Room():
		return BlockedSlowReader
	}
	switch has := g.states(m.opts.Filter); {
	case has[ready] && m.starved:
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

// serves reports whether there is a partition here whose events the member may
// be sent.
func (g *Group) serves(m *Member) bool {
	st, now := g.cfg.Roster.Standing(), g.cfg.Clock.Now()
	return slices.ContainsFunc(g.parts, func(p *partition) bool {
		return p.delivers(st, now) && (!g.divided || p.assignee == m)
	})
}

// states tells which states the fetched events are in that a filter lets pass.
func (g *Group) states(f *wire.Filter) (has [dropped + 1]bool) {
	for _, p := range g.parts {
		if p.own != owned {
			continue
		}
		for _, e := range p.entries {
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

// Stats are the gauges of all groups that are known. The sum over all sidecars
// is right: a partition's lag is told by its owner, and while it has none, by
// one sidecar that is chosen for the group.
func (m *Manager) Stats() []telemetry.GroupStat {
	var out []telemetry.GroupStat
	away := false // the store is, and does not keep each group waiting
	for _, g := range m.all() {
		if !g.isLoaded() {
			continue
		}
		// A gauge that cannot be read is left out.
		st, err := m.stat(m.asking, g, away)
		if err == nil {
			out = append(out, st)
		}
		away = away || errors.Is(err, eventlog.ErrUnavailable)
	}
	return out
}

// followed is what the partitions hold as far as it was announced, while the
// group follows its topic, else nil; any and all say that some or all partitions
// are owned here. It spares the store a question.
func (g *Group) followed() (extents []eventlog.Extent, any, all bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	any = g.ownsAny()
	all = !slices.ContainsFunc(g.parts, func(p *partition) bool { return p.own == foreign })
	if g.watch == nil {
		return nil, any, all
	}
	for _, p := range g.parts {
		extents = append(extents, eventlog.Extent{First: 1, Head: max(p.head, g.watch.Head(p.index))})
	}
	return extents, any, all
}

func (m *Manager) stat(ctx context.Context, g *Group, away bool) (telemetry.GroupStat, error) {
	st := telemetry.GroupStat{Topic: g.topic, Group: g.name}
	extents, any, all := g.followed()
	mine := !all && m.cfg.Roster.Mine(g.topic+"\x00"+g.name)
	ask := mine || any && extents == nil
	if ask && away {
		return st, eventlog.ErrUnavailable
	}
	var err error
	if ask {
		if extents, err = m.cfg.Log.Extents(ctx, g.topic); err != nil {
			return st, err
		}
	}
	var elsewhere []eventlog.Epoch
	if mine {
		if elsewhere, err = g.latest(ctx); err != nil {
			return st, err
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, mb := range g.members {
		st.Inflight += int64(mb.count)
	}
	for i, p := range g.parts {
		switch {
		case p.own != foreign && extents != nil: // or it was taken just now
			st.Lag += p.unsettled(extents[i])
		case elsewhere != nil && m.owner(&elsewhere[i]) == "":
			st.Lag += stored(&elsewhere[i]).unsettled(extents[i])
		}
	}
	return st, nil
}

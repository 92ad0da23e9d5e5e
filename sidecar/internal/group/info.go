package group

import (
	"context"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
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
func (m *Manager) Info(ctx context.Context, topic, name string) (Info, error) {
	g, err := m.known(ctx, topic, name)
	if err != nil {
		return Info{}, err
	}
	extents, err := m.cfg.Log.Extents(ctx, topic)
	if err != nil {
		return Info{}, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	info := Info{Topic: topic, Group: name, Partitions: []PartitionInfo{}, Members: []MemberInfo{}}
	for i, p := range g.parts {
		pi := PartitionInfo{Partition: i, Cursor: p.cursor(), Head: extents[i].Head, Lag: p.unsettled(extents[i])}
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
			mi.BlockedBy = &why
		}
		info.Members = append(info.Members, mi)
	}
	return info, nil
}

// blockedBy says why a member is sent nothing right now, or "".
func (g *Group) blockedBy(m *Member) string {
	switch {
	case m.paused:
		return BlockedPaused
	case len(g.parts) == 0:
		return BlockedNoPartition
	case m.count >= m.opts.MaxInflight:
		return BlockedMaxInflight
	case !m.sink.Room():
		return BlockedSlowReader
	}
	switch has := g.states(m.opts.Filter); {
	case has[ready] && m.starved:
		return BlockedRate
	case has[ready] || g.nextToFetch(time.Now()) != nil:
		return ""
	case has[waiting] || has[doubled]:
		return BlockedKeyOrder
	case has[delayed]:
		return BlockedBackoff
	}
	return BlockedCaughtUp
}

// states tells which states the fetched events are in that a filter lets pass.
func (g *Group) states(f *wire.Filter) (has [dropped + 1]bool) {
	for _, p := range g.parts {
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

// Stats are the gauges of all groups that are known.
func (m *Manager) Stats() []telemetry.GroupStat {
	var out []telemetry.GroupStat
	for _, g := range m.all() {
		if !g.isLoaded() {
			continue
		}
		extents, err := m.cfg.Log.Extents(m.cfg.Context, g.topic)
		if err != nil {
			continue // a gauge that cannot be read is left out
		}
		g.mu.Lock()
		st := telemetry.GroupStat{Topic: g.topic, Group: g.name}
		for _, mb := range g.members {
			st.Inflight += int64(mb.count)
		}
		for i, p := range g.parts {
			st.Lag += p.unsettled(extents[i])
		}
		g.mu.Unlock()
		out = append(out, st)
	}
	return out
}

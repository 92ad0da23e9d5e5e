package group

import (
	"context"
	"slices"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/group/deadletter"
	"github.com/sluice-bus/sluice/sidecar/internal/group/dispatch"
	"github.com/sluice-bus/sluice/sidecar/internal/group/ownership"
)

// Fates returns the fate of a stored event in each group of its topic that sees accepts. For
// partitions of other sidecars it uses their last saved progress.
func (m *Manager) Fates(
	ctx context.Context, rec *eventlog.Record, sees func(group string) bool, lookup deadletter.Lookup,
) ([]wire.EventFate, error) {
	names, err := m.Groups(ctx, rec.Topic)
	if err != nil {
		return nil, err
	}
	fates := []wire.EventFate{} // [] rather than null
	for _, name := range names {
		if !sees(name) {
			continue
		}
		f, err := m.eventState(ctx, rec, name, lookup)
		if err != nil {
			return nil, err
		}
		fates = append(fates, f)
	}
	return fates, nil
}

func (m *Manager) eventState(ctx context.Context, rec *eventlog.Record, name string, lookup deadletter.Lookup) (wire.EventFate, error) {
	g, err := m.find(ctx, rec.Topic, name)
	if err != nil {
		return wire.EventFate{}, err
	}
	defer m.release(g)
	elsewhere, err := g.latest(ctx)
	if err != nil {
		return wire.EventFate{}, err
	}
	var last eventlog.Epoch // none: no sidecar ever had the partition
	if rec.Partition < len(elsewhere) {
		last = elsewhere[rec.Partition]
	}
	f, since := g.eventState(rec, &last, m.owner(&last), m.cfg.Clock.Now())
	if f.State != wire.FateSettled {
		return f, nil
	}
	topics, err := m.cfg.Log.DeadLetterTopics(ctx, rec.Topic)
	if err != nil {
		return f, err
	}
	if f.DeadLetter, err = deadletter.Of(ctx, rec, topics, name, since, lookup); err != nil {
		return f, err
	}
	if f.DeadLetter != nil {
		f.State, f.Attempts = wire.FateDead, f.DeadLetter.Attempts
		return f, nil
	}
	marked, err := m.cfg.Log.Marked(ctx, rec.Topic, name, []string{rec.ID}, m.cfg.Clock.Now().UnixMilli())
	if err != nil {
		return f, err
	}
	if marked[0] {
		f.State = wire.FateAcked
	}
	return f, nil
}

// eventState is the event's state as this sidecar knows it. In a partition that this sidecar does
// not own, it comes from the last epoch, with that epoch's owner.
func (g *Group) eventState(rec *eventlog.Record, last *eventlog.Epoch, owner string, now time.Time) (f wire.EventFate, since int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := dispatch.Stored(last)
	f = wire.EventFate{Group: g.id.Group, Owner: owner}
	here := rec.Partition < len(g.parts) && g.parts[rec.Partition].own.State != ownership.Foreign
	if here {
		f.Owner, p = g.cfg.Roster.View().Name, g.parts[rec.Partition].Partition
	}
	f.Cursor = p.Cursor()
	if p.Describe(rec.Seq, &f, now) {
		return f, p.Since
	}
	switch {
	case f.Owner != "" && !here && slices.ContainsFunc(last.Progress.Out, dispatch.Holds(rec.Seq)):
		f.State, f.WaitsFor = wire.FateInflight, "" // with a member that only the owner knows
	case f.Owner != "" && !here:
		f.WaitsFor = dispatch.WaitsForOwner
	case here && len(g.members) == 0:
		f.WaitsFor = dispatch.WaitsForMember
	}
	return f, p.Since
}

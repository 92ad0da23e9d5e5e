package group

import (
	"context"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/follower"
	"github.com/sluice-bus/sluice/sidecar/internal/group/dispatch"
	"github.com/sluice-bus/sluice/sidecar/internal/group/position"
)

// Follow subscribes without a group. Deliveries begin after Start. Errors are those of
// Manager.Subscribe. Options about acks do not apply. The caller closes the Follower: Manager.Stop
// does not.
//
// With s.Merged, stored events come in (ts, id) order across partitions. So a later Follow with the
// StartsAfter of the last delivered event continues where this one ended, as far as events were
// stored in (ts, id) order.
//
// s.Starts, the first seq of each partition, replaces the options' position if it is not empty.
func (m *Manager) Follow(ctx context.Context, s Subscription) (*follower.Follower, error) {
	m.mu.Lock()
	stopped := m.stopped
	m.mu.Unlock()
	if stopped {
		return nil, errStopped
	}
	if _, err := m.cfg.Log.EnsureTopic(ctx, s.Topic, m.cfg.Policy(s.Topic).Partitions); err != nil {
		return nil, err
	}
	f, err := follower.Follow(ctx, follower.Config{
		Context: m.cfg.Context, Log: m.cfg.Log, Tails: m.cfg.Tails, Topic: s.Topic,
		Starts: func(ctx context.Context) ([]uint64, error) { return m.startsOf(ctx, s) },
		Filter: s.Options.Filter, Sink: recordSink{s.Sink}, Pacer: s.Pacer, Merged: s.Merged,
		FetchEvents: m.cfg.Bounds.FetchEvents, TurnBytes: dispatch.TurnBytes,
		Memory: s.Memory, Clock: m.cfg.Clock, Logger: m.cfg.Logger,
		Gone: func() { m.countFollower(s.Topic, -1) },
	})
	if err == nil {
		m.countFollower(s.Topic, 1)
	}
	return f, err
}

// recordSink is a sink of events that are not acked.
type recordSink struct{ Sink }

func (s recordSink) Deliver(recs []*eventlog.Record) {
	ds := make([]Delivery, len(recs))
	for i, rec := range recs {
		ds[i].Record = rec
	}
	s.Sink.Deliver(ds)
}

// startsOf is where a subscription without a group starts in each partition.
func (m *Manager) startsOf(ctx context.Context, s Subscription) ([]uint64, error) {
	if len(s.Starts) > 0 {
		return s.Starts, nil
	}
	return position.Starts(ctx, m.cfg.Log, s.Topic, s.Options)
}

// StartsAfter is where a merged subscription without a group goes on after an event. gone says that
// the topic does not have the event any more, so that others behind it may be gone, too.
func (m *Manager) StartsAfter(ctx context.Context, topic, id string) (starts []uint64, gone bool, err error) {
	return position.After(ctx, m.cfg.Log, topic, id, m.cfg.Policy(topic).Retention)
}

package group

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/policy"
	"github.com/sluice-bus/sluice/sidecar/internal/tail"
	"github.com/sluice-bus/sluice/sidecar/internal/telemetry"
)

// Bounds of what a group keeps in memory.
type Bounds struct {
	// Lookahead is how many events of a partition are fetched from the lowest
	// unsettled one on: how far other keys may get ahead of one that is stuck.
	Lookahead int
	// HeldBytes is how much of fetched events that are not settled.
	HeldBytes int
	// FetchEvents and FetchBytes bound one read from the log.
	FetchEvents int
	FetchBytes  int
}

// DefaultBounds let a group hold some tens of megabytes at the most.
func DefaultBounds() Bounds {
	return Bounds{Lookahead: 10_000, HeldBytes: 32 << 20, FetchEvents: 1000, FetchBytes: 1 << 20}
}

// Log is what groups need of the event log.
type Log interface {
	eventlog.Reader
	eventlog.Groups
	EnsureTopic(ctx context.Context, name string, partitions int) (eventlog.Topic, error)
}

// Config is what a Manager needs; every field is required.
type Config struct {
	// Context ends when stopping may not wait any longer.
	Context     context.Context
	Log         Log
	Tails       *tail.Tails
	Policy      func(topic string) *policy.Effective
	DeadLetters DeadLetters
	Metrics     *telemetry.Metrics
	NodeID      string
	Logger      *slog.Logger
	Bounds      Bounds
}

// Manager has the groups of all topics. Its methods are safe for concurrent
// use.
type Manager struct {
	cfg Config

	mu      sync.Mutex
	stopped bool
	groups  map[groupKey]*Group
}

type groupKey struct{ topic, group string }

// NewManager makes a Manager that knows no group yet.
func NewManager(cfg Config) *Manager {
	return &Manager{cfg: cfg, groups: make(map[groupKey]*Group)}
}

// Subscription is what a client asks for.
type Subscription struct {
	Topic, Group string
	Options      wire.SubscribeOptions
	Sink         Sink
	Pacer        Pacer
	// MemberID names the member to people.
	MemberID string
}

// Subscribe adds a member to its group, which it creates on first use.
// Deliveries begin after Start. The error is a *wire.Error for a position that
// does not exist, or wraps eventlog.ErrUnavailable.
func (m *Manager) Subscribe(ctx context.Context, s Subscription) (*Member, error) {
	g, err := m.group(s.Topic, s.Group)
	if err != nil {
		return nil, err
	}
	if err := g.own(ctx, &s.Options); err != nil {
		return nil, err
	}
	eff := m.cfg.Policy(s.Topic)
	member := &Member{
		group: g, id: s.MemberID, sink: s.Sink, pacer: s.Pacer,
		requested: s.Options, opts: Resolve(s.Options, eff.Delivery),
	}
	return member, g.join(ctx, member)
}

// group finds or makes the group in memory.
func (m *Manager) group(topic, name string) (*Group, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stopped {
		return nil, errStopped
	}
	k := groupKey{topic, name}
	g := m.groups[k]
	if g == nil {
		g = newGroup(topic, name, m.cfg)
		m.groups[k] = g
	}
	return g, nil
}

// known finds a group in memory or in the store; ErrNotFound if nobody ever
// subscribed to it. It takes no ownership.
func (m *Manager) known(ctx context.Context, topic, name string) (*Group, error) {
	m.mu.Lock()
	g := m.groups[groupKey{topic, name}]
	m.mu.Unlock()
	if g != nil && g.isLoaded() {
		return g, nil
	}
	tp, err := m.cfg.Log.LookupTopic(ctx, topic)
	if err != nil {
		return nil, err
	}
	epochs, err := m.cfg.Log.LatestEpochs(ctx, topic, name)
	if err != nil {
		return nil, err
	}
	if len(epochs) == 0 {
		return nil, eventlog.ErrNotFound
	}
	if g, err = m.group(topic, name); err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.parts == nil {
		all := make([]eventlog.Epoch, tp.Partitions)
		for _, e := range epochs {
			all[e.Partition] = e
		}
		g.restore(all)
	}
	return g, nil
}

// restore sets the group's partitions to what the store says.
func (g *Group) restore(epochs []eventlog.Epoch) {
	g.parts = make([]*partition, len(epochs))
	for i, e := range epochs {
		g.parts[i] = &partition{index: i, epoch: e.Number}
		g.parts[i].restore(e.Progress)
	}
}

func (g *Group) isLoaded() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.parts != nil
}

func (g *Group) isOwned() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.owned
}

// own takes the group's partitions from whoever had them before: with the
// progress that is stored, or at the position that o asks for where there is
// none.
func (g *Group) own(ctx context.Context, o *wire.SubscribeOptions) error {
	g.opening.Lock()
	defer g.opening.Unlock()
	if g.isOwned() {
		return nil
	}
	tp, err := g.cfg.Log.EnsureTopic(ctx, g.topic, g.cfg.Policy(g.topic).Partitions)
	if err != nil {
		return err
	}
	stored, err := g.cfg.Log.LatestEpochs(ctx, g.topic, g.name)
	if err != nil {
		return err
	}
	epochs := make([]eventlog.Epoch, tp.Partitions)
	for _, e := range stored {
		epochs[e.Partition] = e
	}
	if len(stored) < tp.Partitions {
		starts, err := g.starts(ctx, o)
		if err != nil {
			return err
		}
		for i := range epochs {
			if epochs[i].Number == 0 {
				epochs[i].Progress.Cursor = starts[i]
			}
		}
	}
	for i := range epochs {
		epochs[i].GroupPartition = eventlog.GroupPartition{Topic: g.topic, Group: g.name, Partition: i}
		epochs[i].Number++
		epochs[i].Owner, epochs[i].Beat, epochs[i].Released = g.cfg.NodeID, 0, false
	}
	if err := errors.Join(g.cfg.Log.TakeEpochs(ctx, epochs)...); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.restore(epochs)
	g.owned = true
	return nil
}

// starts is where a new group begins.
func (g *Group) starts(ctx context.Context, o *wire.SubscribeOptions) ([]uint64, error) {
	if o == nil {
		o = &wire.SubscribeOptions{}
	}
	return seek(ctx, g.cfg.Log, g.topic, *o)
}

// seek turns a position as a client gives it into the seq to start at, per
// partition.
func seek(ctx context.Context, log eventlog.Reader, topic string, o wire.SubscribeOptions) ([]uint64, error) {
	p := eventlog.Position{From: o.From}
	switch o.From {
	case "":
		p.From = wire.FromLatest
	case wire.FromTS:
		p.TS = *o.TS
	case wire.FromAfterID:
		rec, err := log.Lookup(ctx, topic, o.AfterID)
		if errors.Is(err, eventlog.ErrNotFound) {
			return nil, wire.Errorf(wire.NotFound, "afterId: topic %q has no event with id %q", topic, o.AfterID)
		}
		if err != nil {
			return nil, err
		}
		p.After = eventlog.Point{TS: rec.TS, ID: rec.ID}
	}
	return log.Seek(ctx, topic, p)
}

// join adds a member to a group that is owned. The group follows its topic
// from here on, until it has no members any more.
func (g *Group) join(ctx context.Context, m *Member) error {
	g.mu.Lock()
	g.joining++ // keeps the watch open
	if g.watch == nil {
		g.watch = g.cfg.Tails.Watch(g.topic, g.worker.wake)
	}
	g.mu.Unlock()
	extents, err := g.cfg.Log.Extents(ctx, g.topic)

	g.mu.Lock()
	defer g.mu.Unlock()
	defer g.worker.wake()
	g.joining--
	if g.stopped {
		return errStopped
	}
	if err != nil {
		return err
	}
	for i, p := range g.parts {
		p.head = max(p.head, extents[i].Head)
	}
	g.members = append(slices.Clip(g.members), m) // a turn may hold the old list
	g.reorder()
	return nil
}

// Seek moves a group, at once also while it has members: what they have in
// flight becomes stale. ErrNotFound if nobody ever subscribed to it.
func (m *Manager) Seek(ctx context.Context, topic, name string, o wire.SubscribeOptions) error {
	g, err := m.known(ctx, topic, name)
	if err != nil {
		return err
	}
	if err := g.own(ctx, nil); err != nil {
		return err
	}
	starts, err := seek(ctx, m.cfg.Log, topic, o)
	if err != nil {
		return err
	}
	saved := make(chan error, 1)
	g.mu.Lock()
	g.forget(func(p *partition) {
		p.restore(eventlog.Progress{Cursor: starts[p.index]})
		p.dirty = true
	})
	g.whenSaved(func(err error) { saved <- err })
	select {
	case err := <-saved:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Load brings the groups of the store into memory, so that their lag is known
// before anybody subscribes. It takes no ownership.
func (m *Manager) Load(ctx context.Context) error {
	topics, err := m.cfg.Log.Topics(ctx)
	if err != nil {
		return err
	}
	for _, tp := range topics {
		names, err := m.cfg.Log.ListGroups(ctx, tp.Name)
		if err != nil {
			return err
		}
		for _, name := range names {
			if _, err := m.known(ctx, tp.Name, name); err != nil {
				return err
			}
		}
	}
	return nil
}

// all lists the groups in memory.
func (m *Manager) all() []*Group {
	m.mu.Lock()
	defer m.mu.Unlock()
	gs := make([]*Group, 0, len(m.groups))
	for _, g := range m.groups {
		gs = append(gs, g)
	}
	return gs
}

// PoliciesChanged lets every group look at its policy again.
func (m *Manager) PoliciesChanged() {
	for _, g := range m.all() {
		g.worker.wake()
	}
}

// Stop gives everything in flight back without counting an attempt, saves the
// progress of every group and releases it. Subscriptions are over.
func (m *Manager) Stop(ctx context.Context) error {
	m.mu.Lock()
	m.stopped = true
	m.mu.Unlock()
	var errs []error
	for _, g := range m.all() {
		errs = append(errs, g.stop(ctx))
	}
	return errors.Join(errs...)
}

// stop ends the group in this process.
func (g *Group) stop(ctx context.Context) error {
	g.mu.Lock()
	members := g.members
	g.mu.Unlock()
	for _, m := range members {
		m.Close(Unsubscribed)
	}
	g.worker.stop()
	g.alarm.Stop()
	g.opening.Lock()
	defer g.opening.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stopped = true
	if g.watch != nil {
		g.watch.Close()
		g.watch = nil
	}
	if !g.owned {
		return nil
	}
	g.owned = false
	g.beat++
	s := save{marks: g.marks, waiters: g.waiters}
	for _, p := range g.parts {
		s.epochs = append(s.epochs, g.epoch(p, true))
	}
	err := s.store(ctx, g.cfg.Log)
	for _, done := range s.waiters {
		done(err)
	}
	return err
}

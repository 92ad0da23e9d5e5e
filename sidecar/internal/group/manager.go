package group

import (
	"context"
	"errors"
	"log/slog"
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
	g, err := m.hold(s.Topic, s.Group)
	if err != nil {
		return nil, err
	}
	defer m.release(g)
	if err := g.own(ctx, s.Options); err != nil {
		return nil, err
	}
	member := &Member{group: g, id: s.MemberID, sink: s.Sink, pacer: s.Pacer, requested: s.Options}
	if err := g.join(ctx, member); err != nil {
		return nil, err
	}
	return member, nil
}

// hold finds or makes the group in memory, where it stays until release at
// least.
func (m *Manager) hold(topic, name string) (*Group, error) {
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
	g.users++
	return g, nil
}

// release lets go of a group. One that nobody ever took, since the call that
// made it has failed, is forgotten.
func (m *Manager) release(g *Group) {
	m.mu.Lock()
	defer m.mu.Unlock()
	g.users--
	if g.users == 0 && !g.isLoaded() {
		delete(m.groups, groupKey{g.topic, g.name})
	}
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
	if g, err = m.hold(topic, name); err != nil {
		return nil, err
	}
	defer m.release(g)
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

// Seek moves a group, at once also while it has members: what they have in
// flight becomes stale. ErrNotFound if nobody ever subscribed to it. After
// another error the group may have moved all the same.
func (m *Manager) Seek(ctx context.Context, topic, name string, o wire.SubscribeOptions) error {
	g, err := m.known(ctx, topic, name)
	if err != nil {
		return err
	}
	if err := g.own(ctx, wire.SubscribeOptions{}); err != nil {
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
	g.whenDurable(func(err error) { saved <- err })
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

func (m *Manager) isStopped() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.stopped
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
	groups := m.all()
	errs := make([]error, len(groups))
	var stopping sync.WaitGroup // at once, so that they share the store's syncs
	for i, g := range groups {
		stopping.Go(func() { errs[i] = g.stop(ctx) })
	}
	stopping.Wait()
	return errors.Join(errs...)
}

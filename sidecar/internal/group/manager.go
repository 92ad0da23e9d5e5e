package group

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/sluice-bus/sluice/internal/clock"
	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/budget"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/group/dispatch"
	"github.com/sluice-bus/sluice/sidecar/internal/roster"
	"github.com/sluice-bus/sluice/sidecar/internal/tail"
	"github.com/sluice-bus/sluice/sidecar/internal/telemetry"
	"github.com/sluice-bus/sluice/sidecar/internal/tracing"
)

// Bounds of what a group keeps in memory.
type Bounds struct {
	// Lookahead is how many events of a partition are fetched, counted from the lowest unsettled
	// one: so far other keys may get ahead of a stuck key.
	Lookahead int
	// HeldBytes bounds the bytes of fetched events that are not settled.
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
	eventlog.Redrives
	EnsureTopic(ctx context.Context, name string, partitions int) (eventlog.Topic, error)
	ForgetGroup(ctx context.Context, topic, group string) error
}

// Config is what a Manager needs; every field but Moved, Memory, Tracing and Clock is required.
type Config struct {
	// Context ends when stopping may not wait any longer.
	Context     context.Context
	Log         Log
	Tails       *tail.Tails
	Policy      func(topic string) *policy.Effective
	DeadLetters DeadLetters
	Metrics     *telemetry.Metrics
	Tracing     *tracing.Tracing
	// Roster says which sidecars are alive; it is run beside the Manager, and ends after the
	// Manager has stopped.
	Roster *roster.Roster
	// AckTimeout bounds how long an ack waits for its progress to be durable; 0: no bound.
	AckTimeout time.Duration
	// AckLinger is how long acks wait for the next deliveries, to share a save with them; those of
	// a Puller do not wait.
	AckLinger time.Duration
	// Moved, if set, calls Manager.Moved on the other sidecars. These then look at the owners of
	// the group's partitions. It must not block.
	Moved  func(eventlog.GroupName)
	Logger *slog.Logger
	Bounds Bounds
	// Memory counts the bytes of all connections and of the events that groups hold. Once it is
	// used up, a group that holds events fetches no more.
	Memory *budget.Budget
	Clock  clock.Clock
	// MaxGroups bounds the groups of the store; 0: any number.
	MaxGroups int
	// MaxGroupsEach bounds the groups that were made for one identity; 0: any number.
	MaxGroupsEach int
	count         *groupCount // the Manager's
}

// DefaultAckLinger is for a log whose saves each cost a command to a remote store.
const DefaultAckLinger = 20 * time.Millisecond

func (c *Config) tellMoved(topic, group string) {
	if c.Moved != nil {
		c.Moved(eventlog.GroupName{Topic: topic, Group: group})
	}
}

// Manager has the groups of all topics. Its methods are safe for concurrent use.
type Manager struct {
	cfg Config
	// asking ends when the Manager stops, for queries whose answers a stop does not need.
	asking     context.Context
	stopAsking context.CancelFunc

	mu        sync.Mutex
	stopped   bool
	groups    map[eventlog.GroupName]*Group
	followers map[string]int // subscriptions without a group, by topic
	list      []*Group       // the same, in order of arrival

	// Only looked uses these.
	version   uint64 // of the last view
	life      string // the last one
	checked   int    // place in list of the group that was last checked
	checkedAt time.Time
}

// NewManager makes a Manager that knows no group yet.
func NewManager(cfg Config) *Manager {
	m := &Manager{cfg: cfg, groups: make(map[eventlog.GroupName]*Group), followers: make(map[string]int)}
	m.cfg.count = &groupCount{}
	m.asking, m.stopAsking = context.WithCancel(cfg.Context)
	cfg.Roster.Watch(m.looked)
	return m
}

// Subscription is a client's request to subscribe.
type Subscription struct {
	Topic, Group string
	Options      wire.SubscribeOptions
	Sink         Sink
	Pacer        Pacer
	// MemberID names the member in the API and the console.
	MemberID string
	// Merged and Starts are for Follow: see there.
	Merged bool
	Starts []uint64
}

// Subscribe adds a member to its group, which it creates on first use. Deliveries begin after
// Start, and once this sidecar has partitions of it. The error is a *wire.Error for a position that
// does not exist, or wraps eventlog.ErrUnavailable.
func (m *Manager) Subscribe(ctx context.Context, s Subscription) (*Member, error) {
	g, err := m.hold(s.Topic, s.Group)
	if err != nil {
		return nil, err
	}
	defer m.release(g)
	if err := g.create(ctx, s.Options); err != nil {
		return nil, err
	}
	member := &Member{group: g, sink: s.Sink}
	if s.Options.Rebalance {
		member.rebalancer, _ = s.Sink.(Rebalancer)
	}
	member.puller, _ = s.Sink.(Puller)
	member.window = dispatch.NewMember(s.MemberID, s.Options, s.Sink, member.puller, s.Pacer)
	if err := g.join(ctx, member); err != nil {
		return nil, err
	}
	return member, nil
}

// hold finds or makes the group in memory, where it stays until release at least.
func (m *Manager) hold(topic, name string) (*Group, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stopped {
		return nil, errStopped
	}
	k := eventlog.GroupName{Topic: topic, Group: name}
	g := m.groups[k]
	if g == nil {
		g = newGroup(topic, name, m.cfg)
		m.groups[k] = g
		m.list = append(m.list, g)
	}
	g.users++
	return g, nil
}

func (m *Manager) release(g *Group) {
	m.mu.Lock()
	defer m.mu.Unlock()
	g.users--
	m.forget(g)
}

// forget forgets the group if this sidecar needs it no more; mu is held.
func (m *Manager) forget(g *Group) {
	if k := (eventlog.GroupName{Topic: g.topic, Group: g.name}); m.groups[k] == g && g.users == 0 && !m.stopped && g.retire() {
		delete(m.groups, k)
		m.list = slices.DeleteFunc(m.list, func(x *Group) bool { return x == g })
	}
}

// retire ends a group that has neither members nor partitions here, and no save or query under way.
func (g *Group) retire() bool {
	if !g.moving.TryLock() { // partitions are being taken, and need a group
		return false
	}
	defer g.moving.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.members)+g.joining > 0 || !g.own.Idle() || !g.saver.idle() || g.watch != nil {
		return false
	}
	g.stopped = true
	g.turnTimer.Stop()
	g.balanceTimer.Stop()
	return true
}

// known finds a group in memory or in the store, and holds it; ErrNotFound if it never had a
// subscription. It takes no ownership.
func (m *Manager) known(ctx context.Context, topic, name string) (*Group, error) {
	g, err := m.hold(topic, name)
	if err != nil || g.inUse() {
		return g, err
	}
	tp, err := m.cfg.Log.LookupTopic(ctx, topic)
	var epochs []eventlog.Epoch
	if err == nil {
		epochs, err = m.cfg.Log.LatestEpochs(ctx, topic, name)
	}
	if err == nil && !slices.ContainsFunc(epochs, func(e eventlog.Epoch) bool { return !e.Deleted }) {
		err = fmt.Errorf("group %q of topic %q: %w", name, topic, eventlog.ErrNotFound)
	}
	if err != nil {
		m.release(g)
		return nil, err
	}
	g.load(tp.Partitions)
	return g, nil
}

// loaded finds a group in memory, or nil.
func (m *Manager) loaded(topic, name string) *Group {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.groups[eventlog.GroupName{Topic: topic, Group: name}]
}

func (m *Manager) all() []*Group {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.list)
}

// Moved says that another sidecar has taken or released partitions of these groups. The groups soon
// ask for the owners.
func (m *Manager) Moved(names []eventlog.GroupName) {
	for _, n := range names {
		if g := m.loaded(n.Topic, n.Group); g != nil {
			g.suspect()
		}
	}
}

// MaybeMoved says that signals about groups of these topics may have been lost.
func (m *Manager) MaybeMoved(topics []string) {
	for _, g := range m.all() {
		if slices.Contains(topics, g.topic) {
			g.suspect()
		}
	}
}

// looked follows the roster. Signals may get lost, so once in a lease one of the groups that own
// partitions here asks whether it still does. A group learns of a takeover with its next save at
// the latest.
func (m *Manager) looked() {
	version, life := m.cfg.Roster.View().Version, m.cfg.Roster.Standing().ID
	changed := version != m.version || life != m.life
	m.version, m.life = version, life
	groups := m.all()
	for _, g := range groups {
		g.looked(changed)
		m.mu.Lock()
		m.forget(g)
		m.mu.Unlock()
	}
	now := m.cfg.Clock.Now()
	if now.Sub(m.checkedAt) < m.cfg.Roster.Lease() {
		return
	}
	for range groups {
		m.checked = (m.checked + 1) % len(groups)
		if g := groups[m.checked]; g.check() {
			m.checkedAt = now
			break
		}
	}
}

// PoliciesChanged makes every group look at its policy again.
func (m *Manager) PoliciesChanged() {
	for _, g := range m.all() {
		g.worker.Wake()
	}
}

// Stop gives all events in flight back without counting an attempt, saves the progress of every
// group and releases it. It ends all subscriptions.
func (m *Manager) Stop(ctx context.Context) error {
	m.mu.Lock()
	m.stopped = true
	m.mu.Unlock()
	m.stopAsking()
	groups := m.all()
	errs := make([]error, len(groups))
	var stopping sync.WaitGroup // at once, so that they share the store's syncs
	for i, g := range groups {
		stopping.Go(func() { errs[i] = g.stop(ctx) })
	}
	stopping.Wait()
	return errors.Join(errs...)
}

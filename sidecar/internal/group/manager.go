package group

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/sluice-bus/sluice/internal/clock"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/group/dispatch"
	"github.com/sluice-bus/sluice/sidecar/internal/group/ownership"
	"github.com/sluice-bus/sluice/sidecar/internal/telemetry"
)

// Manager has the groups of all topics. Its methods are safe for concurrent use.
type Manager struct {
	cfg   Config
	count *groupCount
	// unanswered is what the groups share to log an outage once.
	unanswered *unanswered
	// asking ends when the Manager stops, for queries whose answers a stop does not need.
	queries     context.Context
	stopQueries context.CancelFunc
	oldest      oldest

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
	m.unanswered = newUnanswered(cfg.Logger, cfg.Clock)
	m.count = &groupCount{log: cfg.Log, clock: cfg.Clock, most: cfg.MaxGroups, mostByOne: cfg.MaxGroupsEach}
	m.queries, m.stopQueries = context.WithCancel(cfg.Context)
	cfg.Roster.Watch(m.rosterChanged)
	cfg.Roster.Describe(m.describe)
	return m
}

// Subscribe adds a member to its group, which it creates on first use. Deliveries begin after
// Start, and once this sidecar has partitions of it. The error is a *wire.Error for a position that
// does not exist, or wraps eventlog.ErrUnavailable.
func (m *Manager) Subscribe(ctx context.Context, s Subscription) (*Member, error) {
	g, err := m.acquire(s.Topic, s.Group)
	if err != nil {
		return nil, err
	}
	defer m.release(g)
	if err := g.create(ctx, s.Options); err != nil {
		return nil, err
	}
	if err := g.addDeadLetterTopic(ctx, s.DeadLetterTopic); err != nil {
		return nil, err
	}
	member := &Member{group: g, sink: s.Sink, address: s.Address}
	if s.Options.Rebalance {
		member.rebalancer, _ = s.Sink.(Rebalancer)
	}
	member.puller, _ = s.Sink.(Puller)
	member.window = dispatch.NewMember(s.MemberID, s.Options, s.Sink, member.puller, s.Pacer, s.Memory)
	if err := g.join(ctx, member, s.DeadLetterTopic); err != nil {
		return nil, err
	}
	return member, nil
}

// acquire finds or makes the group in memory, where it stays until release at least.
func (m *Manager) acquire(topic, name string) (*Group, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stopped {
		return nil, errStopped
	}
	k := eventlog.GroupName{Topic: topic, Group: name}
	g := m.groups[k]
	if g == nil {
		g = newGroup(k, m.cfg, m.count, m.unanswered)
		m.groups[k] = g
		m.list = append(m.list, g)
	}
	g.refs++
	return g, nil
}

func (m *Manager) release(g *Group) {
	m.mu.Lock()
	defer m.mu.Unlock()
	g.refs--
	m.forget(g)
}

// forget forgets the group if this sidecar needs it no more; mu is held.
func (m *Manager) forget(g *Group) {
	if m.groups[g.id] == g && g.refs == 0 && !m.stopped && g.retire() {
		delete(m.groups, g.id)
		m.unanswered.remove(g.id)
		m.list = slices.DeleteFunc(m.list, func(x *Group) bool { return x == g })
	}
}

// Forget drops the metrics of groups that do not exist. One that is in memory because another sidecar
// has deleted it asks for its owners, and can be dropped once it has learned that.
func (m *Manager) Forget(gone []eventlog.GroupName) {
	var here []eventlog.GroupName
	m.mu.Lock()
	for _, name := range gone {
		if g := m.groups[name]; g != nil {
			m.forget(g)
		}
		if m.groups[name] == nil { // and no call holds its metrics
			m.cfg.Metrics.ForgetGroup(name)
		} else {
			here = append(here, name)
		}
	}
	m.mu.Unlock()
	m.Moved(here)
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

// find finds a group in memory or in the store, and holds it; ErrNotFound if it never had a
// subscription. It takes no ownership.
func (m *Manager) find(ctx context.Context, topic, name string) (*Group, error) {
	g, err := m.acquire(topic, name)
	if err != nil || g.inUse() {
		return g, err
	}
	tp, err := m.cfg.Log.LookupTopic(ctx, topic)
	var epochs []eventlog.Epoch
	if err == nil {
		epochs, err = m.cfg.Log.LatestEpochs(ctx, topic, name)
	}
	if err == nil && !slices.ContainsFunc(epochs, func(e eventlog.Epoch) bool { return !e.Deleted }) {
		err = eventlog.NotFound("group %q of topic %q", name, topic)
	}
	if err != nil {
		m.release(g)
		return nil, err
	}
	g.load(tp.Partitions)
	return g, nil
}

// inMemory finds a group in memory, or nil.
func (m *Manager) inMemory(topic, name string) *Group {
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
		if g := m.inMemory(n.Topic, n.Group); g != nil {
			g.askOwners()
		}
	}
}

// MaybeMoved says that signals about groups of these topics may have been lost.
func (m *Manager) MaybeMoved(topics []string) {
	for _, g := range m.all() {
		if slices.Contains(topics, g.id.Topic) {
			g.askOwners()
		}
	}
}

// rosterChanged follows the roster. Signals may get lost, so once in a lease one of the groups that
// own partitions here asks whether it still does. A group learns of a takeover with its next save at
// the latest.
func (m *Manager) rosterChanged() {
	version, life := m.cfg.Roster.View().Version, m.cfg.Roster.Standing().ID
	changed := version != m.version || life != m.life
	m.version, m.life = version, life
	groups := m.all()
	for _, g := range groups {
		g.rosterChanged(changed)
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
		if g := groups[m.checked]; g.recheckOwners() {
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
	m.stopQueries()
	groups := m.all()
	errs := make([]error, len(groups))
	var stopping sync.WaitGroup // at once, so that they share the store's syncs
	for i, g := range groups {
		stopping.Go(func() { errs[i] = g.stop(ctx) })
	}
	stopping.Wait()
	return errors.Join(errs...)
}

func newGroup(id eventlog.GroupName, cfg Config, count *groupCount, u *unanswered) *Group {
	metrics := sync.OnceValue(func() *telemetry.Group { return cfg.Metrics.Group(id.Topic, id.Group) })
	g := &Group{
		id: id, cfg: cfg, count: count, unanswered: u,
		own:     ownership.Table{Group: id, Roster: cfg.Roster},
		metrics: metrics,
		dispatch: dispatch.New(dispatch.Config{
			Group: id.Group, Expired: func(n int) { metrics().Expired(n) },
			Lookahead: cfg.Bounds.Lookahead, MaxBytes: cfg.Bounds.HeldBytes,
		}),
		saver: saver{
			clock: cfg.Clock, marks: map[string]eventlog.Mark{}, marking: map[string]eventlog.Mark{},
			pendingDeadLetters: map[*dispatch.Event]*pendingDeadLetter{},
		},
	}
	g.worker.Work = g.turn
	g.syncer.Work = g.sync
	g.balancer.Work = g.balance
	g.turnTimer = stoppedTimer(cfg.Clock, g.worker.Wake)
	g.balanceTimer = stoppedTimer(cfg.Clock, g.balancer.Wake)
	return g
}

// stoppedTimer makes a timer that calls f once it is reset.
func stoppedTimer(c clock.Clock, f func()) clock.Timer {
	t := c.AfterFunc(time.Hour, f)
	t.Stop()
	return t
}

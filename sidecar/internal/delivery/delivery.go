// Package delivery gives the events of a consumer group to an endpoint that does not ask for them. The endpoint is a
// member of its group: window, order by key, backoff, attempts and dead letters are the group's. How events get there
// is the business of a Carrier, and this package knows no protocol.
package delivery

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-bus/sluice/internal/budget"
	"github.com/sluice-bus/sluice/internal/pause"
	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/audit"
	"github.com/sluice-bus/sluice/sidecar/internal/group"
	"github.com/sluice-bus/sluice/sidecar/internal/pacer"
	"github.com/sluice-bus/sluice/sidecar/internal/refusal"
	"github.com/sluice-bus/sluice/sidecar/internal/tracing"
)

// Carrier brings events to one endpoint. Its methods may be called concurrently.
type Carrier interface {
	// Carry gives events to the endpoint, as many as Config.Batch at the most, and returns what becomes of each, in
	// order. With an error all of them are nacked. It returns soon after ctx has ended.
	Carry(ctx context.Context, ds []group.Delivery) ([]Outcome, error)
}

// Verdict is what becomes of an event.
type Verdict int

const (
	Ack  Verdict = iota
	Nack         // it comes again, or becomes a dead letter after its last attempt
	Drop         // the endpoint never wants it: a dead letter where Config names their topic, else acked
	Hold         // it comes again after Outcome.After, and counts no attempt; the endpoint gets no other event before
	Stop         // it goes back and counts no attempt; the endpoint gets no event any more
)

// Outcome is the verdict on one event, with the reason if it is no Ack.
type Outcome struct {
	Verdict Verdict
	Reason  string
	After   time.Duration // with Hold
}

// Config is what a Member needs; every field is required but Options, DeadLetterTopic, Wait and Share.
type Config struct {
	Topic, Group string
	Options      wire.SubscribeOptions // where the group begins, and its filter; the window is Window
	// DeadLetterTopic gets the group's dead letters, and what the endpoint drops; "": dead letters go where all do.
	DeadLetterTopic string
	Name, Address   string // of the member and its endpoint, for people
	Carrier         Carrier
	// Window is how many events the endpoint has at a time, and Batch how many of them one Carry gets, up to Wait after
	// the first of these came.
	Window, Batch int
	Wait          time.Duration
	Groups        *group.Manager
	Policies      *policy.Current
	Share         *budget.Share // counts the events that are read for it; nil: no bound
	Logger        *slog.Logger
	// Note writes to the access log that the endpoint subscribes, unless err is why it may not, and that it unsubscribes; nil: off.
	Note func(action string, err error)
}

// Member is an endpoint's membership in its group.
type Member struct {
	*group.Member
	cfg     Config
	giving  context.Context // of calls of the Carrier; when it ends, the endpoint gets no more time
	running atomic.Int64    // events that the endpoint has, or that wait for their batch
	calls   sync.WaitGroup

	heldUntil atomic.Int64 // in nanoseconds since the epoch: the endpoint gets nothing before

	mu      sync.Mutex
	left    bool
	release *time.Timer      // ends a hold; nil: there was none
	waiting []group.Delivery // for their batch
	since   time.Time        // when the first of them came
	fill    *time.Timer      // ends their wait; nil: none
}

// Pauses between two tries to subscribe.
const (
	firstPause = 100 * time.Millisecond
	mostPause  = 5 * time.Second
)

// Join subscribes, and tries again until it succeeds, or ctx ends: then it returns nil. Deliveries begin after Start.
// When giving ends, the endpoint gets no more time for what it has.
func Join(ctx, giving context.Context, cfg Config) *Member {
	backoff := pause.Backoff{First: firstPause, Most: mostPause}
	for {
		m, err := Subscribe(ctx, giving, cfg)
		if err == nil {
			return m
		}
		if ctx.Err() == nil {
			cfg.Logger.Warn("cannot subscribe for an endpoint", "topic", cfg.Topic, "group", cfg.Group, "error", err)
		}
		if !pause.For(ctx, backoff.Step()) {
			return nil
		}
	}
}

// Subscribe is Join with one try; its errors are those of group.Manager.
func Subscribe(ctx, giving context.Context, cfg Config) (m *Member, err error) {
	m = &Member{cfg: cfg, giving: giving}
	options := cfg.Options
	options.MaxInflight = &cfg.Window
	m.Member, err = cfg.Groups.Subscribe(ctx, group.Subscription{
		Topic: cfg.Topic, Group: cfg.Group, DeadLetterTopic: cfg.DeadLetterTopic, Options: options, Sink: m,
		Pacer: pacer.New(cfg.Policies, cfg.Topic, time.Now()), MemberID: cfg.Name, Address: cfg.Address,
		Memory: cfg.Share,
	})
	if err == nil || ctx.Err() == nil {
		cfg.NoteSubscribe(err)
	}
	if err != nil {
		return nil, err
	}
	return m, nil
}

// NoteSubscribe writes to the access log that the endpoint subscribes, or why it may not.
func (c *Config) NoteSubscribe(err error) {
	if c.Note != nil {
		c.Note(audit.Subscribe, refusal.Of(err))
	}
}

// Leave takes no more events, waits for the answers to those at the endpoint, and leaves the group as how says. Events
// without an answer, or a verdict, go back to the group.
func (m *Member) Leave(how group.Leaving) {
	m.Pause()
	m.mu.Lock()
	m.left = true
	for _, timer := range []*time.Timer{m.fill, m.release} {
		if timer != nil {
			timer.Stop()
		}
	}
	m.mu.Unlock()
	m.calls.Wait()
	m.Close(how)
	if m.cfg.Note != nil {
		m.cfg.Note(audit.Unsubscribe, nil)
	}
}

// Room reports whether the endpoint may get more events.
func (m *Member) Room() bool { return int(m.running.Load()) < m.cfg.Window && !m.Held() }

// Held reports whether the endpoint gets nothing for a time.
func (m *Member) Held() bool { return time.Now().UnixNano() < m.heldUntil.Load() }

// hold lets the endpoint have nothing for a time.
func (m *Member) hold(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	until := time.Now().Add(d).UnixNano()
	if m.left || until <= m.heldUntil.Load() {
		return
	}
	m.heldUntil.Store(until)
	if m.release == nil {
		m.release = time.AfterFunc(d, m.Wake)
	} else {
		m.release.Reset(d)
	}
}

// Deliver gives events to the endpoint, one by one or in batches. The group's window and Room bound their number, and
// events of one key come one after the other.
func (m *Member) Deliver(ds []group.Delivery) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.left {
		return // they go back when the member closes
	}
	m.running.Add(int64(len(ds)))
	for _, d := range ds {
		if len(m.waiting) == 0 {
			m.since = time.Now()
		}
		if m.waiting = append(m.waiting, d); len(m.waiting) == m.cfg.Batch {
			m.give()
		}
	}
	if len(m.waiting) > 0 && m.fill == nil {
		// No batch waits so long that its events are late.
		m.fill = time.AfterFunc(min(m.cfg.Wait, m.waiting[0].AckTimeout/4), func() {
			m.mu.Lock()
			defer m.mu.Unlock()
			if len(m.waiting) > 0 && !m.left {
				m.give()
			}
		})
	}
}

// give gives what waits to the endpoint; mu is held.
func (m *Member) give() {
	ds, deadline := m.waiting, m.since.Add(m.waiting[0].AckTimeout)
	m.waiting = nil
	if m.fill != nil {
		m.fill.Stop()
		m.fill = nil
	}
	m.calls.Go(func() {
		m.call(ds, deadline)
		m.running.Add(-int64(len(ds)))
		m.Wake()
	})
}

// call gives events to the endpoint and settles them. If the endpoint gets no more time, they stay in flight, and go back
// to the group when the member leaves.
func (m *Member) call(ds []group.Delivery, deadline time.Time) {
	ctx, cancel := context.WithDeadline(m.giving, deadline)
	defer cancel()
	spans := make([]*tracing.Process, len(ds))
	for i := range ds {
		spans[i] = ds[i].Process
	}
	outcomes, err := m.cfg.Carrier.Carry(tracing.Deliver(ctx, spans), ds)
	if err != nil {
		if m.giving.Err() != nil {
			return
		}
		outcomes = AllOf(len(ds), Outcome{Verdict: Nack, Reason: err.Error()})
	}
	m.settle(ds, outcomes)
}

// AllOf is one outcome for n events.
func AllOf(n int, o Outcome) []Outcome {
	outcomes := make([]Outcome, n)
	for i := range outcomes {
		outcomes[i] = o
	}
	return outcomes
}

// settle settles events by their leases, since the group may have delivered them again: a late answer must not settle
// that delivery.
func (m *Member) settle(ds []group.Delivery, outcomes []Outcome) {
	groups, topic, name := m.cfg.Groups, m.cfg.Topic, m.cfg.Group
	var acked []group.Lease
	for i, d := range ds {
		o, lease := outcomes[i], []group.Lease{d.Lease}
		log := m.cfg.Logger.With("topic", topic, "group", name, "id", d.Record.ID, "reason", o.Reason)
		switch {
		case o.Verdict == Nack:
			log.Debug("an endpoint wants an event again")
			groups.NackLeases(topic, name, lease, wire.Nack{Reason: o.Reason}, m.settled(d.AckTimeout))
		case o.Verdict == Hold:
			log.Debug("an endpoint wants an event later", "after", o.After)
			m.hold(o.After)
			how := wire.Nack{Reason: o.Reason, Hold: true, DelayMS: new(o.After.Milliseconds())}
			groups.NackLeases(topic, name, lease, how, m.settled(d.AckTimeout))
		case o.Verdict == Stop:
			m.Pause()
			groups.ReturnLeases(topic, name, lease)
		case o.Verdict == Drop && m.cfg.DeadLetterTopic != "":
			log.Debug("an endpoint drops an event: it becomes a dead letter")
			groups.NackLeases(topic, name, lease, wire.Nack{Reason: "dropped", DeadLetter: true}, m.settled(d.AckTimeout))
		case o.Verdict == Drop:
			log.Warn("an endpoint drops an event, and the subscription has no topic for dead letters: the event is acked")
			fallthrough
		default:
			acked = append(acked, d.Lease)
		}
	}
	if len(acked) > 0 {
		groups.AckLeases(topic, name, acked, m.settled(ds[0].AckTimeout))
	}
}

// settled logs settlements that did not count.
func (m *Member) settled(inTime time.Duration) group.Settled {
	return func(absent, lost []int, err error) {
		log := m.cfg.Logger.With("topic", m.cfg.Topic, "group", m.cfg.Group)
		switch late := len(absent) + len(lost); {
		case err != nil:
			log.Warn("the outcome of events at an endpoint is not recorded: they may be delivered again", "error", err)
		case late > 0:
			log.Warn("an endpoint has answered too late: the events are delivered again", "events", late, "in_time", inTime)
		}
	}
}

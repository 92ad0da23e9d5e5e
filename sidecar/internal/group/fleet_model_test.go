package group

import (
	"maps"
	"slices"
	"sync"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// trial is the model of one group that several sidecars serve.
type trial struct {
	*fleet
	rt     *rapid.T
	gentle bool // nothing counts as an attempt, and one attempt is all there is
	seeks  int  // so far

	mu      sync.Mutex
	events  map[string]*trialEvent
	keys    map[string][]*trialEvent // in log order
	clients []*trialClient
	// behind are the sidecars that were paused when the group was moved. Once they go on, they
	// deliver the events that they had saved before.
	behind map[*sidecar]bool
}

type trialEvent struct {
	id, key    string
	rec        *eventlog.Record
	attempts   int // of the last delivery
	deliveries int
	fate       fate
}

type trialClient struct {
	x      *trial
	s      *sidecar
	m      *Member
	silent bool // closed, or its process is gone: nothing may come, except for deliveries on their way at a kill
}

func newTrial(t *rapid.T, gentle bool) *trial {
	x := &trial{
		fleet: newFleet(t, rapid.IntRange(1, 4).Draw(t, "partitions")), rt: t, gentle: gentle,
		events: make(map[string]*trialEvent), keys: make(map[string][]*trialEvent),
		behind: make(map[*sidecar]bool),
	}
	x.reach = rapid.Bool().Draw(t, "reach")
	eff := *x.policy.Load()
	eff.Delivery.MaxInflight = rapid.IntRange(1, 6).Draw(t, "window")
	eff.Delivery.AckTimeout = rapid.SampledFrom([]time.Duration{4 * time.Second, time.Minute}).Draw(t, "timeout")
	eff.Delivery.MaxAttempts = rapid.SampledFrom([]int{3, 1000}).Draw(t, "attempts")
	if gentle {
		eff.Delivery.AckTimeout, eff.Delivery.MaxAttempts = 1000*time.Hour, 1
	}
	x.fleet.policy.Store(&eff)
	x.deadLetters.onAppend = x.deadLettered
	x.join(x.fleet.start("s0"))
	x.fleet.start("s1")
	return x
}

func (c *trialClient) Room() bool { return true }

// Deliver checks the deliveries.
func (c *trialClient) Deliver(ds []Delivery) {
	x := c.x
	for _, d := range ds {
		others, unaware := x.leases(d.Record, c), c.isUnaware(d.Record)
		x.mu.Lock()
		if c.silent && c.s.path.isDead() { // it was on its way when its process was killed: no client sees it
			x.mu.Unlock()
			continue
		}
		e := x.events[d.Record.ID]
		x.checkDelivery(c, e, d, others, unaware)
		if unaware { // what it delivers settles nothing
			x.mu.Unlock()
			continue
		}
		if e.fate = unsettled; !x.behind[c.s] {
			e.attempts = d.Attempt
		}
		e.deliveries++
		x.mu.Unlock()
	}
}

func (x *trial) checkDelivery(c *trialClient, e *trialEvent, d Delivery, others []string, unaware bool) {
	switch {
	case c.silent:
		x.rt.Errorf("%s came to a member of %s that is gone", e.id, c.s.name)
	case c.s.path.isPaused() && !x.reach: // it is its way to the store that is paused
		x.rt.Errorf("%s came from %s, which is paused", e.id, c.s.name)
	case !c.s.roster.Valid(time.Now()):
		x.rt.Errorf("%s came from %s, which others take for dead", e.id, c.s.name)
	case len(others) > 0:
		x.rt.Errorf("%s came from %s while it was in flight at %v", e.id, c.s.name, others)
	case unaware:
		return
	case e.fate == over:
		x.rt.Errorf("%s came from %s after it was settled", e.id, c.s.name)
	case d.Attempt < e.attempts:
		x.rt.Errorf("%s came with attempt %d after %d", e.id, d.Attempt, e.attempts)
	case x.gentle && d.Attempt != 1:
		x.rt.Errorf("%s came with attempt %d, although nothing counts", e.id, d.Attempt)
	}
	for _, before := range x.keys[e.key] {
		if before == e {
			return
		}
		switch before.fate {
		case unsettled:
			x.rt.Errorf("%s came from %s before %s of its key was settled", e.id, c.s.name, before.id)
		case perhaps:
			before.fate = over // or else it had come before
		}
	}
}

// leases are the members, except for c, that have the event in flight under a lease that could
// still be settled.
func (x *trial) leases(rec *eventlog.Record, c *trialClient) (names []string) {
	x.mu.Lock()
	clients := slices.Clone(x.clients)
	x.mu.Unlock()
	for _, o := range clients {
		if o != c && o.holds(rec) {
			names = append(names, o.s.name)
		}
	}
	return names
}

// isUnaware reports whether the client's sidecar delivers without a save from an epoch that a seek has ended. It may, until
// it learns of that, since nobody else delivers from the partition before.
func (c *trialClient) isUnaware(rec *eventlog.Record) bool {
	newest := c.x.log.number(eventlog.GroupPartition{Topic: topic, Group: "g", Partition: rec.Partition})
	g := c.m.group
	g.mu.Lock()
	defer g.mu.Unlock()
	return c.x.reach && g.parts[rec.Partition].own.Epoch < newest
}

// holds reports whether an ack of the client would settle the event.
func (c *trialClient) holds(rec *eventlog.Record) bool {
	var newest uint64
	c.x.log.locked(func() {
		newest = c.x.log.epochs[eventlog.GroupPartition{Topic: topic, Group: "g", Partition: rec.Partition}].Number
	})
	g := c.m.group
	g.mu.Lock()
	defer g.mu.Unlock()
	e := g.dispatch.InFlightAt(c.m.window, rec.ID)
	return e != nil && e.Sent && g.parts[rec.Partition].own.Epoch == newest && g.cfg.Roster.Valid(time.Now())
}

func (p *path) isDead() (is bool) {
	p.set(func() { is = p.dead })
	return is
}

func (p *path) isPaused() (is bool) {
	p.set(func() { is = p.paused != nil })
	return is
}

// held are the ids that the client's sidecar has in flight at it.
func (c *trialClient) held() (ids []string) {
	g := c.m.group
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, e := range c.m.group.dispatch.InFlightOf(c.m.window) {
		if e.Sent {
			ids = append(ids, e.Record.ID)
		}
	}
	return ids
}

// ack acks the events that are in flight as far as the client's sidecar knows. An answer without an
// error is a promise.
func (x *trial) ack(c *trialClient, ids []string) {
	seeks := x.seeks
	versions := make(map[string]int)
	x.mu.Lock()
	for _, id := range ids {
		e := x.events[id]
		versions[id] = e.deliveries
		e.fate = asked
	}
	x.mu.Unlock()
	c.m.Ack(ids, func(err error) {
		x.mu.Lock()
		defer x.mu.Unlock()
		if x.seeks != seeks {
			return
		}
		for _, id := range ids {
			switch e := x.events[id]; {
			case err != nil && e.fate == asked && e.deliveries == versions[id]:
				e.fate = perhaps
			case err != nil:
			case e.deliveries != versions[id]:
				x.rt.Errorf("%s came again before its ack was answered with OK", id)
			default:
				e.fate = over
			}
		}
	})
}

func (x *trial) deadLettered(rec *eventlog.Record) {
	x.mu.Lock()
	defer x.mu.Unlock()
	id, _ := rec.Headers.Get(wire.HeaderDeadID)
	e := x.events[id]
	switch {
	case x.gentle:
		x.rt.Errorf("%s became a dead letter", id)
	case x.fleet.policy.Load().Delivery.MaxAttempts > 100:
		x.rt.Errorf("%s became a dead letter after %d attempts", id, e.attempts)
	}
	e.fate = over
}

func (x *trial) join(s *sidecar) {
	c := &trialClient{x: x, s: s}
	m, err := s.m.Subscribe(x.rt.Context(), Subscription{
		Topic: topic, Group: "g", Sink: c, Pacer: &fakePacer{}, MemberID: s.name,
		Options: wire.SubscribeOptions{From: wire.FromEarliest},
	})
	if err != nil {
		x.rt.Errorf("subscribe: %v", err)
		return
	}
	c.m = m
	x.mu.Lock()
	x.clients = append(x.clients, c)
	x.mu.Unlock()
	m.Start()
}

// forget ends a client for the model.
func (x *trial) forget(gone func(*trialClient) bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.clients = slices.DeleteFunc(x.clients, func(c *trialClient) bool {
		c.silent = c.silent || gone(c)
		return gone(c)
	})
}

// due is the sidecar that each partition is due at, among those that have members.
func (x *trial) due() string {
	names := make(map[string]bool)
	for _, c := range x.clients {
		names[c.s.name] = true
	}
	return x.rendezvous(slices.Collect(maps.Keys(names))...)
}

package group

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/policy"
	"github.com/sluice-bus/sluice/sidecar/internal/tail"
	"github.com/sluice-bus/sluice/sidecar/internal/telemetry"
)

// Group is one consumer group on one topic, as this sidecar owns it.
type Group struct {
	topic, name string
	cfg         Config
	metrics     *telemetry.Group
	worker      worker      // of turns
	syncer      worker      // of sync
	alarm       *time.Timer // wakes the worker

	users int // calls of the Manager that hold the group; guarded by Manager.mu

	// opening is held while the epochs are taken from the store.
	opening sync.Mutex

	mu         sync.Mutex
	owned      bool // every partition has an epoch that is ours
	stopped    bool // nobody joins and nothing is assigned any more
	generation int  // rises when everything fetched is forgotten
	parts      []*partition
	members    []*Member
	joining    int // members on their way in
	rotation   int // whose turn it is to be assigned the next event
	fetchAt    int // the partition that was read last
	leases     uint64
	policy     *policy.Effective
	watch      *tail.Watch // while there are members

	ordered bool // some member wants key order
	keys    keys
	ids     ids
	ready   []*entry // and some that have been settled since
	timers  timers
	burying []*entry // to be handed to the dead letter topic by the next turn
	graves  int      // events on their way to the dead letter topic
	held    int      // bytes of fetched events that are not settled

	// What the last assign found.
	takers  int       // members that could have been assigned more
	stuck   int       // ready events that only members without room let pass
	again   bool      // it stopped at a bound of the turn
	paceDue time.Time // when a member without tokens has one again; zero: none waits

	beat    uint64
	marks   map[string]eventlog.Mark // by id, to be saved with the progress
	waiters []func(error)            // to be told once the progress is saved and synced
	saving  bool                     // a save is under way
	saveDue time.Time                // when to try again after a failed save; zero: at once

	saves    uint64        // how many succeeded
	synced   uint64        // how many of those are known to be durable
	unsynced []func(error) // to be told once all that is saved is durable
}

func newGroup(topic, name string, cfg Config) *Group {
	g := &Group{
		topic: topic, name: name, cfg: cfg,
		metrics: cfg.Metrics.Group(topic, name),
		keys:    make(keys),
		ids:     make(ids),
		marks:   make(map[string]eventlog.Mark),
	}
	g.worker.work = g.turn
	g.syncer.work = g.sync
	g.alarm = stoppedTimer(g.worker.wake)
	return g
}

// stoppedTimer makes a timer that calls f once it is reset.
func stoppedTimer(f func()) *time.Timer {
	t := time.AfterFunc(time.Hour, f)
	t.Stop()
	return t
}

// leave removes a member and gives back what it has in flight.
func (g *Group) leave(m *Member, how Leaving) {
	if m.closed {
		return
	}
	m.closed = true
	g.members = slices.DeleteFunc(slices.Clone(g.members), func(x *Member) bool { return x == m })
	now := time.Now()
	for _, e := range m.lent() {
		if how == Disconnected && e.sent {
			g.fail(e, "connection closed", now, 0)
		} else {
			g.giveBack(e)
		}
	}
	g.reorder()
}

// lent is what the member has in flight, in log order.
func (m *Member) lent() []*entry {
	var es []*entry
	for _, e := range m.group.timers {
		if e.member == m {
			es = append(es, e)
		}
	}
	for _, a := range m.out {
		if a.holds() {
			es = append(es, a.entry)
		}
	}
	slices.SortFunc(es, func(a, b *entry) int {
		return cmp.Or(cmp.Compare(a.part.index, b.part.index), cmp.Compare(a.seq, b.seq))
	})
	return es
}

// reorder follows what the members want of key order.
func (g *Group) reorder() {
	g.ordered = slices.ContainsFunc(g.members, func(m *Member) bool { return m.opts.Ordered })
	if g.ordered {
		return // assign holds back what is not its key's first
	}
	for _, q := range g.keys {
		for e := q.head; e != nil; e = e.next {
			if e.state == waiting {
				g.makeReady(e)
			}
		}
	}
}

func (g *Group) makeReady(e *entry) {
	e.state = ready
	g.ready = append(g.ready, e)
}

// admit takes a fetched event in; passed says that the group is not to get it.
func (g *Group) admit(e *entry, passed bool) {
	if passed {
		e.state, e.rec = settled, nil
		e.part.dirty = true
		e.part.trim()
		return
	}
	g.held += e.rec.Size()
	g.ids.add(e)
	if first := g.keys.add(e); first || !g.ordered {
		g.makeReady(e)
	}
}

// wanted reports whether some member's filter lets the event pass.
func (g *Group) wanted(rec *eventlog.Record) bool {
	return slices.ContainsFunc(g.members, func(m *Member) bool { return m.opts.Filter.Matches(&rec.Event) })
}

// settle ends an event for the group.
func (g *Group) settle(e *entry) {
	id, key := e.rec.ID, e.rec.Key
	g.held -= e.rec.Size()
	g.detach(e)
	g.ids.remove(e)
	e.state, e.rec = settled, nil
	e.part.dirty = true
	e.part.trim()
	if head := g.keys.remove(key, e); head != nil && head.state == waiting {
		g.makeReady(head)
	}
	g.freeTwins(id)
}

// mark remembers that an id is acked, and settles the other events that have
// it, but for those that are on their way to the dead letter topic.
func (g *Group) mark(id string, expires time.Time) {
	g.marks[id] = eventlog.Mark{Topic: g.topic, Group: g.name, ID: id, ExpiresAt: expires.UnixMilli()}
	for e := g.ids[id]; e != nil; {
		next := e.twin
		if e.state != burying {
			g.settle(e)
		}
		e = next
	}
}

// detach takes an event away from its member and its timer.
func (g *Group) detach(e *entry) {
	g.timers.unset(e)
	if e.member != nil {
		e.member.count--
		e.member, e.sent = nil, false
	}
}

// freeTwins lets events go on that waited for the same id in flight.
func (g *Group) freeTwins(id string) {
	for e := g.ids[id]; e != nil; e = e.twin {
		if e.state == doubled {
			g.makeReady(e)
		}
	}
}

// giveBack undoes a delivery without counting it.
func (g *Group) giveBack(e *entry) {
	g.detach(e)
	e.attempts--
	e.part.dirty = true
	g.makeReady(e)
	g.freeTwins(e.rec.ID)
}

// fail ends a delivery that did not lead to an ack: the event comes again after
// wait, or goes to the dead letter topic when its attempts are used up.
func (g *Group) fail(e *entry, reason string, now time.Time, wait time.Duration) {
	most := e.member.opts.MaxAttempts
	g.detach(e)
	e.reason = reason
	switch {
	case e.attempts >= most:
		g.bury(e)
	case wait > 0:
		e.state = delayed
		g.timers.set(e, now.Add(wait))
	default:
		g.makeReady(e)
	}
	g.freeTwins(e.rec.ID)
}

// bury sends an event to the dead letter topic; it is settled once it is
// durable there.
func (g *Group) bury(e *entry) {
	e.state = burying
	g.graves++
	g.burying = append(g.burying, e)
}

// dig hands a dead letter over.
func (g *Group) dig(e *entry) {
	g.mu.Lock()
	if e.state != burying {
		g.mu.Unlock()
		return
	}
	rec := deadLetter(e, g.name, time.Now())
	g.mu.Unlock()
	g.cfg.DeadLetters.Bury(g.cfg.Context, rec, func(err error) { g.buried(e, err) })
}

// buried takes the outcome of dig.
func (g *Group) buried(e *entry, err error) {
	g.mu.Lock()
	if e.state == burying {
		if err == nil {
			g.graves--
			g.metrics.DeadLettered(1)
			g.settle(e)
		} else {
			g.cfg.Logger.Warn("consumer group cannot bury a dead letter", "topic", g.topic, "group", g.name, "error", err)
			g.timers.set(e, time.Now().Add(retryAfterFailure))
		}
	}
	g.mu.Unlock()
	g.worker.wake()
}

// expire moves on whatever is due.
func (g *Group) expire(now time.Time) {
	for e := g.timers.expired(now); e != nil; e = g.timers.expired(now) {
		switch e.state {
		case inflight:
			g.fail(e, "ack deadline passed", now, 0)
		case delayed:
			g.makeReady(e)
		case burying:
			g.burying = append(g.burying, e)
		}
	}
}

// forget drops everything fetched; progress stays as restore leaves it.
func (g *Group) forget(restore func(p *partition)) {
	g.generation++
	for _, p := range g.parts {
		for _, e := range p.entries {
			if e.state != settled {
				e.state = dropped
			}
		}
		restore(p)
	}
	for _, m := range g.members {
		m.count = 0
	}
	g.keys, g.ids = make(keys), make(ids)
	g.ready, g.timers, g.burying = nil, nil, nil
	g.held, g.graves, g.stuck = 0, 0, 0
}

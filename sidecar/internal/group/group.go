package group

import (
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
	worker      worker
	alarm       *time.Timer // wakes the worker

	// opening is held while the epochs are taken from the store.
	opening sync.Mutex

	mu         sync.Mutex
	owned      bool // every partition has an epoch that is ours
	stopped    bool
	generation int // rises when everything fetched is forgotten
	parts      []*partition
	members    []*Member
	joining    int // members on their way in
	rotation   int // whose turn it is to be assigned the next event
	fetchAt    int // the partition that was read last
	leases     uint64
	stuck      int  // ready events that no member with room lets pass
	again      bool // the last assign stopped at a bound of the turn
	policy     *policy.Effective
	watch      *tail.Watch // while there are members

	ordered  bool // some member wants key order
	keys     keys
	ready    []*entry
	timers   timers
	inflight map[string]*entry // by event id
	twins    []*entry
	burying  []*entry // to be handed to the dead letter topic by the next turn
	graves   int      // events on their way to the dead letter topic
	held     int      // bytes of fetched events that are not settled
	beat     uint64

	marks   []eventlog.Mark // to be saved with the progress
	waiters []func(error)   // to be told once the progress is saved
	paceDue time.Time       // when a member without tokens has one again; zero: none waits
	saving  bool            // a save is under way
	saveDue time.Time       // when to try again after a failed save; zero: at once
}

func newGroup(topic, name string, cfg Config) *Group {
	g := &Group{
		topic: topic, name: name, cfg: cfg,
		metrics:  cfg.Metrics.Group(topic, name),
		keys:     make(keys),
		inflight: make(map[string]*entry),
	}
	g.worker.work = g.turn
	g.alarm = time.AfterFunc(time.Hour, g.worker.wake)
	g.alarm.Stop()
	return g
}

// leave removes a member and gives back what it has in flight.
func (g *Group) leave(m *Member, how Leaving) {
	if m.closed {
		return
	}
	m.closed = true
	g.members = slices.DeleteFunc(slices.Clone(g.members), func(x *Member) bool { return x == m })
	now := time.Now()
	for _, e := range g.inflight {
		if e.member != m {
			continue
		}
		if how == Disconnected && e.sent {
			g.fail(e, "connection closed", now, 0)
		} else {
			g.giveBack(e)
		}
	}
	g.reorder()
}

// reorder follows what the members want of key order.
func (g *Group) reorder() {
	g.ordered = slices.ContainsFunc(g.members, func(m *Member) bool { return m.opts.Ordered })
	if g.ordered {
		return // assign holds back what is not its key's first
	}
	for _, q := range g.keys {
		for e := q.head; e != nil; e = e.next {
			if e.state == waiting && !e.twin {
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
	if first := g.keys.add(e); first || !g.ordered {
		g.makeReady(e)
	}
}

// wanted reports whether some member's filter lets the event pass.
func (g *Group) wanted(rec *eventlog.Record) bool {
	return slices.ContainsFunc(g.members, func(m *Member) bool { return m.opts.Filter.Matches(&rec.Event) })
}

// settle ends an event for the group. marked says that its id is remembered, so
// that other events with that id are settled too.
func (g *Group) settle(e *entry, marked bool) {
	id, key := e.rec.ID, e.rec.Key
	g.held -= e.rec.Size()
	g.detach(e)
	e.state, e.rec = settled, nil
	e.part.dirty = true
	e.part.trim()
	if head := g.keys.remove(key, e); head != nil && head.state == waiting && !head.twin {
		g.makeReady(head)
	}
	g.freeTwins(id, marked)
}

// detach takes an event away from its member and its timer.
func (g *Group) detach(e *entry) {
	g.timers.unset(e)
	if e.member == nil {
		return
	}
	e.member.count--
	e.member, e.sent = nil, false
	delete(g.inflight, e.rec.ID)
}

// freeTwins lets events go on that waited for the same id in flight.
func (g *Group) freeTwins(id string, marked bool) {
	if len(g.twins) == 0 {
		return
	}
	var freed []*entry
	g.twins = slices.DeleteFunc(g.twins, func(e *entry) bool {
		if e.state == waiting && e.rec.ID == id {
			freed = append(freed, e)
			return true
		}
		return e.state != waiting
	})
	for _, e := range freed {
		e.twin = false
		if marked {
			g.settle(e, true)
		} else {
			g.makeReady(e)
		}
	}
}

// giveBack undoes a delivery without counting it.
func (g *Group) giveBack(e *entry) {
	id := e.rec.ID
	g.detach(e)
	e.attempts--
	e.part.dirty = true
	g.makeReady(e)
	g.freeTwins(id, false)
}

// fail ends a delivery that did not lead to an ack: the event comes again after
// wait, or goes to the dead letter topic when its attempts are used up.
func (g *Group) fail(e *entry, reason string, now time.Time, wait time.Duration) {
	id, most := e.rec.ID, e.member.opts.MaxAttempts
	g.detach(e)
	switch {
	case e.attempts >= most:
		g.bury(e, reason)
	case wait > 0:
		e.state = delayed
		g.timers.set(e, now.Add(wait))
	default:
		g.makeReady(e)
	}
	g.freeTwins(id, false)
}

// bury sends an event to the dead letter topic; it is settled once it is
// durable there.
func (g *Group) bury(e *entry, reason string) {
	e.state, e.reason = burying, reason
	g.graves++
	g.burying = append(g.burying, e)
}

// buried takes the outcome of bury.
func (g *Group) buried(e *entry, err error) {
	g.mu.Lock()
	if e.state == burying {
		if err == nil {
			g.graves--
			g.metrics.DeadLettered(1)
			g.settle(e, false)
		} else {
			g.timers.set(e, time.Now().Add(retryAfterFailure))
		}
	}
	g.mu.Unlock()
	g.worker.wake()
}

// retryAfterFailure is the pause before the store is asked again.
const retryAfterFailure = 250 * time.Millisecond

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
	clear(g.keys)
	clear(g.inflight)
	g.ready, g.timers, g.twins, g.burying = nil, nil, nil, nil
	g.held, g.graves = 0, 0
}

// whenSaved arranges for done to be called once all progress so far is
// durable. It is called with mu held and releases it.
func (g *Group) whenSaved(done func(error)) {
	switch {
	case g.stopped:
		g.mu.Unlock()
		done(errStopped)
	case !g.unsaved() && !g.saving && len(g.waiters) == 0:
		g.mu.Unlock()
		g.worker.wake()
		done(nil)
	default:
		g.waiters = append(g.waiters, done)
		g.mu.Unlock()
		g.worker.wake()
	}
}

// unsaved reports whether there is progress that no save has begun to store.
func (g *Group) unsaved() bool {
	return len(g.marks) > 0 || slices.ContainsFunc(g.parts, func(p *partition) bool { return p.dirty })
}

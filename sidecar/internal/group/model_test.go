package group

import (
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/group/dispatch"
	"pgregory.net/rapid"
)

const (
	examAttempts = 3
	examTimeout  = 10 * time.Second
)

// exam is the model of a group.
type exam struct {
	*world
	t *rapid.T

	mu      sync.Mutex
	events  map[string]*examEvent
	keys    map[string][]*examEvent // in log order
	clients []*examClient
	window  int
	store   string // "ok", "fails" or "slow"
	shaky   bool   // it was not ok, and progress that was not saved then may not be yet
}

type examEvent struct {
	id, key  string
	attempts int // deliveries counted
	most     int // deliveries counted, with those that may be counted after a kill
	kills    int // that may have come between a save and its purpose
	holder   *examClient
	deadline time.Time
	fate     fate
	twice    bool // it may be a dead letter and unsettled: a kill came before the group recorded the dead letter
	redriven bool // out of the order of its key, therefore
	doomed   bool // nacked to the dead letters, and not delivered since
}

type fate int

const (
	unsettled fate = iota
	perhaps        // settled, but a kill came before that was durable
	asked          // acked; not answered yet
	over           // settled durably
)

type examClient struct {
	x      *exam
	m      *Member
	full   bool
	silent bool // paused or closed: nothing may come
	dead   bool // its process was killed
	window int  // that it asked for
}

func newExam(t *rapid.T) *exam {
	x := &exam{t: t, world: newWorld(t, 2), events: make(map[string]*examEvent), keys: make(map[string][]*examEvent), window: 5, store: "ok"}
	x.deadLetters.onAppend = x.deadLettered
	x.bounds.Lookahead = rapid.SampledFrom([]int{4, 100}).Draw(t, "lookahead")
	x.start()
	x.setPolicy(func(p *policy.Effective) {
		p.Delivery.MaxInflight = x.window
		p.Delivery.MaxAttempts = examAttempts
		p.Delivery.AckTimeout = examTimeout
	})
	x.join()
	return x
}

func (c *examClient) Room() bool {
	c.x.mu.Lock()
	defer c.x.mu.Unlock()
	return !c.full
}

// Deliver checks the deliveries.
func (c *examClient) Deliver(ds []Delivery) {
	x := c.x
	x.mu.Lock()
	defer x.mu.Unlock()
	if c.dead {
		return
	}
	for _, d := range ds {
		e := x.events[d.Record.ID]
		x.checkDelivery(c, e, d)
		e.holder, e.deadline = c, time.Now().Add(d.AckTimeout)
		e.attempts, e.most, e.fate, e.doomed = d.Attempt, d.Attempt, unsettled, false
	}
	if n := len(x.held(c)); n > min(c.window, x.window) {
		x.t.Errorf("%d in flight with a window of %d and %d", n, c.window, x.window)
	}
}

func (x *exam) checkDelivery(c *examClient, e *examEvent, d Delivery) {
	switch {
	case c.silent:
		x.t.Errorf("%s came to a member that is paused or closed", e.id)
	case e.fate == asked || e.fate == over:
		x.t.Errorf("%s came after it was settled", e.id)
	case e.holder != nil && e.deadline.After(time.Now()):
		x.t.Errorf("%s came while it was in flight", e.id)
	case d.Attempt <= e.attempts || d.Attempt > e.most+1 || d.Attempt > examAttempts+min(e.kills, dispatch.MaxUnsure):
		x.t.Errorf("%s came with attempt %d after %d to %d", e.id, d.Attempt, e.attempts, e.most)
	}
	if e.key == "" || e.redriven {
		return
	}
	for _, before := range x.keys[e.key] {
		if before == e {
			return
		}
		if before.fate == unsettled && !before.redriven {
			x.t.Errorf("%s came before %s of its key was settled", e.id, before.id)
		}
		if before.fate == perhaps {
			before.fate = over // or else it had come before
		}
	}
}

// held are the events in flight at a member, as far as it knows.
func (x *exam) held(c *examClient) (es []*examEvent) {
	for _, id := range slices.Sorted(maps.Keys(x.events)) {
		if e := x.events[id]; e.holder == c && e.deadline.After(time.Now()) {
			es = append(es, e)
		}
	}
	return es
}

func (x *exam) deadLettered(rec *eventlog.Record) {
	x.mu.Lock()
	defer x.mu.Unlock()
	id, _ := rec.Headers.Get(wire.HeaderDeadID)
	e := x.events[id]
	text, _ := rec.Headers.Get(wire.HeaderDeadAttempts)
	if attempts, _ := strconv.Atoi(text); attempts < examAttempts && !e.doomed || attempts > examAttempts+min(e.kills, dispatch.MaxUnsure) ||
		attempts > e.most {
		x.t.Errorf("%s became a dead letter after %d attempts, saying %s", id, e.most, text)
	}
	if e.fate == asked {
		x.t.Errorf("%s became a dead letter after its ack", id)
	}
	e.fate, e.holder = over, nil
	if e.doomed {
		e.fate = asked // a kill may yet come before it is recorded, and then it comes again
	}
}

// gone gives back what a member has in flight. With a slow store the group may not have noticed a
// deadline yet.
func (x *exam) gone(c *examClient, how Leaving) {
	for _, e := range x.events {
		if e.holder != c {
			continue
		}
		live := e.deadline.After(time.Now())
		e.holder = nil
		if how == Unsubscribed && (live || x.store == "slow") {
			e.attempts--
			if live && !x.shaky {
				e.most = e.attempts
			}
		}
	}
}

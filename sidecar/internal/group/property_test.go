package group

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/policy"
)

// TestGroupKeepsItsPromises lets members, a failing store and a mortal process
// do what they like to one group, and checks every delivery against what the
// members know: window, key order, attempts, and nothing after an ack, a pause
// or a close. In the end every event is acked or a dead letter.
func TestGroupKeepsItsPromises(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// A bubble's T does not tell rapid its deadline.
		rapid.Check(struct{ rapid.TB }{t}, func(t *rapid.T) {
			x := newExam(t)
			defer func() {
				x.mortal.kill() // also after a failure, for goleak
				x.setStore("ok")
				_ = x.m.Stop(context.Background())
				synctest.Wait()
			}()
			t.Repeat(x.actions())
			x.finish()
		})
	})
}

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
	shaky   bool   // it was not ok, and what was not saved then may not be yet
}

type examEvent struct {
	id, key  string
	attempts int // deliveries counted
	most     int // as above, with those that may be counted after a kill
	holder   *examClient
	deadline time.Time
	fate     fate
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
	x.graves.onBury = x.buried
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

func (x *exam) actions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"publish": x.publishSome,
		"ack":     x.ackSome,
		"ack2":    x.ackSome,
		"nack":    x.nackOne,
		"extend":  x.extendOne,
		"time": func(t *rapid.T) {
			time.Sleep(rapid.SampledFrom([]time.Duration{100, 300, 5000, 11000}).Draw(t, "ms") * time.Millisecond)
		},
		"pause":   x.pauseOrResume,
		"join":    func(*rapid.T) { x.join() },
		"leave":   x.leaveOne,
		"room":    x.fillOrDrain,
		"window":  x.changeWindow,
		"store":   x.breakOrMendStore,
		"graves":  x.breakOrMendGraves,
		"seek":    x.seekEarliest,
		"restart": x.restart,
		"":        func(*rapid.T) { synctest.Wait() },
	}
}

func (x *exam) publishSome(t *rapid.T) {
	for range rapid.IntRange(1, 6).Draw(t, "n") {
		x.ids++
		e := &examEvent{id: "e" + strconv.Itoa(x.ids), key: rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(t, "key")}
		x.mu.Lock()
		x.events[e.id] = e
		if e.key != "" {
			x.keys[e.key] = append(x.keys[e.key], e)
		}
		x.mu.Unlock()
		x.log.append(topic, record(e.id, e.key))
	}
	synctest.Wait()
}

func (x *exam) join() {
	c := &examClient{x: x, window: rapid.IntRange(1, 8).Draw(x.t, "asked window")}
	m, err := x.m.Subscribe(context.Background(), Subscription{
		Topic: topic, Group: "g", Sink: c, Pacer: &fakePacer{},
		Options: wire.SubscribeOptions{From: wire.FromEarliest, MaxInflight: &c.window},
	})
	if err != nil {
		x.t.Fatalf("subscribe: %v", err)
	}
	c.m = m
	x.mu.Lock()
	x.clients = append(x.clients, c)
	x.mu.Unlock()
	m.Start()
	synctest.Wait()
}

func (c *examClient) Room() bool {
	c.x.mu.Lock()
	defer c.x.mu.Unlock()
	return !c.full
}

// Deliver checks what comes.
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
		e.attempts, e.most, e.fate = d.Attempt, d.Attempt, unsettled
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
	case d.Attempt <= e.attempts || d.Attempt > e.most+1 || d.Attempt > examAttempts:
		x.t.Errorf("%s came with attempt %d after %d to %d", e.id, d.Attempt, e.attempts, e.most)
	}
	if e.key == "" {
		return
	}
	for _, before := range x.keys[e.key] {
		if before == e {
			return
		}
		if before.fate == unsettled {
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

func (x *exam) buried(rec *eventlog.Record) {
	x.mu.Lock()
	defer x.mu.Unlock()
	id, _ := rec.Headers.Get(HeaderDeadID)
	e := x.events[id]
	attempts, _ := rec.Headers.Get(HeaderDeadAttempts)
	if e.most < examAttempts || attempts != strconv.Itoa(examAttempts) {
		x.t.Errorf("%s was buried after %d attempts, saying %s", id, e.most, attempts)
	}
	if e.fate == asked {
		x.t.Errorf("%s was buried after its ack", id)
	}
	e.fate, e.holder = over, nil
}

// one picks a member, or nil.
func (x *exam) one(t *rapid.T) *examClient {
	if len(x.clients) == 0 {
		return nil
	}
	return x.clients[rapid.IntRange(0, len(x.clients)-1).Draw(t, "member")]
}

func (x *exam) ackSome(t *rapid.T) {
	c := x.one(t)
	if c == nil || len(x.events) == 0 {
		return
	}
	var ids []string
	var acked []*examEvent
	x.mu.Lock()
	for _, e := range x.held(c) {
		if rapid.Bool().Draw(t, e.id) {
			ids = append(ids, e.id)
			acked = append(acked, e)
			e.fate, e.holder = asked, nil
		}
	}
	x.mu.Unlock()
	// One that is not in flight here, most likely.
	ids = append(ids, x.foreign(t, c)...)
	c.m.Ack(ids, func(err error) {
		x.mu.Lock()
		defer x.mu.Unlock()
		for _, e := range acked {
			if err == nil && e.fate == asked {
				e.fate = over
			}
		}
	})
	synctest.Wait()
}

func (x *exam) foreign(t *rapid.T, c *examClient) []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	id := rapid.SampledFrom(slices.Sorted(maps.Keys(x.events))).Draw(t, "foreign")
	if x.events[id].holder == c || x.store == "slow" { // or it may be on its way here
		return nil
	}
	return []string{id}
}

func (x *exam) nackOne(t *rapid.T) {
	c := x.one(t)
	if c == nil {
		return
	}
	x.mu.Lock()
	held := x.held(c)
	if len(held) == 0 {
		x.mu.Unlock()
		return
	}
	e := held[rapid.IntRange(0, len(held)-1).Draw(t, "event")]
	e.holder = nil
	x.mu.Unlock()
	delay := rapid.SampledFrom([]time.Duration{0, time.Second}).Draw(t, "delay")
	c.m.Nack([]string{e.id}, "no", &delay, func(error) {})
	synctest.Wait()
}

func (x *exam) extendOne(t *rapid.T) {
	c := x.one(t)
	if c == nil {
		return
	}
	x.mu.Lock()
	held := x.held(c)
	if len(held) == 0 {
		x.mu.Unlock()
		return
	}
	e := held[rapid.IntRange(0, len(held)-1).Draw(t, "event")]
	extend := rapid.SampledFrom([]time.Duration{1, 15}).Draw(t, "seconds") * time.Second
	e.deadline = time.Now().Add(extend)
	x.mu.Unlock()
	if !c.m.Extend(e.id, extend) {
		t.Errorf("%s is not in flight", e.id)
	}
	synctest.Wait()
}

func (x *exam) pauseOrResume(t *rapid.T) {
	c := x.one(t)
	if c == nil {
		return
	}
	x.mu.Lock()
	silent := c.silent
	c.silent = false
	x.mu.Unlock()
	if silent {
		c.m.Resume()
	} else {
		c.m.Pause()
		x.mu.Lock()
		c.silent = true
		x.mu.Unlock()
	}
	synctest.Wait()
}

func (x *exam) leaveOne(t *rapid.T) {
	c := x.one(t)
	if c == nil {
		return
	}
	how := rapid.SampledFrom([]Leaving{Unsubscribed, Disconnected}).Draw(t, "how")
	x.mu.Lock()
	x.gone(c, how)
	x.mu.Unlock()
	c.m.Close(how)
	x.mu.Lock()
	c.silent = true
	x.mu.Unlock()
	x.clients = slices.DeleteFunc(x.clients, func(o *examClient) bool { return o == c })
	synctest.Wait()
}

// gone gives back what a member has in flight. With a slow store the group may
// not have noticed a deadline yet.
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

func (x *exam) fillOrDrain(t *rapid.T) {
	c := x.one(t)
	if c == nil {
		return
	}
	x.mu.Lock()
	c.full = !c.full
	x.mu.Unlock()
	c.m.Wake()
	synctest.Wait()
}

func (x *exam) changeWindow(t *rapid.T) {
	n := rapid.IntRange(1, 8).Draw(t, "window")
	x.mu.Lock()
	for _, c := range x.clients { // what is in flight stays
		if len(x.held(c)) > n || x.store == "slow" {
			n = x.window
		}
	}
	x.window = n
	x.mu.Unlock()
	x.setPolicy(func(p *policy.Effective) { p.Delivery.MaxInflight = n })
}

func (x *exam) breakOrMendStore(t *rapid.T) {
	x.setStore(rapid.SampledFrom([]string{"ok", "fails", "slow"}).Draw(t, "store"))
}

func (x *exam) setStore(how string) {
	x.store = how
	x.shaky = x.shaky || how != "ok"
	var gate chan struct{}
	x.log.locked(func() {
		x.log.saveErr, gate, x.log.saveGate = nil, x.log.saveGate, nil
		switch how {
		case "fails":
			x.log.saveErr = errStore
		case "slow":
			x.log.saveGate = make(chan struct{})
		}
	})
	if gate != nil {
		close(gate)
	}
	synctest.Wait()
}

func (x *exam) mendStore() {
	x.setStore("ok")
	time.Sleep(retryAfterFailure)
	synctest.Wait()
	x.shaky = false
}

func (x *exam) breakOrMendGraves(t *rapid.T) {
	err := rapid.SampledFrom([]error{nil, errStore}).Draw(t, "graves")
	x.graves.set(func() { x.graves.err = err })
}

func (x *exam) seekEarliest(*rapid.T) {
	if rapid.IntRange(0, 3).Draw(x.t, "really") > 0 || len(x.events) == 0 {
		return
	}
	x.mendStore()
	x.mu.Lock()
	for _, e := range x.events {
		*e = examEvent{id: e.id, key: e.key}
	}
	x.mu.Unlock()
	if err := x.m.Seek(context.Background(), topic, "g", wire.SubscribeOptions{From: wire.FromEarliest}); err != nil {
		x.t.Fatalf("seek: %v", err)
	}
	synctest.Wait()
}

// restart ends the process, by a stop that gives everything back or by a kill
// that loses what is not durable.
func (x *exam) restart(t *rapid.T) {
	kill := rapid.Bool().Draw(t, "kill")
	if !kill {
		x.mendStore()
	}
	x.mu.Lock()
	for _, c := range x.clients {
		if kill {
			x.gone(c, Disconnected)
		} else {
			x.gone(c, Unsubscribed)
		}
		c.silent, c.dead = true, kill
	}
	x.clients = nil
	for _, e := range x.events {
		if x.shaky {
			e.most++ // a count may be stored whose delivery was given back
		}
	}
	x.mu.Unlock()
	if kill {
		x.mortal.kill()
		if x.store == "slow" {
			x.setStore("ok")
		}
		x.kill()
	} else {
		x.stop()
		x.start()
	}
	x.mu.Lock()
	for _, e := range x.events {
		if e.fate == asked {
			e.fate = perhaps
		}
	}
	x.mu.Unlock()
	synctest.Wait()
}

// finish mends everything and acks whatever comes, until nothing comes.
func (x *exam) finish() {
	x.mendStore()
	x.graves.set(func() { x.graves.err = nil })
	for _, c := range x.clients {
		x.mu.Lock()
		c.silent, c.full = false, false
		x.mu.Unlock()
		c.m.Resume()
	}
	x.join()
	for range 3 * (len(x.events) + 3) {
		if x.drained() {
			break
		}
		for _, c := range x.clients {
			x.mu.Lock()
			var ids []string
			for _, e := range x.held(c) {
				ids = append(ids, e.id)
				e.fate, e.holder = over, nil
			}
			x.mu.Unlock()
			c.m.Ack(ids, func(err error) {
				if err != nil {
					x.t.Errorf("ack: %v", err)
				}
			})
			synctest.Wait()
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
	}
	for id, e := range x.events {
		if e.fate == unsettled {
			x.t.Errorf("%s is lost", id)
		}
	}
	if info := x.info(); info.Lag != 0 || info.Inflight != 0 {
		x.t.Errorf("lag %d, in flight %d after everything was settled", info.Lag, info.Inflight)
	}
}

func (x *exam) drained() bool {
	return x.info().Lag == 0
}

package group

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// TestGroupKeepsItsPromises lets the members of one group, a failing store and a mortal process do
// as they like. It checks every delivery against the members' knowledge: window, key order,
// attempts, and nothing after an ack, a pause or a close. In the end every event is acked or a dead
// letter.
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
		"pause":  x.pauseOrResume,
		"join":   func(*rapid.T) { x.join() },
		"leave":  x.leaveOne,
		"room":   x.fillOrDrain,
		"window": x.changeWindow,
		"fairness": func(t *rapid.T) {
			fair := policy.Fairness{By: policy.Grouping(rapid.SampledFrom([]string{"", "key_prefix"}).Draw(t, "by"))}
			fair.Weights = policy.Weights(rapid.SampledFrom([]string{"", `{"a":3}`, `{"":0.5,"b":2}`}).Draw(t, "weights"))
			x.setPolicy(func(p *policy.Effective) { p.Delivery.Fairness = fair })
		},
		"limits": func(t *rapid.T) {
			limits := rapid.SampledFrom([]string{"", "", `{"g":{"paused":true}}`, `{"g":{"rate":1}}`, `{"g":{"max_inflight":1}}`}).Draw(t, "limits")
			x.setPolicy(groups(policy.Groups(limits)))
		},
		"store":   x.breakOrMendStore,
		"dlq":     x.breakOrMendDeadLetters,
		"seek":    x.seekEarliest,
		"redrive": x.redriveSome,
		"restart": x.restart,
		"":        x.nobodyWaits,
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

// draw picks one of the values; the zero value stands for none.
func draw[T any](t *rapid.T, of []T) (one T) {
	if len(of) > 0 {
		one = rapid.SampledFrom(of).Draw(t, "which")
	}
	return one
}

func (x *exam) ackSome(t *rapid.T) {
	c := draw(t, x.clients)
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
	c := draw(t, x.clients)
	if c == nil {
		return
	}
	x.mu.Lock()
	e := draw(t, x.held(c))
	if e == nil {
		x.mu.Unlock()
		return
	}
	e.holder = nil
	delay := rapid.SampledFrom([]time.Duration{0, time.Second}).Draw(t, "delay")
	how := nack("no", &delay)
	switch rapid.SampledFrom([]string{"again", "hold", "dead letter"}).Draw(t, "how") {
	case "hold":
		how.Hold = true
		if e.attempts--; !x.shaky {
			e.most = e.attempts
		}
	case "dead letter":
		how.DeadLetter, e.doomed = true, true
	}
	x.mu.Unlock()
	c.m.Nack([]string{e.id}, how, func(err error) {
		x.mu.Lock()
		defer x.mu.Unlock()
		switch {
		case err != nil || !how.DeadLetter || !e.doomed:
		case e.fate == asked:
			e.fate = over
		default:
			t.Errorf("the nack of %s was answered before the dead letter was appended", e.id)
		}
	})
	synctest.Wait()
}

func (x *exam) extendOne(t *rapid.T) {
	c := draw(t, x.clients)
	if c == nil {
		return
	}
	x.mu.Lock()
	e := draw(t, x.held(c))
	if e == nil {
		x.mu.Unlock()
		return
	}
	extend := rapid.SampledFrom([]time.Duration{1, 15}).Draw(t, "seconds") * time.Second
	e.deadline = time.Now().Add(extend)
	x.mu.Unlock()
	if !c.m.Extend(e.id, extend) {
		t.Errorf("%s is not in flight", e.id)
	}
	synctest.Wait()
}

func (x *exam) pauseOrResume(t *rapid.T) {
	c := draw(t, x.clients)
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
	c := draw(t, x.clients)
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

func (x *exam) fillOrDrain(t *rapid.T) {
	c := draw(t, x.clients)
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
	for _, c := range x.clients { // events in flight stay
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

func (x *exam) breakOrMendDeadLetters(t *rapid.T) {
	err := rapid.SampledFrom([]error{nil, errStore}).Draw(t, "dlq")
	x.deadLetters.set(func() { x.deadLetters.err = err })
}

func (x *exam) seekEarliest(*rapid.T) {
	if rapid.IntRange(0, 3).Draw(x.t, "really") > 0 || len(x.events) == 0 || x.redriving() {
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

// restart ends the process, by a stop that gives everything back or by a kill that loses all that
// is not durable.
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
		if kill {
			e.kills++
			e.twice = e.twice || x.shaky
		}
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

// finish ends all faults and acks every delivery, until none comes.
func (x *exam) finish() {
	x.mendStore()
	x.setPolicy(groups(""))
	x.deadLetters.set(func() { x.deadLetters.err = nil })
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
	for id, letters := range x.log.dead() {
		names := map[string]bool{} // a seek gives it another
		for _, d := range letters {
			names[d.ID] = true
		}
		if len(letters) != len(names) || x.redriving() {
			x.t.Errorf("%s has %d dead letters of %d names", id, len(letters), len(names))
		}
	}
	if info := x.info(); info.Lag != 0 || info.Inflight != 0 {
		x.t.Errorf("lag %d, in flight %d after everything was settled", info.Lag, info.Inflight)
	}
}

func (x *exam) drained() bool { return x.info().Lag == 0 && !x.redriving() }

// redriving reports whether a redriven event is not settled yet.
func (x *exam) redriving() (is bool) {
	x.log.locked(func() { is = len(x.log.redrives) > 0 })
	return is
}

// redriveSome asks for dead letters to be delivered again; maybe twice.
func (x *exam) redriveSome(t *rapid.T) {
	dead := x.log.dead()
	var rs []eventlog.Redrive
	x.mu.Lock()
	for _, id := range slices.Sorted(maps.Keys(dead)) {
		e, d := x.events[id], dead[id][0]
		if has, _ := x.log.HasRedrives(context.Background(), topic, []eventlog.Redrive{d.Redrive()}); has[0] || e.fate != over || e.twice ||
			len(dead[id]) > 1 || !rapid.Bool().Draw(t, id) {
			continue // of two the earlier is being taken away
		}
		rs = append(rs, d.Redrive())
		*e = examEvent{id: e.id, key: e.key, redriven: true}
	}
	x.mu.Unlock()
	for range rapid.IntRange(1, 2).Draw(t, "times") {
		_ = x.log.AddRedrives(context.Background(), topic, rs)
		x.m.Redriven(topic, "g")
	}
	synctest.Wait()
}

// nobodyWaits checks that no wake-up was lost: once all is at rest, a member that gets no events
// has a reason.
func (x *exam) nobodyWaits(t *rapid.T) {
	synctest.Wait()
	if x.shaky || len(x.clients) == 0 {
		return
	}
	for i, m := range x.info().Members {
		if m.BlockedBy == nil {
			t.Errorf("member %d is sent nothing for no reason", i)
		}
	}
}

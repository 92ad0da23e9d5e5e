package contract

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/test/testkit"
)

// "An ack that does not come within the deadline … redelivery, with attempt one higher."
// "ctx.attempt starts at 1; ctx.ack_deadline_ms is the time that is left."
func TestAckDeadline(t *testing.T) {
	t.Parallel()
	s := shared(t)
	k := s.dial(t)
	k.ok(`{"op":"SUBSCRIBE","topic":"one.deadline","group":"g","opts":{"ackTimeoutMs":1000}}`)
	began := time.Now() // the event may come before its publisher's answer
	s.put(t, "one.deadline", "x", "1")
	for attempt := range 3 {
		f := k.event()
		if left := f.Number(t, "ctx.ack_deadline_ms"); f.Text("ctx.attempt") != fmt.Sprint(attempt+1) || left < 1 || left > 1000 {
			t.Fatalf("delivery %d: %v", attempt+1, f["ctx"])
		}
		if early := time.Duration(attempt) * 980 * time.Millisecond; time.Since(began) < early {
			t.Errorf("redelivered after %v", time.Since(began))
		}
	}
	k.ack("one.deadline", "g", "x")
	k.silent("it is acked")
}

// "MODACK: OK, the deadline is now + extend_ms; unknown_id if not in flight"
func TestModack(t *testing.T) {
	t.Parallel()
	s := shared(t)
	k := s.dial(t)
	k.ok(`{"op":"SUBSCRIBE","topic":"one.modack","group":"g","opts":{"ackTimeoutMs":2000}}`)
	s.put(t, "one.modack", "x", "1")
	k.event()
	began := time.Now()
	k.ok(`{"op":"MODACK","topic":"one.modack","group":"g","id":"x","extend_ms":3000}`)
	if f := k.event(); time.Since(began) < 2980*time.Millisecond || f.Text("ctx.attempt") != "2" {
		t.Errorf("after %v: %v", time.Since(began), f["ctx"])
	}
	k.ok(`{"op":"MODACK","topic":"one.modack","group":"g","id":"x","extend_ms":60000}`)
	k.ok(`{"op":"MODACK","topic":"one.modack","group":"g","id":"x","extend_ms":50}`) // shorter is fine too
	if f := k.event(); f.Text("ctx.attempt") != "3" {
		t.Errorf("%v", f["ctx"])
	}
	k.ack("one.modack", "g", "x")
	k.refused("unknown_id", `{"op":"MODACK","topic":"one.modack","group":"g","id":"x","extend_ms":50}`)
}

// "NACK: OK; redelivered after the delay (0: at once), else the policy's backoff; counts an
// attempt"
func TestNack(t *testing.T) {
	t.Parallel()
	s := own(t, `[{name: "*", publish: {rate: 0}, connection: {rate: 0}, delivery: {backoff: {min: 4m, max: 4m}}}, `+
		`{name: one.soon, delivery: {backoff: {min: 500ms, max: 500ms}}}]`)
	k := s.dial(t)
	for _, topic := range []string{"one.soon", "one.nack"} {
		k.ok(`{"op":"SUBSCRIBE","topic":%q,"group":"g"}`, topic)
		s.put(t, topic, "x", "1")
		k.event()
	}
	for _, c := range []struct {
		topic, extra string
		attempt      string
		from         time.Duration
	}{
		{"one.nack", `,"delay_ms":0`, "2", 0}, // the policy's backoff is too long to wait for
		{"one.nack", `,"delay_ms":500,"reason":"not yet"`, "3", 500 * time.Millisecond},
		{"one.soon", ``, "2", 240 * time.Millisecond}, // half of min leaves room for jitter
	} {
		began := time.Now()
		k.ok(`{"op":"NACK","topic":%q,"group":"g","ids":["x"]%s}`, c.topic, c.extra)
		f := k.event()
		if took := time.Since(began); took < c.from || f.Text("ctx.attempt") != c.attempt || f.Text("topic") != c.topic {
			t.Errorf("NACK %s of %s: attempt %s after %v", c.extra, c.topic, f.Text("ctx.attempt"), took)
		}
	}
	k.ack("one.nack", "g", "x")
	k.ok(`{"op":"NACK","topic":"one.nack","group":"g","id":"x","delay_ms":0}`)
	k.silent("it was acked before the nack")
}

// "after maxAttempts, moved to the topic <topic>.dlq with headers sluice-dlq-reason, -group,
// -attempts, -id. Nothing is dropped in silence."
func TestDeadLetters(t *testing.T) {
	t.Parallel()
	s := shared(t)
	k := s.dial(t)
	k.ok(`{"op":"SUBSCRIBE","topic":"one.dead.dlq"}`)
	k.ok(`{"op":"SUBSCRIBE","topic":"one.dead","group":"g","opts":{"maxAttempts":2,"ackTimeoutMs":200}}`)
	s.put(t, "one.dead", "nacked", `{"n":1e400}`, "Sluice-Key: k", "Sluice-Header-Mine: m")
	isDead := func(f object) bool { return isEvent(f) && f["topic"] == "one.dead.dlq" }
	for range 2 {
		k.event()
		k.ok(`{"op":"NACK","topic":"one.dead","group":"g","id":"nacked","delay_ms":0,"reason":"no such customer"}`)
	}
	d := k.await("the dead letter", isDead)
	h := "event.headers.sluice-dlq-"
	whole := d.Has(testkit.Members{h + "group": "g", h + "attempts": "2", h + "id": "nacked", "event.headers.mine": "m", "event.key": "k"})
	if !strings.Contains(d.Text(h+"reason"), "no such customer") || !whole {
		t.Errorf("%v", d["event"])
	}
	wantSame(t, "a dead letter's payload", `{"n":1e400}`, payloadOf(t, d))
	s.put(t, "one.dead", "late", "1", "Sluice-Key: k")
	d = k.await("the dead letter of an event never acked", isDead)
	if d.Text(h+"id") != "late" || d.Text(h+"attempts") != "2" || d.Text(h+"reason") == "" {
		t.Errorf("%v", d["event"])
	}
	testkit.Eventually(t, "the group has settled both", func() bool { return s.group(t, "one.dead", "g").Text("lag") == "0" })
	s.put(t, "one.dead", "good", "1", "Sluice-Key: k") // later events still come
	k.await("the next event", func(f object) bool { return f.Text("event.id") == "good" })
}

// "a closed connection: redelivery, with attempt one higher"; "UNSUBSCRIBE … give events back
// without counting an attempt"; "unacked events go back to the group at once"; "a graceful stop".
func TestGivingBack(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	s := h.start(t, sharedPolicies, soon...)
	a, b := s.dial(t), s.dial(t)
	const subscribe = `{"op":"SUBSCRIBE","topic":"back","group":"g","opts":{"from":"earliest"}}`
	a.ok(subscribe)
	s.put(t, "back", "x", "1", "Sluice-Key: k")
	a.event()
	b.ok(subscribe)
	a.ok(`{"op":"UNSUBSCRIBE","topic":"back","group":"g"}`)
	if f := b.event(); f.Text("ctx.attempt") != "1" {
		t.Errorf("after UNSUBSCRIBE: attempt %s", f.Text("ctx.attempt"))
	}
	a.ok(subscribe)
	b.drop()
	if f := a.event(); f.Text("ctx.attempt") != "2" {
		t.Errorf("after a closed connection: attempt %s", f.Text("ctx.attempt"))
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Errorf("stop: %v", err)
	}
	s = h.start(t, sharedPolicies, soon...)
	c := s.dial(t)
	c.ok(subscribe)
	if f := c.event(); f.Text("ctx.attempt") != "2" {
		t.Errorf("after a graceful stop: attempt %s", f.Text("ctx.attempt"))
	}
	s.Kill() // "a killed sidecar: redelivery, with attempt one higher. Attempts survive a restart."
	s = h.start(t, sharedPolicies, soon...)
	d := s.dial(t)
	d.ok(subscribe)
	if f := d.event(); f.Text("ctx.attempt") != "3" {
		t.Errorf("after a kill: attempt %s", f.Text("ctx.attempt"))
	}
	d.ack("back", "g", "x") // "OK once the progress is recorded durably, so it survives a kill"
	s.Kill()
	s = h.start(t, sharedPolicies, soon...)
	e := s.dial(t)
	e.ok(subscribe)
	s.put(t, "back", "y", "1", "Sluice-Key: k")
	if f := e.event(); f.Text("event.id") != "y" {
		t.Errorf("acked before the kill: %v", f)
	}
}

// "An ack that arrives after its event was redelivered elsewhere settles nothing there."
func TestLateAck(t *testing.T) {
	t.Parallel()
	s := shared(t)
	a, b := s.dial(t), s.dial(t)
	a.ok(`{"op":"SUBSCRIBE","topic":"one.late","group":"g","opts":{"ackTimeoutMs":200}}`)
	s.put(t, "one.late", "x", "1")
	a.event()
	a.ok(`{"op":"PAUSE","topic":"one.late","group":"g"}`)
	b.ok(`{"op":"SUBSCRIBE","topic":"one.late","group":"g","opts":{"ackTimeoutMs":1500}}`)
	if f := b.event(); f.Text("ctx.attempt") != "2" {
		t.Fatalf("%v", f)
	}
	a.ack("one.late", "g", "x") // a harmless OK
	a.ok(`{"op":"NACK","topic":"one.late","group":"g","id":"x","delay_ms":0}`)
	a.refused("unknown_id", `{"op":"MODACK","topic":"one.late","group":"g","id":"x","extend_ms":60000}`)
	if g := s.group(t, "one.late", "g"); g.Text("lag") != "1" || g.Text("inflight") != "1" {
		t.Errorf("a late ack settled it: %v", g)
	}
	if f := b.event(); f.Text("ctx.attempt") != "3" { // b's deadline still runs
		t.Errorf("%v", f)
	}
	b.ack("one.late", "g", "x")
}

// "Never more than maxInflight unacked events per subscription."
func TestMaxInflight(t *testing.T) {
	t.Parallel()
	s := shared(t)
	for i := range 40 {
		s.put(t, "delivery.inflight", fmt.Sprint(i), "1")
	}
	for i, batch := range []int{1, 10} {
		k := s.dial(t)
		group := fmt.Sprint("g", i)
		k.ok(`{"op":"SUBSCRIBE","topic":"delivery.inflight","group":%q,"opts":{"from":"earliest","maxInflight":3,"maxBatch":%d}}`, group, batch)
		var held []string
		for done := 0; done < 40; {
			wait := testkit.Patience
			if len(held) > 0 {
				wait = instant / 3
			}
			f := k.within(wait, func(f object) bool { return isEvent(f) || f["op"] == "EVENTS" })
			switch {
			case f == nil && len(held) == 0:
				t.Fatalf("stuck after %d", done)
			case f == nil:
				k.ack("delivery.inflight", group, held[0])
				held, done = held[1:], done+1
			case isEvent(f):
				held = append(held, f.Text("event.id"))
			default:
				held = append(held, ids(f.List("events"))...)
			}
			if len(held) > 3 {
				t.Fatalf("%d in flight", len(held))
			}
			if len(held) == 3 {
				k.ok(`{"op":"ACK","topic":"delivery.inflight","group":%q,"ids":[%q,%q]}`, group, held[0], held[1])
				held, done = held[2:], done+2
			}
		}
	}
}

// "with ordered, events of one key reach the group in log order, one in flight at a time per key"
func TestKeyOrder(t *testing.T) {
	t.Parallel()
	s := shared(t)
	for i := range 4 {
		s.put(t, "one.order", fmt.Sprint("a", i), "1", "Sluice-Key: a")
		s.put(t, "one.order", fmt.Sprint("b", i), "1", "Sluice-Key: b")
	}
	k, l := s.dial(t), s.dial(t)
	k.ok(`{"op":"SUBSCRIBE","topic":"one.order","group":"g","opts":{"from":"earliest"}}`)
	first := ids(k.events(2))
	l.ok(`{"op":"SUBSCRIBE","topic":"one.order","group":"g","opts":{"from":"earliest"}}`)
	k.silent("both keys have one in flight")
	l.silent("both keys have one in flight")
	if strings.Join(first, " ") != "a0 b0" {
		t.Fatalf("%v", first)
	}
	k.ok(`{"op":"NACK","topic":"one.order","group":"g","id":"a0","delay_ms":0}`)
	next := map[string]int{"a": 0, "b": 1}
	k.ack("one.order", "g", "b0")
	for range 7 {
		var f object
		testkit.Eventually(t, "an EVENT at either member", func() bool {
			for _, m := range []*socket{k, l} {
				if f = m.within(instant/10, isEvent); f != nil {
					m.ack("one.order", "g", f.Text("event.id"))
					return true
				}
			}
			return false
		})
		key := f.Text("event.key")
		if want := fmt.Sprint(key, next[key]); f.Text("event.id") != want {
			t.Fatalf("%s, want %s", f.Text("event.id"), want)
		}
		next[key]++
	}

	u := s.dial(t) // without ordered, one key does not wait
	u.ok(`{"op":"SUBSCRIBE","topic":"one.order","group":"unordered","opts":{"from":"earliest","ordered":false}}`)
	u.events(8)
}

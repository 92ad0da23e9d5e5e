package contract

import (
	"fmt"
	"testing"

	"github.com/sluice-bus/sluice/test/testkit"
)

// blockedBy waits until a group's only member is blocked by a reason.
func blockedBy(t *testing.T, s *server, topic, group, reason string) {
	t.Helper()
	var last object
	testkit.Eventually(t, group+" of "+topic+" is blocked by "+reason, func() bool {
		last = s.group(t, topic, group)
		m := last.List("members")
		return len(m) == 1 && m[0].Text("blocked_by") == reason
	})
}

// "for each member blocked_by: why it is sent nothing right now"; "cursor per partition, lag,
// members, in flight"
func TestBlockedBy(t *testing.T) {
	t.Parallel()
	s := shared(t)
	const topic = "one.blocked"
	k := s.dial(t)
	k.ok(`{"op":"SUBSCRIBE","topic":%q,"group":"g","opts":{"maxInflight":2}}`, topic)
	blockedBy(t, s, topic, "g", "caught_up")
	s.put(t, topic, "a", "1", "Sluice-Key: k")
	k.event()
	blockedBy(t, s, topic, "g", "caught_up")
	s.put(t, topic, "b", "1", "Sluice-Key: k")
	blockedBy(t, s, topic, "g", "key_order")
	s.put(t, topic, "c", "1", "Sluice-Key: l")
	k.event()
	blockedBy(t, s, topic, "g", "max_inflight")
	k.ok(`{"op":"PAUSE","topic":%q,"group":"g"}`, topic)
	blockedBy(t, s, topic, "g", "paused")
	g := s.group(t, topic, "g")
	if g.Text("lag") != "3" || g.Text("inflight") != "2" || len(g.List("partitions")) != 1 || g.List("partitions")[0].Text("cursor") == "" {
		t.Errorf("%v", g)
	}
	k.ok(`{"op":"RESUME","topic":%q,"group":"g"}`, topic)
	k.ok(`{"op":"ACK","topic":%q,"group":"g","ids":["a","c"]}`, topic)
	k.event()
	k.ack(topic, "g", "b")
	blockedBy(t, s, topic, "g", "caught_up")
	if g := s.group(t, topic, "g"); g.Text("lag") != "0" || g.Text("inflight") != "0" {
		t.Errorf("%v", g)
	}
	k.ok(`{"op":"UNSUBSCRIBE","topic":%q,"group":"g"}`, topic)
	if g := s.group(t, topic, "g"); len(g.List("members")) != 0 { // the group outlives its members
		t.Errorf("%v", g)
	}
}

// blocked_by "rate": "a delivery that finds no token waits, and is never dropped". "delivery.rate
// has one second's worth as burst."
func TestDeliveryRate(t *testing.T) {
	t.Parallel()
	s := own(t, `[{name: "*", publish: {rate: 0}, connection: {rate: 0}}, {name: slow, delivery: {rate: 10}}]`)
	k := s.dial(t)
	k.ok(`{"op":"SUBSCRIBE","topic":"slow","group":"g"}`)
	const n = 90 // for some seconds, so that a busy machine sees it wait
	for i := range n {
		s.put(t, "slow", fmt.Sprint(i), "1")
	}
	k.events(10)
	blockedBy(t, s, "slow", "g", "rate")
	k.events(n - 10)
	blockedBy(t, s, "slow", "g", "caught_up")
}

// "slow_reader": "A client that does not read slows only itself."
func TestSlowReader(t *testing.T) {
	t.Parallel()
	s := shared(t)
	slow, fast := s.rawDial(t), s.dial(t)
	slow.write(`{"op":"SUBSCRIBE","topic":"one.slow","group":"slow"}`)
	testkit.Eventually(t, "the slow group exists", func() bool { return len(s.group(t, "one.slow", "slow").List("members")) == 1 })
	fast.ok(`{"op":"SUBSCRIBE","topic":"one.slow","group":"fast"}`)
	const n = 20
	for i := range n {
		s.put(t, "one.slow", fmt.Sprint(i), text(1<<20))
	}
	for i := range n {
		f := fast.event()
		if f.Text("event.id") != fmt.Sprint(i) {
			t.Fatalf("%v", f.Text("event.id"))
		}
		fast.ack("one.slow", "fast", fmt.Sprint(i))
	}
	blockedBy(t, s, "one.slow", "slow", "slow_reader")
}

// "no_partition": more members than partitions, if members own partitions; a member that shares one
// is not blocked so.
func TestMoreMembersThanPartitions(t *testing.T) {
	t.Parallel()
	s := shared(t)
	s.put(t, "one.crowd", "x", "1")
	a, b := s.dial(t), s.dial(t)
	a.ok(`{"op":"SUBSCRIBE","topic":"one.crowd","group":"g"}`)
	b.ok(`{"op":"SUBSCRIBE","topic":"one.crowd","group":"g"}`)
	testkit.Eventually(t, "both are idle for a reason", func() bool {
		m := s.group(t, "one.crowd", "g").List("members")
		idle := func(o object) bool { r := o.Text("blocked_by"); return r == "caught_up" || r == "no_partition" }
		return len(m) == 2 && idle(m[0]) && idle(m[1])
	})
}

// "PUT …/cursor {from, ts, afterId}: move a group (seek), 204, at once also while members are
// connected (their in-flight leases become stale)"
func TestSeek(t *testing.T) {
	t.Parallel()
	s := shared(t)
	const topic = "one.seek"
	cursor := s.URL() + "/v1/topics/" + topic + "/groups/g/cursor"
	for i := range 4 {
		s.put(t, topic, fmt.Sprint(i), "1", fmt.Sprint("Sluice-Ts: ", 100+i))
	}
	k := s.dial(t)
	k.ok(`{"op":"SUBSCRIBE","topic":%q,"group":"g","opts":{"from":"earliest"}}`, topic)
	k.events(4)
	k.ok(`{"op":"ACK","topic":%q,"group":"g","ids":["0","1"]}`, topic)
	for _, c := range []struct {
		body  string
		first int
	}{{`{"from":"earliest"}`, 0}, {`{"from":"ts","ts":102}`, 2}, {`{"from":"afterId","afterId":"0"}`, 1}, {`{"from":"earliest"}`, 0}} {
		if a := testkit.Call(t, "PUT", cursor, c.body); a.Status != 204 || len(a.Body) != 0 {
			t.Fatalf("%s: %d %s", c.body, a.Status, a.Body)
		}
		for i := c.first; i < 4; i++ {
			if f := k.event(); f.Text("event.id") != fmt.Sprint(i) {
				t.Fatalf("%s: %v, want %d", c.body, f, i)
			}
		}
	}
	if a := testkit.Call(t, "PUT", cursor, `{"from":"latest"}`); a.Status != 204 {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	k.refused("unknown_id", `{"op":"MODACK","topic":%q,"group":"g","id":"3","extend_ms":1000}`, topic) // stale
	if g := s.group(t, topic, "g"); g.Text("lag") != "0" || g.Text("inflight") != "0" {
		t.Errorf("%v", g)
	}
	s.put(t, topic, "new", "1")
	if f := k.event(); f.Text("event.id") != "new" {
		t.Errorf("%v", f)
	}
	for body, status := range map[string]int{
		`{"from":"middle"}`: 400, `{}`: 400, `{"from":"ts"}`: 400, `{"from":"afterId"}`: 400, `{"from":"afterId","afterId":"none"}`: 404,
		`{`: 400, `[]`: 400, `{"from":"ts","ts":-1}`: 400,
	} {
		if a := testkit.Call(t, "PUT", cursor, body); a.Status != status {
			t.Errorf("%s: want %d, got %d %s", body, status, a.Status, a.Body)
		}
	}
}

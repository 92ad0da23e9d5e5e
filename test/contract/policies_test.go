package contract

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

// burstOf reads a topic's burst from the refusal of a batch that is too large.
func (k *socket) burstOf(topic string) string {
	k.t.Helper()
	r := k.ask(`{"op":"PUBLISH","topic":%q,"events":%s}`, topic, batch(1000))
	if r["op"] == "OK" {
		return "none"
	}
	for _, n := range []string{"11", "12", "13", "14", "15"} {
		if strings.Contains(r.Text("msg"), n) {
			return n
		}
	}
	return fmt.Sprint(r)
}

// "for a topic, exact beats longer literal prefix beats *, and unset fields fall through to the
// next match, then to the defaults"; "connection is read from the policy * alone".
func TestPolicyMatching(t *testing.T) {
	t.Parallel()
	s := own(t, `
- {name: a.b.c, partitions: 2}
- {name: a.*, publish: {burst: 12}, partitions: 3, connection: {burst: 1}}
- {name: "*", publish: {rate: 1000, burst: 11}, connection: {rate: 0}, partitions: 5}
- {name: a.b.*, publish: {burst: 13}}
- {name: a.b, publish: {burst: 14}}
- {name: free, publish: {rate: 0}}
`)
	k := s.dial(t)
	for topic, want := range map[string]string{"x": "11", "a": "11", "ab": "11", "a.x": "12", "a.b": "14", "a.b.x": "13", "a.b.c": "13",
		"a.b.c.d": "13", "free": "none"} {
		if got := k.burstOf(topic); got != want {
			t.Errorf("burst of %s: %s, want %s", topic, got, want)
		}
	}
	for topic, want := range map[string]int{"a.b.c": 2, "a.b.x": 3, "y": 5} {
		k.ok(`{"op":"PUBLISH","topic":%q,"payload":1}`, topic)
		k.ok(`{"op":"SUBSCRIBE","topic":%q,"group":"g"}`, topic)
		if got := len(s.group(t, topic, "g").List("partitions")); got != want {
			t.Errorf("%s has %d partitions, want %d", topic, got, want)
		}
	}
	var names []string
	for _, p := range testkit.ParseObject(t, testkit.Call(t, "GET", s.OpsURL()+"/v1/status", "").Body).List("policies") {
		if p.Text("version") == "" || p.Text("source") == "" {
			t.Errorf("%v", p)
		}
		names = append(names, p.Text("name"))
	}
	if len(names) != 6 {
		t.Errorf("status lists %v", names)
	}
}

// "delivery values are the defaults of a subscription that does not say, and the most for one that
// does."
func TestDeliveryMaxima(t *testing.T) {
	t.Parallel()
	s := own(t, `[{name: "*", publish: {rate: 0}, connection: {rate: 0}, partitions: 1, delivery: {max_inflight: 3, `+
		`ack_timeout: 400ms, max_attempts: 2, backoff: {min: 1ms, max: 2ms}}}]`)
	for i, opts := range []string{`{"from":"earliest"}`, `{"from":"earliest","maxInflight":100,"ackTimeoutMs":3600000,"maxAttempts":50}`} {
		topic := fmt.Sprint("t", i)
		for j := range 4 { // first, so that no deadline passes in between
			s.put(t, topic, fmt.Sprint(j), "1")
		}
		k := s.dial(t)
		k.ok(`{"op":"SUBSCRIBE","topic":"%s.dlq"}`, topic)
		k.ok(`{"op":"SUBSCRIBE","topic":%q,"group":"g","opts":%s}`, topic, opts)
		for j := range 3 {
			if f := k.event(); f.Number(t, "ctx.ack_deadline_ms") > 400 || f.Text("event.id") != fmt.Sprint(j) {
				t.Errorf("%s: %v", opts, f)
			}
		}
		if g := s.group(t, topic, "g"); g.Number(t, "inflight") > 3 {
			t.Errorf("%s: %v", opts, g)
		}
		k.ok(`{"op":"UNSUBSCRIBE","topic":%q,"group":"g"}`, topic)
		k.ok(`{"op":"SUBSCRIBE","topic":%q,"group":"g","opts":%s}`, topic, opts)
		d := k.await("a dead letter", func(f object) bool { return isEvent(f) && f.Text("topic") == topic+".dlq" })
		if d.Text("event.headers.sluice-dlq-attempts") != "2" {
			t.Errorf("%s: %v", opts, d)
		}
	}
	k := s.dial(t)
	k.ok(`{"op":"SUBSCRIBE","topic":"less","group":"g","opts":{"maxInflight":1,"ackTimeoutMs":100}}`)
	s.put(t, "less", "a", "1")
	s.put(t, "less", "b", "1")
	if f := k.event(); f.Number(t, "ctx.ack_deadline_ms") > 100 || f.Text("event.id") != "a" {
		t.Errorf("less than the most: %v", f)
	}
}

// "A changed --policies file takes effect within 3 s", on live connections and subscriptions too;
// "An invalid policy is refused whole, and what was in force stays in force."
func TestReload(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := testkit.Write(t, dir+"/p.yaml", `[{name: "*", publish: {rate: 1000, burst: 11}, connection: {rate: 0}}, `+
		`{name: in, publish: {rate: 0}, delivery: {max_inflight: 1}}]`)
	s := own(t, "", "--policies", file)
	k := s.dial(t)
	k.ok(`{"op":"SUBSCRIBE","topic":"in","group":"g","opts":{"maxInflight":3}}`)
	for i := range 3 {
		s.put(t, "in", fmt.Sprint(i), "1")
	}
	k.event()
	k.silent("one is in flight")
	if got := k.burstOf("t"); got != "11" {
		t.Fatalf("burst %s", got)
	}
	effect := func(what string, change func(), holds func() bool) {
		t.Helper()
		change()
		began := time.Now()
		testkit.Eventually(t, what, holds)
		if took := time.Since(began); took > 3*time.Second+testkit.Slack {
			t.Errorf("%s: took %v", what, took)
		}
	}
	effect("a new burst", func() {
		testkit.Write(t, file, `[{name: "*", publish: {rate: 1000, burst: 12}, connection: {rate: 0}}, {name: in, publish: {rate: 0}, `+
			`delivery: {max_inflight: 2}}, {name: shut, paused: true}]`)
	}, func() bool { return k.burstOf("t") == "12" })
	k.event()
	k.silent("two are in flight")
	k.refused("topic_paused", `{"op":"PUBLISH","topic":"shut","payload":1}`)

	testkit.Write(t, file, `[{name: "*", publish: {rate: -1, burst: 13}, connection: {rate: 0}, colour: red}, `+
		`{name: in, delivery: {ack_timeout: soon}}, {name: open}]`)
	testkit.Eventually(t, "the log names every bad field", func() bool {
		log := s.Log()
		return strings.Contains(log, "rate") && strings.Contains(log, "ack_timeout") && strings.Contains(log, "colour")
	})
	if got := k.burstOf("t"); got != "12" {
		t.Errorf("burst %s after an invalid file", got)
	}
	k.refused("topic_paused", `{"op":"PUBLISH","topic":"shut","payload":1}`)
	testkit.Write(t, file, `[{name: "*", publish`)
	effect("a file that is moved into place", func() {
		next := testkit.Write(t, filepath.Join(dir, "next"), `[{name: "*", publish: {rate: 1000, burst: 14}, connection: {rate: 0}}]`)
		require.NoError(t, os.Rename(next, file))
	}, func() bool { return k.burstOf("t") == "14" })
	k.ok(`{"op":"PUBLISH","topic":"shut","payload":1}`)
	k.event() // max_inflight is what the subscription asked for again
}

// "groups: {NAME: {paused, rate, max_inflight}}": for that group alone, also while it has members.
func TestGroupPolicies(t *testing.T) {
	t.Parallel()
	const policies = `[{name: "*", publish: {rate: 0}, connection: {rate: 0}}, {name: in, groups: {held: {paused: %v}, ` +
		`few: {max_inflight: 2}, slow: {rate: 0.01}}}]`
	file := testkit.Write(t, t.TempDir()+"/p.yaml", fmt.Sprintf(policies, true))
	s := own(t, "", "--policies", file)
	k := s.dial(t)
	for _, group := range []string{"held", "few", "slow", "free"} {
		k.ok(`{"op":"SUBSCRIBE","topic":"in","group":%q,"opts":{"from":"earliest"}}`, group)
	}
	for i := range 5 {
		s.put(t, "in", fmt.Sprint(i), "1")
	}
	got := map[string]int{}
	await := func(group string, n int) {
		t.Helper()
		for got[group] < n {
			f := k.await("an event", isEvent)
			got[f.Text("group")]++
		}
	}
	await("free", 5)
	await("few", 2)
	await("slow", 1)
	k.silent("the others have to wait")
	for group, why := range map[string]string{"held": "paused", "few": "max_inflight", "slow": "rate", "free": "caught_up"} {
		info := testkit.Call(t, "GET", s.URL()+"/v1/topics/in/groups/"+group, "").JSON(t)
		if got := info.List("members")[0].Text("blocked_by"); got != why {
			t.Errorf("%s is blocked by %s, want %s", group, got, why)
		}
		if paused := info.Text("paused") == "true"; paused != (group == "held") {
			t.Errorf("%s: %v", group, info)
		}
	}
	if a := testkit.Call(t, "POST", s.URL()+"/v1/topics/in/groups/held/pull", `{"wait_ms":0}`); len(a.JSON(t).List("events")) != 0 {
		t.Errorf("pulled from a paused group: %s", a.Body)
	}
	testkit.Write(t, file, fmt.Sprintf(policies, `soon`))
	testkit.Eventually(t, "the log names the field", func() bool { return strings.Contains(s.Log(), "groups.held.paused") })
	k.silent("an invalid file changes nothing")
	testkit.Write(t, file, fmt.Sprintf(policies, false))
	await("held", 5)
}

// "delivery: {fairness: {by, weights}}": a tenant with few events does not wait until one with many
// is done, and each key keeps its order.
func TestFairness(t *testing.T) {
	t.Parallel()
	s := own(t, `[{name: "*", publish: {rate: 0}, connection: {rate: 0}}, {name: by.header, delivery: {fairness: {by: "header:tenant"}}},
		{name: by.key, delivery: {fairness: {by: key_prefix, weights: {small: 2}}}}]`)
	k := s.dial(t)
	for _, topic := range []string{"by.header", "by.key"} {
		event := func(tenant string, n int) string {
			return fmt.Sprintf(`{"payload":1,"opts":{"id":"%s%d","key":"%s/%d","headers":{"tenant":%q}}}`, tenant, n, tenant, n%20, tenant)
		}
		var flood []string
		for n := range 500 {
			flood = append(flood, event("large", n))
		}
		k.ok(`{"op":"PUBLISH","topic":%q,"events":[%s]}`, topic, strings.Join(flood, ","))
		k.ok(`{"op":"PUBLISH","topic":%q,"events":[%s]}`, topic, event("small", 1)+","+event("small", 21))
		k.ok(`{"op":"SUBSCRIBE","topic":%q,"group":"g","opts":{"from":"earliest","maxInflight":1}}`, topic)
		var small []int
		last := map[string]int{}
		for n := range 502 {
			f := k.event()
			id := f.Text("event.id")
			tenant, number := id[:5], 0
			if _, err := fmt.Sscan(id[5:], &number); err != nil {
				t.Fatal(err)
			}
			if tenant == "small" {
				small = append(small, n)
			}
			if before, seen := last[f.Text("event.key")]; seen && before > number {
				t.Errorf("%s: %d of key %s comes after %d", topic, number, f.Text("event.key"), before)
			}
			last[f.Text("event.key")] = number
			k.ack(topic, "g", id)
		}
		if len(small) != 2 || small[1] > 6 {
			t.Errorf("%s: the small tenant's events come as %v of 502", topic, small)
		}
	}
}

// A limited connection is not limited any more once its rate is lifted, and is limited again when
// the limit comes back.
func TestBucketsAreRetuned(t *testing.T) {
	t.Parallel()
	file := testkit.Write(t, t.TempDir()+"/p.yaml", `[{name: "*", connection: {rate: 0.01, burst: 2}}]`)
	s := own(t, "", "--policies", file)
	k := s.dial(t)
	k.ok(`{"op":"PUBLISH","topic":"t","events":%s}`, batch(2))
	k.limited("connection", `{"op":"PUBLISH","topic":"t","payload":1}`)
	testkit.Write(t, file, `[{name: "*", connection: {rate: 0}, publish: {rate: 0}}]`)
	testkit.Eventually(t, "the limit is lifted", func() bool { return k.ask(`{"op":"PUBLISH","topic":"t","payload":1}`)["op"] == "OK" })
	k.ok(`{"op":"PUBLISH","topic":"t","events":%s}`, batch(500))
	testkit.Write(t, file, `[{name: "*", connection: {rate: 0}, publish: {rate: 0.01, burst: 1}}]`)
	testkit.Eventually(t, "the topic is limited",
		func() bool { return k.ask(`{"op":"PUBLISH","topic":"t","payload":1}`)["code"] == "rate_limited" })
	k.limited("topic", `{"op":"PUBLISH","topic":"t","payload":1}`)
}

// "retention: {ttl}": removed events are a gap, not an error.
func TestRetention(t *testing.T) {
	t.Parallel()
	s := own(t, `[{name: "*", partitions: 1}, {name: gone, retention: {ttl: 300ms}}]`, "--retention-interval", "100ms")
	first := s.put(t, "gone", "x", "1")
	s.put(t, "kept", "x", "1")
	testkit.Eventually(t, "the event is removed", func() bool { return s.replay(t, "topic=gone").Number(t, "count") == 0 })
	again := s.post(t, "gone", "1", "Sluice-Id: x") // for dedupe.window after it was accepted
	if again.Status != 200 || again.JSON(t)["seq"] != first["seq"] {
		t.Errorf("%d %s", again.Status, again.Body)
	}
	if next := s.put(t, "gone", "y", "1"); next.Number(t, "seq") <= first.Number(t, "seq") {
		t.Errorf("seq %v after %v", next["seq"], first["seq"])
	}
	if s.replay(t, "topic=kept").Number(t, "count") != 1 {
		t.Error("ttl 0 means for ever")
	}
}

package contract

import (
	"bytes"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-bus/sluice/test/testkit"
)

// This file is about several sidecars on one store: "shared by all connections of the group on
// every sidecar of the same store".

// two starts two sidecars, a and b, on an empty shared store.
func two(t *testing.T, policies string, args ...string) (a, b *server) {
	t.Helper()
	store := newStore(t)
	for i, s := range []**server{&a, &b} {
		*s = home{t.TempDir(), store}.start(t, policies, append(args, "--node-id", string("ab"[i]))...)
	}
	return a, b
}

// owners are the nodes that have a group's partitions, by a sidecar's answer.
func (s *server) owners(t *testing.T, topic, group string) []string {
	t.Helper()
	var nodes []string
	for _, p := range s.group(t, topic, group).List("partitions") {
		nodes = append(nodes, p.Text("owner"))
	}
	slices.Sort(nodes)
	return nodes
}

// share waits until every partition of a group has an owner, and each of the nodes has one at
// least; both sidecars must agree.
func share(t *testing.T, a, b *server, topic, group string, nodes ...string) {
	t.Helper()
	testkit.Eventually(t, fmt.Sprintf("%s of %s is shared by %v", group, topic, nodes), func() bool {
		owners := a.owners(t, topic, group)
		return slices.Equal(slices.Compact(slices.Clone(owners)), nodes) && slices.Equal(owners, b.owners(t, topic, group))
	})
}

// "Unique per topic": also where the id comes through two sidecars.
func TestOneIDThroughTwoSidecars(t *testing.T) {
	t.Parallel()
	a, b := two(t, sharedPolicies)
	first := a.put(t, "t", "x", `{"n":1.0,"m":[]}`, "Sluice-Key: k")
	again := b.post(t, "t", `{"m":[],"n":1}`, "Sluice-Id: x", "Sluice-Key: k")
	if r := again.JSON(t); again.Status != 200 || r["duplicate"] != true || r["seq"] != first["seq"] || r["partition"] != first["partition"] ||
		r["ts"] != first["ts"] {
		t.Errorf("%d %s, first %v", again.Status, again.Body, first)
	}
	other := b.post(t, "t", `{"n":2}`, "Sluice-Id: x", "Sluice-Key: k")
	if other.Status != 409 || other.JSON(t)["code"] != "conflict" || !strings.Contains(string(other.Body), first.Text("seq")) {
		t.Errorf("%d %s", other.Status, other.Body)
	}

	const n = 30
	var replies [2][n]object
	var both sync.WaitGroup
	for side, s := range []*server{a, b} {
		k := s.dial(t)
		both.Go(func() {
			for i := range n {
				corr := k.send(`{"op":"PUBLISH","topic":"race","payload":1,"opts":{"id":"%d","key":"k"}}`, i)
				replies[side][i] = k.within(testkit.Patience, func(f object) bool { return f.Text("corr") == corr })
			}
		})
	}
	both.Wait()
	for i := range n {
		one, two := replies[0][i], replies[1][i]
		if one["op"] != "OK" || two["op"] != "OK" || one["seq"] != two["seq"] || (one["duplicate"] == true) == (two["duplicate"] == true) {
			t.Errorf("%d: %v and %v; want one event and one duplicate", i, one, two)
		}
	}
	if c := b.replay(t, "topic=race").Number(t, "count"); c != n {
		t.Errorf("%d events stored, want %d", c, n)
	}
}

// A group has members on both sidecars. Each event goes to one of them, once, whichever sidecar it
// came through. The events of a key come in order. Each sidecar has partitions of its own, by its
// answer and by its members.
func TestGroupOverTwoSidecars(t *testing.T) {
	t.Parallel()
	a, b := two(t, sharedPolicies)
	const subscribe = `{"op":"SUBSCRIBE","topic":"t","group":"g","opts":{"from":"earliest","rebalance":true}}`
	isAssigned := func(f object) bool { return f["op"] == "ASSIGNED" }
	a.put(t, "t", "warm", "1")
	k, l := a.dial(t), b.dial(t)
	k.ok(subscribe)
	if p, _ := k.await("ASSIGNED", isAssigned)["partitions"].([]any); len(p) != 4 {
		t.Errorf("alone it is assigned %v", p)
	}
	k.ack("t", "g", k.event().Text("event.id"))
	l.ok(subscribe)
	share(t, a, b, "t", "g", "a", "b")
	gained := l.await("ASSIGNED", func(f object) bool {
		p, _ := f["partitions"].([]any)
		return isAssigned(f) && len(p) > 0
	})
	lost := k.await("REVOKED", func(f object) bool { return f["op"] == "REVOKED" })
	if fmt.Sprint(gained["partitions"]) != fmt.Sprint(lost["partitions"]) || lost["topic"] != "t" || lost["group"] != "g" {
		t.Errorf("gained %v, lost %v", gained, lost)
	}

	const n, keys = 48, 8
	for i := range n {
		key := fmt.Sprint("k", i%keys)
		[]*server{a, b}[i/keys%2].put(t, "t", fmt.Sprint(key, ".", i/keys), "1", "Sluice-Key: "+key)
	}
	next := map[string]int{}
	got := map[*socket]int{}
	testkit.Eventually(t, "the group has every event", func() bool {
		for _, m := range []*socket{k, l} {
			f := m.within(instant/10, isEvent)
			if f == nil {
				continue
			}
			key := f.Text("event.key")
			if want := fmt.Sprint(key, ".", next[key]); f.Text("event.id") != want || f.Text("ctx.attempt") != "1" {
				t.Errorf("%s, attempt %s; want %s", f.Text("event.id"), f.Text("ctx.attempt"), want)
			}
			next[key]++
			got[m]++
			m.ack("t", "g", f.Text("event.id"))
		}
		return got[k]+got[l] >= n
	})
	if got[k] == 0 || got[l] == 0 {
		t.Errorf("the members got %d and %d", got[k], got[l])
	}
	for _, s := range []*server{a, b} {
		testkit.Eventually(t, "the lag is 0 through either", func() bool { return s.group(t, "t", "g").Text("lag") == "0" })
		if m := s.group(t, "t", "g").List("members"); len(m) != 2 {
			t.Errorf("the members of both sidecars: %v", m)
		}
	}
}

// "a killed sidecar: redelivery, with attempt one higher", at another sidecar too. An event that is
// acked there is acked for the first sidecar when it is back.
func TestTakeover(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	first := home{t.TempDir(), store}
	a := first.start(t, sharedPolicies, append(soon, "--node-id", "a")...)
	b := home{t.TempDir(), store}.start(t, sharedPolicies, append(soon, "--node-id", "b")...)
	const subscribe = `{"op":"SUBSCRIBE","topic":"one.t","group":"g","opts":{"from":"earliest"}}`
	k := a.dial(t)
	k.ok(subscribe)
	b.put(t, "one.t", "x", "1", "Sluice-Key: k")
	k.event()
	a.Kill()
	l := b.dial(t)
	l.ok(subscribe)
	if f := l.event(); f.Text("event.id") != "x" || f.Text("ctx.attempt") != "2" {
		t.Errorf("after the kill: %v", f)
	}
	l.ack("one.t", "g", "x")
	l.ok(`{"op":"UNSUBSCRIBE","topic":"one.t","group":"g"}`)
	a = first.start(t, sharedPolicies, append(soon, "--node-id", "a")...)
	k = a.dial(t)
	k.ok(subscribe)
	a.put(t, "one.t", "y", "1", "Sluice-Key: k")
	if f := k.event(); f.Text("event.id") != "y" || f.Text("ctx.attempt") != "1" {
		t.Errorf("x was acked at the other sidecar: %v", f)
	}
}

// "rebalancing and a graceful stop give events back without counting an attempt", and at once: long
// before a lease runs out.
func TestHandOver(t *testing.T) {
	t.Parallel()
	a, b := two(t, sharedPolicies, "--lease", "10m")
	const n = 16
	const subscribe = `{"op":"SUBSCRIBE","topic":"t","group":"g","opts":{"from":"earliest"}}`
	k, l := a.dial(t), b.dial(t)
	k.ok(subscribe)
	for i := range n {
		b.put(t, "t", fmt.Sprint(i), "1")
	}
	k.events(n)
	l.ok(subscribe)
	share(t, a, b, "t", "g", "a", "b")
	moved := l.event() // of a partition that b has now
	if moved.Text("ctx.attempt") != "1" {
		t.Errorf("after rebalancing: %v", moved)
	}
	// "An ack that arrives after its event was redelivered elsewhere settles nothing there."
	k.ack("t", "g", moved.Text("event.id"))
	l.ok(`{"op":"MODACK","topic":"t","group":"g","id":%q,"extend_ms":60000}`, moved.Text("event.id"))

	if err := a.Stop(t.Context()); err != nil {
		t.Errorf("stop: %v\n%s", err, a.Log())
	}
	got := []string{moved.Text("event.id")}
	for range n - 1 {
		f := l.event()
		if f.Text("ctx.attempt") != "1" {
			t.Errorf("after the stop: %v", f)
		}
		got = append(got, f.Text("event.id"))
	}
	slices.Sort(got)
	if len(slices.Compact(got)) != n {
		t.Errorf("%v", got)
	}
	for _, id := range got {
		l.ack("t", "g", id)
	}
	testkit.Eventually(t, "the lag is 0", func() bool { return b.group(t, "t", "g").Text("lag") == "0" })
}

// "the sidecar keeps marks of acked ids for (topic, group)": in the store, so that every sidecar
// sees them.
func TestExactlyOnceOnTheOther(t *testing.T) {
	t.Parallel()
	a, b := two(t, sharedPolicies)
	const subscribe = `{"op":"SUBSCRIBE","topic":"one.t","group":"g","opts":{"from":"earliest","exactlyOnce":true}}`
	for _, id := range []string{"x", "y"} {
		a.put(t, "one.t", id, "1")
	}
	k := a.dial(t)
	k.ok(subscribe)
	k.events(2)
	k.ack("one.t", "g", "x")
	if err := a.Stop(t.Context()); err != nil {
		t.Errorf("stop: %v\n%s", err, a.Log())
	}
	if c := testkit.Call(t, "PUT", b.URL()+"/v1/topics/one.t/groups/g/cursor", `{"from":"earliest"}`); c.Status != 204 {
		t.Fatalf("%d %s", c.Status, c.Body)
	}
	l := b.dial(t)
	l.ok(subscribe)
	b.put(t, "one.t", "z", "1")
	if got := ids(l.events(2)); fmt.Sprint(got) != "[y z]" {
		t.Errorf("%v", got)
	}
}

// Two sidecars with the same name still share a group.
func TestTwoSidecarsOfOneName(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	const n = 24
	seen := map[string]bool{}
	var sides []*server
	var members []*socket
	for range 2 {
		s := home{t.TempDir(), store}.start(t, sharedPolicies, "--node-id", "same")
		k := s.dial(t)
		k.ok(`{"op":"SUBSCRIBE","topic":"t","group":"g","opts":{"from":"earliest"}}`)
		sides, members = append(sides, s), append(members, k)
	}
	for i := range n {
		sides[i%2].put(t, "t", fmt.Sprint(i), "1")
	}
	testkit.Eventually(t, "the group has every event", func() bool {
		for _, k := range members {
			if f := k.within(instant/10, isEvent); f != nil {
				if f.Text("ctx.attempt") != "1" {
					t.Errorf("%v", f)
				}
				seen[f.Text("event.id")] = true
				k.ack("t", "g", f.Text("event.id"))
			}
		}
		return len(seen) == n
	})
}

// Pulls at two sidecars share a group. The sidecar that gave a lease settles it, and the other
// sidecar names that one. The events of a killed sidecar come from the other.
func TestPullOverTwoSidecars(t *testing.T) {
	t.Parallel()
	a, b := two(t, sharedPolicies, soon...)
	const n = 16
	for i := range n {
		a.put(t, "t", fmt.Sprint(i), "1")
	}
	seen := map[string]bool{}
	drain := func(s *server, most int) { // pulls, and acks
		got := s.pull(t, "t", "g", fmt.Sprintf(`{"wait_ms":0,"max":%d,"opts":{"from":"earliest"}}`, most))
		for _, id := range ids(got) {
			if seen[id] {
				t.Errorf("%s came again", id)
			}
			seen[id] = true
		}
		if len(got) > 0 {
			s.settle(t, "t", "g", "ack", got, "")
		}
	}
	drain(a, 1)
	drain(b, 1)
	share(t, a, b, "t", "g", "a", "b")
	atA, atB := a.pulled(t, "t", "g", `{"wait_ms":100,"max":1}`, 1), b.pulled(t, "t", "g", `{"wait_ms":100,"max":1}`, 1)
	if got := fmt.Sprint(a.settle(t, "t", "g", "ack", atA, ""), a.settle(t, "t", "g", "ack", atB, "")); got != "[ok] [stale_lease]" {
		t.Errorf("acks at a: %s", got)
	}
	lease := testkit.Call(t, "POST", a.URL()+"/v1/topics/t/groups/g/ack", fmt.Sprintf(`{"leases":[%q]}`, atB[0].Text("ctx.lease")))
	if !strings.Contains(string(lease.Body), `\"b\"`) {
		t.Errorf("it does not name the other sidecar: %s", lease.Body)
	}
	if got := fmt.Sprint(b.settle(t, "t", "g", "ack", atB, "")); got != "[ok]" {
		t.Errorf("ack at b: %s", got)
	}
	seen[atA[0].Text("event.id")], seen[atB[0].Text("event.id")] = true, true
	a.Kill()
	testkit.Eventually(t, "b has given out the rest", func() bool {
		drain(b, 100)
		return len(seen) == n
	})
}

// "no_partition": the other sidecar has the only one. "Members of all sidecars of the store, each
// with node_id, address (the client's), since, inflight, oldest_unacked_ms, at most 10 s old"; in_use
// "says who, and at which sidecar".
func TestNoPartition(t *testing.T) {
	t.Parallel()
	a, b := two(t, sharedPolicies)
	clients := map[string]*socket{}
	for node, s := range map[string]*server{"a": a, "b": b} {
		clients[node] = s.dial(t)
		clients[node].ok(`{"op":"SUBSCRIBE","topic":"one.t","group":"g"}`)
	}
	members := func(s *server) map[string]object {
		at := map[string]object{}
		for _, m := range s.group(t, "one.t", "g").List("members") {
			at[m.Text("node_id")] = m
		}
		return at
	}
	// The partition has one owner once both have joined.
	testkit.Eventually(t, "the owner's member is caught up, and the other's has no partition", func() bool {
		owner := strings.Join(a.owners(t, "one.t", "g"), "")
		if owner != strings.Join(b.owners(t, "one.t", "g"), "") {
			return false
		}
		for _, s := range []*server{a, b} {
			at := members(s)
			for node, m := range at {
				want := map[bool]string{true: "caught_up", false: "no_partition"}[node == owner]
				if len(at) != 2 || m.Text("blocked_by") != want || m.Text("since") == "" || !strings.HasPrefix(m.Text("address"), "127.0.0.1:") {
					return false
				}
			}
		}
		return true
	})
	owner := strings.Join(a.owners(t, "one.t", "g"), "")
	other := map[string]*server{"a": b, "b": a}[owner]
	a.put(t, "one.t", "e", "1")
	clients[owner].event()
	testkit.Eventually(t, "the other sidecar shows what the owner's member has in flight", func() bool {
		m := members(other)[owner]
		return m.Text("inflight") == "1" && m.Text("oldest_unacked_ms") != "0"
	})
	for _, path := range []string{"", "/groups/g"} {
		refused := testkit.Call(t, "DELETE", other.URL()+"/v1/topics/one.t"+path, "")
		if refused.Status != 409 || !strings.Contains(string(refused.Body), members(other)[owner].Text("address")) ||
			!strings.Contains(string(refused.Body), fmt.Sprintf(`at sidecar \"%s\"`, owner)) {
			t.Errorf("DELETE %q of what is in use elsewhere: %d %s", path, refused.Status, refused.Body)
		}
	}
}

// "PUT …/cursor: move a group (seek), 204, at once also while members are connected (their
// in-flight leases become stale)", through whichever sidecar.
func TestSeekThroughTheOther(t *testing.T) {
	t.Parallel()
	a, b := two(t, sharedPolicies)
	const topic = "one.t"
	for i := range 3 {
		a.put(t, topic, fmt.Sprint(i), "1", fmt.Sprint("Sluice-Ts: ", 100+i))
	}
	k := a.dial(t)
	k.ok(`{"op":"SUBSCRIBE","topic":%q,"group":"g","opts":{"from":"earliest"}}`, topic)
	k.events(3)
	k.ok(`{"op":"ACK","topic":%q,"group":"g","ids":["0","1"]}`, topic)
	cursor := b.URL() + "/v1/topics/" + topic + "/groups/g/cursor"
	for _, c := range []struct {
		body  string
		first int
	}{{`{"from":"earliest"}`, 0}, {`{"from":"ts","ts":102}`, 2}, {`{"from":"afterId","afterId":"0"}`, 1}} {
		if a := testkit.Call(t, "PUT", cursor, c.body); a.Status != 204 {
			t.Fatalf("%s: %d %s", c.body, a.Status, a.Body)
		}
		for i := c.first; i < 3; i++ {
			if f := k.event(); f.Text("event.id") != fmt.Sprint(i) || f.Text("ctx.attempt") != "1" {
				t.Fatalf("%s: %v, want %d", c.body, f, i)
			}
		}
	}
	if a := testkit.Call(t, "PUT", cursor, `{"from":"latest"}`); a.Status != 204 {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	testkit.Eventually(t, "the leases are stale", func() bool {
		return k.ask(`{"op":"MODACK","topic":%q,"group":"g","id":"2","extend_ms":60000}`, topic)["code"] == "unknown_id"
	})
	b.put(t, topic, "new", "1")
	if f := k.event(); f.Text("event.id") != "new" {
		t.Errorf("%v", f)
	}
}

// Each sidecar serves the events that the other accepted: in replays, exports, the page after the
// other's, and subscriptions.
func TestReadingThroughEither(t *testing.T) {
	t.Parallel()
	a, b := two(t, sharedPolicies)
	want := fill(t, a, "t", 30)
	b.put(t, "t", "last", `{"n":12345678901234567890.5,"$a.b":[1e400]}`, "Sluice-Ts: 5000")
	want = append(want, "last")
	for _, path := range []string{"/replay?topic=t", "/replay?topic=t&order=desc&key=k1", "/export?topic=t",
		"/export?topic=t&ndjson=0&fromTs=1002"} {
		one, other := testkit.Call(t, "GET", a.ReplayURL()+path, ""), testkit.Call(t, "GET", b.ReplayURL()+path, "")
		if one.Status != 200 || other.Status != 200 || !bytes.Equal(one.Body, other.Body) {
			t.Errorf("%s: %d %s\nand %d %s", path, one.Status, one.Body, other.Status, other.Body)
		}
	}
	var got []string
	page := a.replay(t, "topic=t&limit=7")
	for s := b; ; s = map[*server]*server{a: b, b: a}[s] {
		got = append(got, ids(page.List("events"))...)
		if page["next"] == nil {
			break
		}
		page = s.replay(t, "limit=7&cursor="+url.QueryEscape(page.Text("next")))
	}
	if !slices.Equal(got, want) {
		t.Errorf("pages from either in turn: %v", got)
	}
	if p := a.replay(t, "topic=t&from=afterId&afterId=last"); p.Number(t, "count") != 0 {
		t.Errorf("after the last: %v", p)
	}
	var streams [2][]string
	for i, s := range []*server{a, b} {
		k := s.dial(t)
		k.ok(`{"op":"SUBSCRIBE","topic":"t","opts":{"from":"earliest"}}`)
		for _, f := range k.events(len(want)) {
			streams[i] = append(streams[i], f.Text("event.partition")+" "+f.Text("event.seq"))
		}
		slices.Sort(streams[i])
	}
	if !slices.Equal(streams[0], streams[1]) {
		t.Errorf("subscribed to at either: %v\nand %v", streams[0], streams[1])
	}
}

// "store: {url without secrets}": neither status nor log has the URL's user, password or options.
func TestStoreURLWithoutSecrets(t *testing.T) {
	t.Parallel()
	h := home{t.TempDir(), "mongodb://somebody:s3cret%40@127.0.0.1:1/events?authSource=vault&appName=t0ken"}
	s := h.start(t, "", "--log-level", "debug", "--store-timeout", "1s")
	a := s.post(t, "t", "1")
	status := testkit.Call(t, "GET", s.OpsURL()+"/v1/status", "")
	if u := status.JSON(t).Text("store.url"); u != "mongodb://127.0.0.1:1/events" {
		t.Errorf("store.url %q", u)
	}
	ready := testkit.Call(t, "GET", s.OpsURL()+"/readyz", "")
	refused := testkit.Call(t, "GET", s.ReplayURL()+"/replay?topic=t", "")
	said := fmt.Sprint(string(a.Body), string(status.Body), string(ready.Body), string(refused.Body), s.Log())
	for _, secret := range []string{"somebody", "s3cret", "vault", "t0ken"} {
		if strings.Contains(said, secret) {
			t.Errorf("%s in %s", secret, said)
		}
	}
}

package controlplane

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/test/faultproxy"
	"github.com/sluice-bus/sluice/test/mongotest"
	"github.com/sluice-bus/sluice/test/testkit"
)

// enforcedWithin is the contract's "enforced by every connected sidecar within 2 s".
const enforcedWithin, slack = 2 * time.Second, testkit.Slack

// enforced waits until a change made just now acts.
func enforced(t testing.TB, what string, acts func() bool) {
	t.Helper()
	began := time.Now()
	testkit.Eventually(t, what, acts)
	took := time.Since(began)
	if took > enforcedWithin+slack {
		t.Errorf("%s: enforced after %v", what, took)
	}
	t.Logf("%s: enforced after %v", what, took)
}

// "for a topic, exact beats longer literal prefix beats *, and unset fields fall through to the
// next match, then to the defaults"; "connection is read from the policy * alone". The first
// publish to a topic is under its policy already.
func TestResolution(t *testing.T) {
	t.Parallel()
	p := start(t)
	for name, document := range map[string]string{
		"a.b.c": `{"partitions":2}`,
		"a.*":   `{"publish":{"burst":12},"partitions":3,"connection":{"rate":0.01,"burst":1}}`,
		"*":     `{"publish":{"rate":1000,"burst":11},"connection":{"rate":0},"partitions":5}`,
		"a.b.*": `{"publish":{"burst":13}}`,
		"a.b":   `{"publish":{"burst":14}}`,
		"free":  `{"publish":{"rate":0}}`,
	} {
		p.put(t, name, document)
	}
	s := p.sidecar(t, "s")
	for topic, want := range map[string]string{
		"x": "11", "a": "11", "ab": "11", "a.x": "12", "a.b": "14", "a.b.x": "13", "a.b.c": "13", "a.b.c.d": "13", "free": "none",
	} {
		if got := s.burst(t, topic); got != want {
			t.Errorf("burst of %s: %s, want %s", topic, got, want)
		}
	}
	k := s.dial(t)
	for topic, want := range map[string]int{"a.b.c": 2, "a.b.x": 3, "y": 5} {
		k.ask(`{"op":"SUBSCRIBE","topic":"` + topic + `","group":"g"}`)
		link := s.URL() + "/v1/topics/" + topic + "/groups/g"
		if got := len(testkit.Call(t, "GET", link, "").JSON(t).List("partitions")); got != want {
			t.Errorf("%s has %d partitions, want %d", topic, got, want)
		}
	}
	// Unset fields have their defaults.
	p.put(t, "*", `{"publish":{"burst":15}}`)
	enforced(t, "a connection's default burst", func() bool {
		refusal := s.batch(t, "free", 201)
		return refusal.Status == 400 && strings.Contains(string(refusal.Body), "200")
	})

	inForce := map[string]string{}
	for _, v := range s.status(t).List("policies") {
		inForce[v.Text("name")] = v.Text("version")
		if v.Text("source") == "" {
			t.Errorf("%v", v)
		}
	}
	for name, version := range map[string]string{"*": "2", "a.*": "1", "a.b.*": "1", "a.b": "1", "a.b.c": "1", "free": "1"} {
		if inForce[name] != version {
			t.Errorf("%s is in force in version %q, want %s", name, inForce[name], version)
		}
	}
	metrics := string(testkit.Call(t, "GET", s.OpsURL()+"/metrics", "").Body)
	for _, labels := range []string{`policy="*"`, `policy="a.b"`} {
		if !strings.Contains(metrics, "sluice_policy_version_info{"+labels) {
			t.Errorf("no sluice_policy_version_info{%s}", labels)
		}
	}
	if !strings.Contains(metrics, `policy="*",source="control-plane",version="2"} 1`) {
		t.Error("sluice_policy_version_info does not tell the version of *")
	}
	if strings.Contains(metrics, `policy="*",source="control-plane",version="1"}`) {
		t.Error("sluice_policy_version_info tells of a version that is no longer in force")
	}
}

// connection, of * alone: the bucket of one TCP connection.
func TestConnectionRate(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.put(t, "*", `{"connection":{"rate":0.01,"burst":3}}`)
	s := p.sidecar(t, "s")
	transport := &http.Transport{MaxConnsPerHost: 1}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	for i := range 4 {
		a := testkit.CallWith(t, client, "POST", s.URL()+"/v1/topics/t/events", "1")
		if i < 3 && a.Status != 201 {
			t.Errorf("%d of 3: %d %s", i+1, a.Status, a.Body)
		}
		if i == 3 {
			o := refused(t, "the fourth", a, 429, "rate_limited")
			if o["scope"] != "connection" {
				t.Errorf("%v", o)
			}
		}
	}
}

// "A change made at the control plane is enforced by every connected sidecar within 2 s": a policy
// that is new, changed, paused, rolled back or deleted, for a topic or a glob. A refused policy
// changes nothing.
func TestEnforcement(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.put(t, "*", `{"connection":{"rate":0}}`)
	sidecars := []app{p.sidecar(t, "s0"), p.sidecar(t, "s1")}
	bursts := func(topic, want string) func() bool {
		return func() bool {
			for _, s := range sidecars {
				if s.burst(t, topic) != want {
					return false
				}
			}
			return true
		}
	}
	p.put(t, "t.*", `{"publish":{"rate":1000,"burst":11}}`)
	enforced(t, "a new glob", bursts("t.a", "11"))
	p.put(t, "t.a", `{"publish":{"burst":12}}`)
	enforced(t, "a new exact policy of a topic in use", bursts("t.a", "12"))
	p.put(t, "t.a", `{"publish":{"burst":13}}`)
	enforced(t, "a change", bursts("t.a", "13"))

	hasField(t, "a bad one", p.call(t, "PUT", "/v1/policies/t.a", `{"publish":{"burst":14,"rate":-1}}`), "publish.rate")
	refused(t, "a stale one", p.call(t, "PUT", "/v1/policies/t.a", `{"publish":{"burst":14}}`, `If-Match: "1"`), 412, "precondition_failed")
	p.put(t, "t.b", `{"publish":{"burst":15}}`) // once this acts, the refused ones would have, too
	enforced(t, "a change after two that were refused", bursts("t.b", "15"))
	if !bursts("t.a", "13")() {
		t.Error("what was refused has changed something")
	}

	p.put(t, "t.a", `{"paused":true}`)
	enforced(t, "a pause", func() bool {
		for _, s := range sidecars {
			a := s.publish(t, "t.a")
			if a.Status == 201 {
				return false
			}
			refused(t, "paused", a, 503, "topic_paused")
		}
		return true
	})
	if a := p.call(t, "POST", "/v1/policies/t.a/rollback", `{"version":1}`); a.Status != 200 {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	enforced(t, "a rollback", bursts("t.a", "12"))
	if a := p.call(t, "DELETE", "/v1/policies/t.a", ""); a.Status != 204 {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	enforced(t, "a deletion", bursts("t.a", "11"))
	if a := p.call(t, "DELETE", "/v1/policies/t.*", ""); a.Status != 204 {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	enforced(t, "a deletion of a glob", bursts("t.a", "none"))
}

// "--policies FILE.yaml (seed policies on first start)".
func TestSeed(t *testing.T) {
	t.Parallel()
	kept := store(t)
	life := func(policies string) plane {
		return plane{testkit.StartControlPlane(t, append(kept, "--policies", file(t, policies))...)}
	}
	p := life(section7YAML + "- {name: x, paused: true}\n")
	list := p.get(t, "/v1/policies").List("policies")
	if len(list) != 2 || list[0]["name"] != "orders.*" || list[1]["name"] != "x" || list[0].Text("version") != "1" {
		t.Fatalf("%v", list)
	}
	got, want := content(t, p.call(t, "GET", "/v1/policies/orders.*", "").Body), content(t, []byte(section7(false)))
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("seeded %v\nwant   %v", got, want)
	}
	p.put(t, "x", `{"paused":false}`)
	if a := p.call(t, "DELETE", "/v1/policies/orders.*", ""); a.Status != 204 {
		t.Error(a.Status)
	}
	before := string(p.call(t, "GET", "/v1/policies", "").Body)
	if err := p.Stop(t.Context()); err != nil {
		t.Errorf("stop: %v", err)
	}
	p = life(`[{name: y}, {name: x, partitions: 3}]`)
	if after := string(p.call(t, "GET", "/v1/policies", "").Body); after != before {
		t.Errorf("a second start changed %s\nto %s", before, after)
	}
	if h := p.get(t, "/v1/policies/x/history").List("versions"); len(h) != 2 {
		t.Errorf("history after a restart: %v", h)
	}
}

// "--store URL (same forms)": control planes on one database have the same policies, and sidecars
// of either are told.
func TestOnMongoDBTwoControlPlanes(t *testing.T) {
	t.Parallel()
	kept := []string{"--store", mongoStore(t)}
	p, q := plane{testkit.StartControlPlane(t, kept...)}, plane{testkit.StartControlPlane(t, kept...)}
	s := q.sidecar(t, "s")
	p.put(t, "*", `{"connection":{"rate":0},"publish":{"burst":11}}`)
	enforced(t, "a change at the other control plane", func() bool { return s.burst(t, "t") == "11" })
	if o := q.get(t, "/v1/policies/*"); o.Text("version") != "1" {
		t.Errorf("%v", o)
	}
	q.put(t, "*", `{"connection":{"rate":0},"publish":{"burst":12}}`)
	refused(t, "stale at the other", p.call(t, "PUT", "/v1/policies/*", `{}`, `If-Match: "1"`), 412, "precondition_failed")
	testkit.Eventually(t, "both show the sidecar", func() bool {
		for _, cp := range []plane{p, q} {
			list := cp.get(t, "/v1/sidecars").List("sidecars")
			if len(list) != 1 || list[0]["node_id"] != "s" || fmt.Sprint(list[0]["versions"]) != "map[*:2]" {
				return false
			}
		}
		return true
	})
}

// "store_unavailable (+ retry_after_ms) | 503": while the store is away, policies are read and
// enforced, and not changed; "GET /readyz (200 only when …)".
func TestOnMongoDBStoreAway(t *testing.T) {
	t.Parallel()
	db := mongotest.Shared(t)
	proxy := faultproxy.New(t, db.Addr())
	p := plane{testkit.StartControlPlane(t, "--store", db.URIVia(proxy.Addr(), db.NewDatabase(t)), "--store-timeout", "1s")}
	p.put(t, "*", `{"connection":{"rate":0},"publish":{"burst":11}}`)
	s := p.sidecar(t, "s")
	proxy.Down()
	a := p.call(t, "PUT", "/v1/policies/*", `{"connection":{"rate":0},"publish":{"burst":12}}`)
	o := refused(t, "PUT", a, 503, "store_unavailable")
	if ms := o.Number(t, "retry_after_ms"); ms < 1 || a.Header.Get("Retry-After") != fmt.Sprint((ms+999)/1000) {
		t.Errorf("%s, Retry-After %q", a.Body, a.Header.Get("Retry-After"))
	}
	testkit.Eventually(t, "the control plane says that it is not ready", func() bool {
		return p.call(t, "GET", "/readyz", "").Status == 503 && p.get(t, "/v1/status").Text("store.state") != "ok"
	})
	if a := p.call(t, "GET", "/healthz", ""); a.Status != 200 {
		t.Errorf("healthz: %d", a.Status)
	}
	if o := p.get(t, "/v1/policies/*"); o.Text("publish.burst") != "11" {
		t.Errorf("%v", o)
	}
	if got := s.burst(t, "t"); got != "11" {
		t.Errorf("enforced: %s", got)
	}
	proxy.Up()
	testkit.Eventually(t, "policies can be changed again", func() bool {
		return p.call(t, "PUT", "/v1/policies/*", `{"connection":{"rate":0},"publish":{"burst":13}}`).Status == 200
	})
	enforced(t, "the change after the outage", func() bool { return s.burst(t, "t") == "13" })
	if a := p.call(t, "GET", "/readyz", ""); a.Status != 200 {
		t.Errorf("readyz: %d %s", a.Status, a.Body)
	}
}

// "GET /v1/sidecars → {"sidecars":[{"node_id","address","last_seen","versions": {policy: acked
// version},"rejected":{…} or null}…]}; GET /v1/topics →
// {"topics":[{"topic","allowed_per_second","denied_per_second","sidecars":[…]}…]}".
func TestFleetPages(t *testing.T) {
	t.Parallel()
	p := start(t)
	for _, page := range []string{"sidecars", "topics"} {
		if o := p.get(t, "/v1/"+page); fmt.Sprint(o[page]) != "[]" {
			t.Errorf("of nothing: %v", o)
		}
	}
	p.put(t, "*", `{"connection":{"rate":0}}`)
	p.put(t, "limited", `{"publish":{"rate":5,"burst":5}}`)
	p.put(t, "limited", `{"publish":{"rate":2,"burst":2}}`)
	p.put(t, "unused", `{"paused":true}`)
	s := p.sidecar(t, "node-1")
	p.sidecar(t, "node-2")
	var topic object
	testkit.Eventually(t, "what is allowed and refused shows", func() bool {
		for range 3 {
			s.publish(t, "limited")
		}
		for _, o := range p.get(t, "/v1/topics").List("topics") {
			if o["topic"] == "limited" {
				topic = o
			}
		}
		return above0(topic, "allowed_per_second") && above0(topic, "denied_per_second")
	})
	if fmt.Sprint(topic["sidecars"]) != "[node-1]" {
		t.Errorf("%v", topic)
	}
	list := p.get(t, "/v1/sidecars").List("sidecars")
	if len(list) != 2 || list[0]["node_id"] != "node-1" || list[1]["node_id"] != "node-2" {
		t.Fatalf("%v", list)
	}
	if list[0]["address"] != s.Replay || list[0].Text("versions.limited") != "2" || list[0].Text("versions.*") != "1" {
		t.Errorf("%v", list[0])
	}
	for _, o := range list {
		instant(t, o.Text("last_seen"))
		if rejected, there := o["rejected"]; rejected != nil || !there {
			t.Errorf("rejected: %v", o)
		}
		if o.Text("versions.unused") != "1" {
			t.Errorf("without the policy of a topic that is not used: %v", o)
		}
	}
	if o := p.get(t, "/v1/status"); o.Text("connections") != "2" || len(o.List("peers")) != 2 {
		t.Errorf("%v", o)
	}
	testkit.Eventually(t, "node-1 knows its peer", func() bool {
		peers := s.status(t).List("peers")
		return len(peers) == 1 && peers[0]["node_id"] == "node-2"
	})
}

func above0(o object, member string) bool {
	return o != nil && o.Text(member) != "" && o.Text(member) != "0"
}

package contract

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/test/mongotest"
	"github.com/sluice-bus/sluice/test/testkit"
)

// This file is about a store that is away: durability.on_store_unavailable.

const awayPolicies = `
- name: "*"
  publish: {rate: 0}
  connection: {rate: 0}
  partitions: 2
- name: refuse.*
  durability: {on_store_unavailable: reject}
- name: small.*
  durability: {spool_max_bytes: 20000}
`

// quick makes a sidecar notice soon that its store is away, and leaves a loaded machine's store
// enough time to answer.
var quick = []string{"--store-timeout", "2s", "--lease", "3s"}

// outage is a store that the test may stop, and the home of a sidecar on it.
type outage struct {
	*mongotest.Server
	home
}

func newOutage(t *testing.T) outage {
	t.Helper()
	db := mongotest.Start(t)
	db.Needs(t, mongotest.Restarts)
	return outage{db, home{t.TempDir(), db.URI(db.NewDatabase(t))}}
}

// spool publishes an event that must be spooled.
func (s *server) spool(t *testing.T, topic, id, payload string, headers ...string) object {
	t.Helper()
	a := s.post(t, topic, payload, append([]string{"Sluice-Id: " + id}, headers...)...)
	r := a.JSON(t)
	_, partition := r["partition"]
	_, seq := r["seq"]
	whole := r["id"] == id && r["durability"] == "spool" && r.Text("ts") != ""
	if a.Status != 202 || !whole || partition || seq || r["duplicate"] != nil {
		t.Fatalf("spooling %s in %s: %d %s", id, topic, a.Status, a.Body)
	}
	return r
}

// spooled waits until this many events wait for the store, by status and by metrics.
func (s *server) spooled(t *testing.T, want int) {
	t.Helper()
	var o object
	testkit.Eventually(t, fmt.Sprintf("%d events are in the spool", want), func() bool {
		o = testkit.ParseObject(t, testkit.Call(t, "GET", s.OpsURL()+"/v1/status", "").Body)
		return o.Text("spool.events") == fmt.Sprint(want) && s.metric(t, "sluice_spool_events") == float64(want)
	})
	if bytes := o.Number(t, "spool.bytes"); (bytes > 0) != (want > 0) || (s.metric(t, "sluice_spool_bytes") > 0) != (want > 0) {
		t.Errorf("%d events of %d bytes in the spool", want, bytes)
	}
}

// fillSpool publishes to small.t until its part of the spool is full, and returns how many events
// the spool has taken.
func (s *server) fillSpool(t *testing.T) int {
	t.Helper()
	kept := 0
	var full testkit.Answer
	testkit.Eventually(t, "the spool of small.t is full", func() bool {
		full = s.post(t, "small.t", text(4000), fmt.Sprint("Sluice-Id: ", kept))
		if full.Status == 202 {
			kept++
		}
		return full.Status != 202
	})
	retryLater(t, full, "overloaded")
	return kept
}

// readyToSpool waits until a sidecar has noticed that its store is away. It is ready all the time,
// and then says that it spools.
func (s *server) readyToSpool(t *testing.T) {
	t.Helper()
	testkit.Eventually(t, "readyz says that events are spooled, and status that the store is away", func() bool {
		a := testkit.Call(t, "GET", s.OpsURL()+"/readyz", "")
		if a.Status != 200 {
			t.Fatalf("readyz: %d %s", a.Status, a.Body)
		}
		status := testkit.ParseObject(t, testkit.Call(t, "GET", s.OpsURL()+"/v1/status", "").Body)
		away := status.Text("store.state") == "away"
		if away && (status.Number(t, "store.since") < time.Now().Add(-testkit.Patience).UnixMilli() || status.Text("store.error") == "") {
			t.Errorf("it does not say since when and why the store is away: %v", status.At("store"))
		}
		return away && strings.Contains(string(a.Body), "spool") && strings.Contains(string(a.Body), "the last error: ") &&
			s.metric(t, "sluice_store_up") == 0
	})
}

// retryLater checks that a refusal is "store_unavailable" or "overloaded": 503 with retry_after_ms,
// and Retry-After in whole seconds, rounded up.
func retryLater(t *testing.T, a testkit.Answer, code string) {
	t.Helper()
	if a.Status != 503 || a.JSON(t)["code"] != code || a.JSON(t).Text("error") == "" {
		t.Errorf("want 503 %s, got %d %.300s", code, a.Status, a.Body)
		return
	}
	if ms := a.JSON(t).Number(t, "retry_after_ms"); ms < 1 || a.Header.Get("Retry-After") != fmt.Sprint((ms+999)/1000) {
		t.Errorf("retry_after_ms %d, Retry-After %q", ms, a.Header.Get("Retry-After"))
	}
}

// "202 when spooled"; "durability: store|spool (a spooled event has no partition/ seq yet)".
// Spooled events are in the log once when the store is back, in the order of their keys, with the
// earlier and later ones.
func TestPublishingWhileTheStoreIsAway(t *testing.T) {
	t.Parallel()
	db := newOutage(t)
	s := db.start(t, awayPolicies, quick...)
	k := s.dial(t)
	k.ok(`{"op":"SUBSCRIBE","topic":"t","group":"g"}`)
	s.put(t, "t", "before", `{"n":1}`, "Sluice-Key: k")
	k.ack("t", "g", k.event().Text("event.id"))

	db.Stop()
	first := s.spool(t, "t", "a", `{"n":1e400}`, "Sluice-Key: k")
	r := k.ok(`{"op":"PUBLISH","topic":"t","payload":[],"opts":{"id":"b","key":"k"}}`)
	if _, seq := r["seq"]; r["durability"] != "spool" || seq || r["id"] != "b" {
		t.Errorf("%v", r)
	}
	const batch = `{"op":"PUBLISH","topic":"t","events":[{"payload":1,"opts":{"id":"c","key":"k"}},{"payload":1,"opts":{"id":""}}]}`
	results := k.ok(batch).List("results")
	if results[0]["durability"] != "spool" || results[0]["seq"] != nil || results[1]["code"] != "bad_request" {
		t.Errorf("%v", results)
	}
	if r := s.post(t, "t", `{"payload_base64":"/wA=","opts":{"id":"d","key":"k"}}`,
		"Content-Type: application/x-ndjson").JSON(t).List("results"); r[0]["durability"] != "spool" {
		t.Errorf("%v", r)
	}
	again := s.post(t, "t", `{"n":10e399}`, "Sluice-Id: a", "Sluice-Key: k")
	accepted := again.Status == 200 || again.Status == 202
	want := testkit.Members{"duplicate": "true", "durability": "spool", "ts": first.Text("ts"), "seq": ""}
	if !accepted || !again.JSON(t).Has(want) {
		t.Errorf("a duplicate of a spooled event: %d %s", again.Status, again.Body)
	}
	if other := s.post(t, "t", `{"n":2}`, "Sluice-Id: a", "Sluice-Key: k"); other.Status != 409 || other.JSON(t)["code"] != "conflict" {
		t.Errorf("a conflict with a spooled event: %d %s", other.Status, other.Body)
	}
	s.spooled(t, 4)
	s.readyToSpool(t)

	db.Restart()
	for _, id := range []string{"a", "b", "c", "d"} {
		f := k.event()
		if f.Text("event.id") != id || f.Text("ctx.attempt") != "1" {
			t.Errorf("want %s, got %v", id, f)
		}
		if id == "a" {
			wantSame(t, "a spooled payload", `{"n":1e400}`, payloadOf(t, f))
			if f.Text("event.ts") != first.Text("ts") {
				t.Errorf("ts %s, answered %v", f.Text("event.ts"), first["ts"])
			}
		}
		k.ack("t", "g", f.Text("event.id"))
	}
	s.spooled(t, 0)
	testkit.Eventually(t, "the store is ok", func() bool {
		return testkit.ParseObject(t, testkit.Call(t, "GET", s.OpsURL()+"/v1/status", "").Body).Text("store.state") == "ok"
	})
	if a := s.post(t, "t", `{"n":1e400}`, "Sluice-Id: a", "Sluice-Key: k"); a.Status != 200 || a.JSON(t).Text("seq") == "" {
		t.Errorf("a duplicate of an event that was spooled: %d %s", a.Status, a.Body)
	}
	s.put(t, "t", "after", "1", "Sluice-Key: k")
	var seqs []int64
	for _, e := range s.replay(t, "topic=t&key=k").List("events") {
		seqs = append(seqs, e.Number(t, "seq"))
		if _, marked := e["spooled"]; marked {
			t.Errorf("in the store: %v", e)
		}
	}
	if len(seqs) != 6 || !slices.IsSorted(seqs) || len(slices.Compact(seqs)) != 6 {
		t.Errorf("seqs %v", seqs)
	}
}

// "store_unavailable (+ retry_after_ms): the store is down and the topic's policy does not spool";
// "overloaded: a bounded queue is full". A request that needs the store is told that it is away,
// and works when it is back.
func TestRefusalsWhileTheStoreIsAway(t *testing.T) {
	t.Parallel()
	db := newOutage(t)
	s := db.start(t, awayPolicies, quick...)
	k := s.dial(t)
	k.ok(`{"op":"SUBSCRIBE","topic":"t","group":"g"}`)
	s.put(t, "t", "before", "1")
	k.event()
	pulled := s.pulled(t, "t", "puller", fromStart, 1)
	db.Stop()

	// Acks are answered within the store's timeout, and some time for the machine.
	const inTime = 2*time.Second + testkit.Slack
	began := time.Now()
	if e := k.refused("store_unavailable", `{"op":"ACK","topic":"t","group":"g","id":"before"}`); !strings.Contains(e.Text("msg"),
		"in time") || time.Since(began) > inTime {
		t.Errorf("after %v: %v", time.Since(began), e)
	}
	began = time.Now()
	retryLater(t, testkit.Call(t, "POST", s.URL()+"/v1/topics/t/groups/puller/ack",
		fmt.Sprintf(`{"leases":[%q]}`, pulled[0].Text("ctx.lease"))), "store_unavailable")
	if took := time.Since(began); took > inTime {
		t.Errorf("a pulled event's ack was answered after %v", took)
	}
	retryLater(t, s.post(t, "refuse.t", "1", "Sluice-Id: x"), "store_unavailable")
	if e := k.refused("store_unavailable", `{"op":"PUBLISH","topic":"refuse.t","payload":1,"opts":{"id":"x"}}`); e.Number(t,
		"retry_after_ms") < 1 {
		t.Errorf("%v", e)
	}
	results := k.ok(`{"op":"PUBLISH","events":[{"topic":"t","payload":1,"opts":{"id":"y"}},{"topic":"refuse.t","payload":1}]}`).List("results")
	if results[0]["durability"] != "spool" || results[1]["code"] != "store_unavailable" {
		t.Errorf("%v", results)
	}
	kept := s.fillSpool(t)
	if kept < 2 || kept > 5 {
		t.Errorf("%d events of 4,000 bytes fit into 20,000", kept)
	}
	if e := k.refused("overloaded", `{"op":"PUBLISH","topic":"small.t","payload":%s}`, text(4000)); e.Number(t, "retry_after_ms") < 1 {
		t.Errorf("%v", e)
	}
	s.spool(t, "t", "z", "1") // its own bound is far

	retryLater(t, testkit.Call(t, "GET", s.ReplayURL()+"/replay?topic=t&scope=store", ""), "store_unavailable")
	retryLater(t, testkit.Call(t, "GET", s.ReplayURL()+"/export?topic=t", ""), "store_unavailable")
	l := s.dial(t)
	for _, topic := range []string{"t", "unheard-of"} {
		if e := l.refused("store_unavailable", `{"op":"SUBSCRIBE","topic":%q,"group":"h"}`, topic); e.Number(t, "retry_after_ms") < 1 {
			t.Errorf("%v", e)
		}
	}
	retryLater(t, testkit.Call(t, "GET", s.URL()+"/v1/topics/t/groups/g", ""), "store_unavailable")
	l.refused("store_unavailable", `{"op":"SUBSCRIBE","topic":"t"}`)
	retryLater(t, testkit.Call(t, "PUT", s.URL()+"/v1/topics/t/groups/g/cursor", `{"from":"earliest"}`), "store_unavailable")
	l.usable()

	db.Restart()
	s.spooled(t, 0)
	if n := s.replay(t, "topic=small.t").Number(t, "count"); n != int64(kept) {
		t.Errorf("%d of %d spooled events of small.t", n, kept)
	}
	if n := s.replay(t, "topic=refuse.t").Number(t, "count"); n != 0 {
		t.Errorf("%d refused events are stored", n)
	}
	s.put(t, "refuse.t", "x", "1")
	l.ok(`{"op":"SUBSCRIBE","topic":"t","group":"h","opts":{"from":"earliest"}}`)
	got := ids(l.events(3))
	if slices.Sort(got); fmt.Sprint(got) != "[before y z]" {
		t.Errorf("%v", got)
	}
}

// With --spool-max-bytes 0 a sidecar is not ready while its store is away, since it refuses each publish, whatever policies say.
func TestSpoolingNothing(t *testing.T) {
	t.Parallel()
	db := newOutage(t)
	s := db.start(t, awayPolicies, append(quick, "--spool-max-bytes", "0")...)
	s.put(t, "t", "before", "1")
	db.Stop()
	retryLater(t, s.post(t, "t", "1", "Sluice-Id: x"), "store_unavailable")
	testkit.Eventually(t, "readyz says that publishes are refused", func() bool {
		a := testkit.Call(t, "GET", s.OpsURL()+"/readyz", "")
		return a.Status == 503 && strings.Contains(string(a.Body), "--spool-max-bytes 0")
	})
	retryLater(t, s.post(t, "t", "1", "Sluice-Id: x"), "store_unavailable")
	s.spooled(t, 0)
	db.Restart()
	testkit.Eventually(t, "it takes the event once the store is back", func() bool {
		return s.post(t, "t", "1", "Sluice-Id: x").Status == 201
	})
}

// "Without its store a sidecar goes on spooling … also after a restart": a sidecar starts without
// its store, is killed with a full spool and starts again. It loses nothing, and still knows the
// ids.
func TestStartingWhileTheStoreIsAway(t *testing.T) {
	t.Parallel()
	db := newOutage(t)
	db.Stop()
	s := db.start(t, awayPolicies, quick...)
	const n = 20
	for i := range n / 2 {
		s.spool(t, "t", fmt.Sprintf("%02d", i), "1", "Sluice-Key: k")
	}
	kept := s.fillSpool(t)
	s.Kill()
	s = db.start(t, awayPolicies, quick...)
	s.spooled(t, n/2+kept)
	retryLater(t, s.post(t, "small.t", text(4000)), "overloaded")
	s.readyToSpool(t)
	if a := s.post(t, "t", "1", "Sluice-Id: 03", "Sluice-Key: k"); a.JSON(t)["duplicate"] != true {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	if a := s.post(t, "t", "2", "Sluice-Id: 03", "Sluice-Key: k"); a.Status != 409 {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	for i := range n / 2 {
		s.spool(t, "t", fmt.Sprintf("%02d", n/2+i), "1", "Sluice-Key: k")
	}
	if err := s.Stop(t.Context()); err != nil { // a graceful stop keeps them, too
		t.Errorf("stop: %v\n%s", err, s.Log())
	}
	s = db.start(t, awayPolicies, quick...)
	s.spooled(t, n+kept)
	s.Kill()

	db.Restart()
	s = db.start(t, awayPolicies, quick...)
	k := s.dial(t)
	testkit.Eventually(t, "a group can be joined", func() bool {
		return k.ask(`{"op":"SUBSCRIBE","topic":"t","group":"g","opts":{"from":"earliest"}}`)["op"] == "OK"
	})
	for i := range n {
		f := k.event()
		if f.Text("event.id") != fmt.Sprintf("%02d", i) || f.Text("ctx.attempt") != "1" {
			t.Fatalf("want %02d, got %v", i, f)
		}
		k.ack("t", "g", f.Text("event.id"))
	}
	s.spooled(t, 0)
	if c := s.replay(t, "topic=t").Number(t, "count"); c != n {
		t.Errorf("%d events stored, want %d", c, n)
	}
	if c := s.replay(t, "topic=small.t").Number(t, "count"); c != int64(kept) {
		t.Errorf("%d events of the full part are stored, want %d", c, kept)
	}
}

// "A spooled event whose id somebody else took meanwhile, with other content, goes to <topic>.dlq
// with the reason."
func TestSpooledIDIsTakenMeanwhile(t *testing.T) {
	t.Parallel()
	db := newOutage(t)
	db.Stop()
	s := db.start(t, awayPolicies, quick...)
	s.spool(t, "t", "x", `"spooled"`, "Sluice-Key: k")
	s.spool(t, "t", "same", "1")
	s.Kill()
	db.Restart()
	other := home{t.TempDir(), db.store}.start(t, awayPolicies, quick...)
	other.put(t, "t", "x", `"taken"`)
	other.put(t, "t", "same", "1")
	s = db.start(t, awayPolicies, quick...)
	s.spooled(t, 0)
	e := other.letters(t, "t.dlq", 1)[0]
	if e["payload"] != "spooled" || e.Text("key") != "k" || e.Text("headers.sluice-dlq-id") != "x" ||
		e.Text("headers.sluice-dlq-reason") == "" {
		t.Errorf("%v", e)
	}
	if got := ids(other.replay(t, "topic=t").List("events")); len(got) != 2 {
		t.Errorf("%v", got)
	}
	if n := other.replay(t, "topic=t.dlq").Number(t, "count"); n != 1 {
		t.Errorf("%d dead letters", n)
	}
}

// A spooled event of a topic whose write concern the store cannot meet waits for ever: /v1/status names the topic and its concern, and
// the events of other topics behind it are brought to the store.
func TestConcernThatIsNeverMet(t *testing.T) {
	t.Parallel()
	db := newOutage(t)
	s := db.start(t, awayPolicies+`- {name: strict, durability: {write_concern: "w:9"}}`+"\n", quick...)
	s.put(t, "t", "before", "1")
	db.Stop()
	s.spool(t, "strict", "a", "1")
	s.spool(t, "t", "a", "1")
	s.spool(t, "strict", "b", "1")
	s.spool(t, "t", "b", "1")
	db.Restart()
	testkit.Eventually(t, "the events of the other topic are in the store", func() bool {
		a := testkit.Call(t, "GET", s.ReplayURL()+"/replay?topic=t", "")
		return a.Status == 200 && strings.Count(string(a.Body), `"partition"`) == 3
	})
	var status object
	testkit.Eventually(t, "status names the topic whose events wait, and why", func() bool {
		status = testkit.Call(t, "GET", s.OpsURL()+"/v1/status", "").JSON(t)
		return status.Text("store.unmet_concerns.strict") == "w:9" && status.Text("store.state") != "away"
	})
	s.spooled(t, 2)
	if a := testkit.Call(t, "GET", s.OpsURL()+"/readyz", ""); a.Status != 200 {
		t.Errorf("readyz: %d %s", a.Status, a.Body)
	}
}

package contract

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/test/testkit"
)

// pull pulls once, and returns [{event, ctx}…].
func (s *server) pull(t testing.TB, topic, group, body string) []object {
	t.Helper()
	a := testkit.Call(t, "POST", s.URL()+"/v1/topics/"+topic+"/groups/"+group+"/pull", body)
	o := a.JSON(t)
	if list, isList := o["events"].([]any); a.Status != 200 || !isList || len(list) != len(o.List("events")) {
		t.Fatalf("pull: %d %s", a.Status, a.Body)
	}
	return o.List("events")
}

// pulled pulls until so many events have come.
func (s *server) pulled(t testing.TB, topic, group, body string, n int) []object {
	t.Helper()
	var got []object
	testkit.Eventually(t, fmt.Sprint(n, " events are pulled"), func() bool {
		got = append(got, s.pull(t, topic, group, body)...)
		return len(got) >= n
	})
	return got
}

// settle acks, nacks or modacks, and returns "ok" or the code for each lease.
func (s *server) settle(t testing.TB, topic, group, verb string, events []object, more string) []string {
	t.Helper()
	var leases []string
	for _, e := range events {
		leases = append(leases, fmt.Sprintf("%q", e.Text("ctx.lease")))
	}
	a := testkit.Call(t, "POST", s.URL()+"/v1/topics/"+topic+"/groups/"+group+"/"+verb, `{"leases":[`+strings.Join(leases, ",")+`]`+more+`}`)
	if a.Status != 200 {
		t.Fatalf("%s: %d %s", verb, a.Status, a.Body)
	}
	var out []string
	for _, r := range a.JSON(t).List("results") {
		if r["ok"] == true {
			out = append(out, "ok")
		} else {
			out = append(out, r.Text("code"))
		}
	}
	return out
}

const fromStart = `{"wait_ms":5000,"opts":{"from":"earliest"}}`

// "long poll: {events:[{event, ctx}]} (empty after wait_ms)"; "each came with ctx.lease"; "results
// in order: {ok:true}, or stale_lease where the event has been redelivered or settled since"
func TestPull(t *testing.T) {
	t.Parallel()
	s := shared(t)
	const topic = "one.pull"
	began := time.Now()
	if got := s.pull(t, topic, "g", `{"wait_ms":300}`); len(got) != 0 || time.Since(began) < 290*time.Millisecond {
		t.Errorf("%v after %v", got, time.Since(began))
	}
	for i := range 5 {
		s.put(t, topic, fmt.Sprint("e", i), `{"n":1.50}`, "Sluice-Key: k"+fmt.Sprint(i))
	}
	first := s.pull(t, topic, "g", `{"max":2}`)
	rest := s.pulled(t, topic, "g", ``, 3) // a body is optional
	if got := fmt.Sprint(ids(append(first, rest...))); got != "[e0 e1 e2 e3 e4]" {
		t.Errorf("pulled %s", got)
	}
	for _, e := range first {
		if e.Text("ctx.attempt") != "1" || e.Number(t, "ctx.ack_deadline_ms") < 1 || e.Text("ctx.lease") == "" ||
			e.Text("event.payload.n") != "1.50" {
			t.Errorf("%v", e)
		}
	}
	if got := fmt.Sprint(s.settle(t, topic, "g", "ack", first, "")); got != "[ok ok]" {
		t.Errorf("ack: %s", got)
	}
	if got := fmt.Sprint(s.settle(t, topic, "g", "ack", append(first[:1:1], rest[0]), "")); got != "[stale_lease ok]" {
		t.Errorf("ack again: %s", got)
	}
	if got := fmt.Sprint(s.settle(t, topic, "g", "nack", rest[1:2], `,"delay_ms":0,"reason":"r"`)); got != "[ok]" {
		t.Errorf("nack: %s", got)
	}
	again := s.pulled(t, topic, "g", ``, 1)
	if again[0].Text("event.id") != "e3" || again[0].Text("ctx.attempt") != "2" || again[0].Text("ctx.lease") == rest[1].Text("ctx.lease") {
		t.Errorf("after the nack: %v", again)
	}
	for verb, more := range map[string]string{"ack": "", "nack": "", "modack": `,"extend_ms":1000`} {
		if got := fmt.Sprint(s.settle(t, topic, "g", verb, rest[1:2], more)); got != "[stale_lease]" {
			t.Errorf("%s of what was redelivered: %s", verb, got)
		}
	}
	if got := fmt.Sprint(s.settle(t, topic, "g", "modack", rest[2:], `,"extend_ms":100`)); got != "[ok]" {
		t.Errorf("modack: %s", got)
	}
	if e := s.pulled(t, topic, "g", ``, 1)[0]; e.Text("event.id") != "e4" || e.Text("ctx.attempt") != "2" {
		t.Errorf("past the deadline: %v", e)
	}
	for path, more := range map[string]string{"ack": ``, "nack": ``, "modack": `,"extend_ms":1`} {
		a := testkit.Call(t, "POST", s.URL()+"/v1/topics/"+topic+"/groups/g/"+path, `{"leases":["none"]`+more+`}`)
		if a.Status != 400 || a.JSON(t)["code"] != "bad_request" || !strings.Contains(string(a.Body), "leases[0]") {
			t.Errorf("%s: %d %s", path, a.Status, a.Body)
		}
	}
}

// "shared by all connections of the group": pulls and WebSockets alike.
func TestPullsShareAGroupWithSockets(t *testing.T) {
	t.Parallel()
	s := shared(t)
	const topic = "one.mixed"
	k := s.dial(t)
	k.ok(`{"op":"SUBSCRIBE","topic":%q,"group":"g","opts":{"maxInflight":1}}`, topic)
	for i := range 3 {
		s.put(t, topic, fmt.Sprint(i), "1")
	}
	sent := k.event().Text("event.id")
	got := ids(s.pulled(t, topic, "g", ``, 2))
	if len(got) != 2 || got[0] == sent || got[1] == sent {
		t.Errorf("one was sent %s, and the other pulled %v", sent, got)
	}
}

// "a killed sidecar: redelivery, with attempt one higher"; "OK once the progress is recorded
// durably, so it survives a kill"; "a graceful stop give[s] events back without counting an
// attempt".
func TestPullOverRestarts(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	s := h.start(t, sharedPolicies, soon...)
	const topic = "one.restart"
	for _, id := range []string{"a", "b"} {
		s.put(t, topic, id, "1")
	}
	before := s.pulled(t, topic, "g", fromStart, 2)
	s.Kill()
	s = h.start(t, sharedPolicies, soon...)
	if got := fmt.Sprint(s.settle(t, topic, "g", "ack", before, "")); got != "[stale_lease stale_lease]" {
		t.Errorf("leases from before the kill: %s", got)
	}
	again := s.pulled(t, topic, "g", fromStart, 2)
	for _, e := range again {
		if e.Text("ctx.attempt") != "2" {
			t.Errorf("after the kill: %v", e)
		}
	}
	if got := fmt.Sprint(s.settle(t, topic, "g", "ack", again[:1], "")); got != "[ok]" {
		t.Errorf("ack: %s", got)
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Errorf("stop: %v\n%s", err, s.Log())
	}
	s = h.start(t, sharedPolicies, soon...)
	third := s.pulled(t, topic, "g", fromStart, 1)
	if len(third) != 1 || third[0].Text("event.id") != again[1].Text("event.id") || third[0].Text("ctx.attempt") != "2" {
		t.Errorf("after the stop: %v", third)
	}
	s.settle(t, topic, "g", "ack", third, "")
	s.Kill()
	s = h.start(t, sharedPolicies, soon...)
	s.put(t, topic, "c", "1")
	if got := fmt.Sprint(ids(s.pulled(t, topic, "g", fromStart, 1))); got != "[c]" {
		t.Errorf("what was acked came again: %s", got)
	}
}

// "server-sent events: id: event id, data: the event; Last-Event-ID resumes after that id"; "A
// replayed event is the same JSON object that subscribers get."
func TestStream(t *testing.T) {
	t.Parallel()
	s := shared(t)
	const topic = "stream"
	k := s.stream(t, topic, "")
	var want []string
	for i := range 12 {
		id := fmt.Sprintf("e%02d", i)
		want = append(want, id)
		s.put(t, topic, id, fmt.Sprintf(`{"n":%d.0,"s":"a\nb\u2028"}`, i), "Sluice-Key: "+fmt.Sprint(i%5), fmt.Sprint("Sluice-Ts: ", 1000+i))
		if e := k.event(); e.Text("id") != id {
			t.Fatalf("live: %v", e)
		}
	}
	stored := map[string]string{}
	for _, e := range s.replay(t, "topic="+topic).List("events") {
		stored[e.Text("id")] = fmt.Sprint(e)
	}
	for query, first := range map[string]int{"?from=earliest": 0, "?from=ts&ts=1004": 4, "?from=afterId&afterId=e08": 9} {
		k := s.stream(t, topic, query)
		for _, id := range want[first:] {
			if e := k.event(); e.Text("id") != id || fmt.Sprint(e) != stored[id] {
				t.Fatalf("%s: %v, want %s", query, e, stored[id])
			}
		}
	}
	again := s.stream(t, topic, "?from=earliest", "Last-Event-ID: e05")
	if e := again.event(); e.Text("id") != "e06" {
		t.Errorf("after e05: %v", e)
	}
	for path, status := range map[string]int{
		"/v1/topics/" + topic + "/stream?from=afterId&afterId=none": 404, "/v1/topics/" + topic + "/stream?from=no": 400,
		"/v1/topics/a$/stream": 400,
	} {
		if a := testkit.Call(t, "GET", s.URL()+path, ""); a.Status != status {
			t.Errorf("%s: %d %s", path, a.Status, a.Body)
		}
	}
	if a := testkit.Call(t, "GET", s.URL()+"/v1/topics/"+topic+"/stream", "", "Last-Event-ID: none"); a.Status != 404 {
		t.Errorf("an unknown Last-Event-ID: %d %s", a.Status, a.Body)
	}
}

// "Last-Event-ID resumes after that id", whatever is published meanwhile, and in which order it is
// stored.
func TestStreamMissesNothing(t *testing.T) {
	t.Parallel()
	s := shared(t)
	const topic, publishers, each = "stream.all", 3, 40
	var publishing sync.WaitGroup
	for p := range publishers {
		publishing.Go(func() {
			for i := range each {
				res, err := http.Post(s.URL()+"/v1/topics/"+topic+"/events", "", strings.NewReader(fmt.Sprint(p*each+i)))
				if err != nil {
					t.Error(err)
					return
				}
				res.Body.Close()
			}
		})
	}
	defer publishing.Wait()
	got := map[string]bool{}
	last := "Accept: text/event-stream"
	for len(got) < publishers*each {
		k := s.stream(t, topic, "?from=earliest", last)
		for range min(7, publishers*each-len(got)) { // so many at least are to come
			e := k.event()
			got[e.Text("payload")] = true
			last = "Last-Event-ID: " + e.Text("id")
		}
		k.end()
	}
}

// With a group a stream's progress is the group's, over a kill too.
func TestStreamWithAGroup(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	s := h.start(t, sharedPolicies, soon...)
	const topic = "one.stream"
	s.put(t, topic, "a", "1")
	k := s.stream(t, topic, "?group=g&from=earliest")
	if e := k.event(); e.Text("id") != "a" {
		t.Errorf("%v", e)
	}
	testkit.Eventually(t, "it is acked", func() bool { return s.group(t, topic, "g").Text("lag") == "0" })
	// Events that were written and never read come again after Last-Event-ID.
	for _, id := range []string{"a1", "a2", "a3"} {
		s.put(t, topic, id, "1")
	}
	testkit.Eventually(t, "all is written", func() bool { return s.group(t, topic, "g").Text("lag") == "0" })
	k.end()
	again := s.stream(t, topic, "?group=g", "Last-Event-ID: a")
	for _, id := range []string{"a1", "a2", "a3"} {
		if e := again.event(); e.Text("id") != id {
			t.Errorf("again: %v, want %s", e, id)
		}
	}
	testkit.Eventually(t, "it is acked again", func() bool { return s.group(t, topic, "g").Text("lag") == "0" })
	again.end()
	testkit.Eventually(t, "the stream has ended", func() bool { return len(s.group(t, topic, "g").List("members")) == 0 })
	// A stream does not say when its acks are durable. The answer to an ack behind them in the
	// partition does.
	s.put(t, topic, "last", "1")
	if got := fmt.Sprint(s.settle(t, topic, "g", "ack", s.pulled(t, topic, "g", "", 1), "")); got != "[ok]" {
		t.Errorf("ack: %s", got)
	}
	s.Kill()
	s = h.start(t, sharedPolicies, soon...)
	s.put(t, topic, "b", "1")
	if e := s.stream(t, topic, "?group=g&from=earliest").event(); e.Text("id") != "b" {
		t.Errorf("after the kill: %v", e)
	}
}

// A sidecar that is told to stop ends its streams and pulls, and does not wait for them.
func TestStopEndsStreamsAndPulls(t *testing.T) {
	t.Parallel()
	s := own(t, sharedPolicies)
	k := s.stream(t, "t", "")
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		res, err := http.Post(s.URL()+"/v1/topics/t/groups/g/pull", "application/json", strings.NewReader(`{"wait_ms":60000}`))
		if err == nil { // or it came too late
			res.Body.Close()
		}
	}()
	testkit.Eventually(t, "somebody pulls", func() bool { return len(s.group(t, "t", "g").List("members")) == 1 })
	began := time.Now()
	if err := s.Stop(t.Context()); err != nil {
		t.Errorf("stop: %v\n%s", err, s.Log())
	}
	<-answered
	if !k.ended() || time.Since(began) > 20*time.Second {
		t.Errorf("the stop took %v", time.Since(began))
	}
}

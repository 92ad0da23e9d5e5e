package contract

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/test/testkit"
)

// still are buckets with a burst that hardly refill while a test runs.
const still = `
- {name: "*", publish: {rate: 0.01, burst: 20}, connection: {rate: 0.01, burst: 10}}
- {name: small, publish: {burst: 3}}
- {name: paused, paused: true}
- {name: free.*, publish: {rate: 0}}
`

func batch(n int) string { return "[" + strings.Repeat(`,{"payload":1}`, n)[1:] + "]" }

// limited sends a publish that must be rate_limited in a scope.
func (k *socket) limited(scope, format string, args ...any) time.Duration {
	k.t.Helper()
	return k.limitedIn(scope, k.refused("rate_limited", format, args...))
}

func (k *socket) limitedIn(scope string, r object) time.Duration {
	k.t.Helper()
	if r["scope"] != scope {
		k.t.Errorf("want scope %s: %v", scope, r)
	}
	ms := r.Number(k.t, "retry_after_ms")
	if ms < 1 {
		k.t.Errorf("%v", r)
	}
	return time.Duration(ms) * time.Millisecond
}

// untilLimited publishes until a publish is rate_limited, which takes more of them on a slow
// machine.
func (k *socket) untilLimited(scope, format string, args ...any) time.Duration {
	k.t.Helper()
	var r object
	testkit.Eventually(k.t, "a publish is limited", func() bool {
		r = k.ask(format, args...)
		return r["code"] == "rate_limited"
	})
	return k.limitedIn(scope, r)
}

// "publish: {per: header:NAME}: a bucket of rate and burst for each value, those without the header
// share one; scope in the error: tenant". However the header comes.
func TestTenants(t *testing.T) {
	t.Parallel()
	s := own(t, `[{name: "*", connection: {rate: 0}, publish: {rate: 0.01, burst: 3, per: "header:Tenant"}}]`)
	k := s.dial(t)
	const one = `{"op":"PUBLISH","topic":"t","payload":1,"opts":{"headers":{"tenant":%q}}}`
	for _, tenant := range []string{"a", "b"} {
		k.ok(one, tenant)
		s.post(t, "t", "1", "Sluice-Header-Tenant: "+tenant)
		s.post(t, "t", fmt.Sprintf(`{"payload":1,"opts":{"headers":{"tenant":%q}}}`, tenant), "Content-Type: application/x-ndjson")
		k.limited("tenant", one, tenant)
		if a := s.post(t, "t", "1", "Sluice-Header-Tenant: "+tenant); a.Status != 429 || a.JSON(t).Text("scope") != "tenant" {
			t.Errorf("%d %s", a.Status, a.Body)
		}
	}
	for range 3 {
		k.ok(`{"op":"PUBLISH","topic":"t","payload":1}`)
	}
	k.limited("tenant", `{"op":"PUBLISH","topic":"t","payload":1}`)
	k.limited("tenant", `{"op":"PUBLISH","topic":"t","events":[{"payload":1,"opts":{"headers":{"tenant":"c"}}},`+
		`{"payload":1,"opts":{"headers":{"tenant":"a"}}}]}`)
	for range 3 { // nothing of the refused batch stays taken
		k.ok(one, "c")
	}
	k.limited("tenant", one, "c")
}

// "a publish takes one token per event from the connection's bucket and from the topic's; a batch
// takes its count, all or nothing, and is refused with one error; a batch larger than the burst is
// bad_request naming the burst. Whatever refuses a publish, no token of it stays taken."
func TestTokens(t *testing.T) {
	t.Parallel()
	s := own(t, still)
	k := s.dial(t) // its bucket: 10
	const one = `{"op":"PUBLISH","topic":%q,"payload":1}`
	const many = `{"op":"PUBLISH","topic":%q,"events":%s}`
	for burst, topic := range map[string]string{"3": "small", "10": "big"} {
		n, _ := strconv.Atoi(burst)
		if r := k.refused("bad_request", many, topic, batch(n+1)); !strings.Contains(r.Text("msg"), burst) {
			t.Errorf("the burst %s is not named: %v", burst, r)
		}
	}
	k.ok(many, "small", batch(3)) // 7 left
	k.limited("topic", one, "small")
	k.limited("topic", many, "small", batch(2))
	k.refused("topic_paused", one, "paused")
	k.refused("bad_request", one, "_x")
	k.refused("bad_request", `{"op":"PUBLISH","topic":"big","opts":{"id":""},"payload":1}`)
	k.refused("payload_too_large", `{"op":"PUBLISH","topic":"big","payload":%s}`, text(1<<20+1))
	k.refused("rate_limited", `{"op":"PUBLISH","events":[{"topic":"big","payload":1},{"topic":"small","payload":1}]}`)
	k.ok(`{"op":"PUBLISH","topic":"big","payload":1,"opts":{"id":"x"}}`) // 6 left
	k.refused("conflict", `{"op":"PUBLISH","topic":"big","payload":2,"opts":{"id":"x"}}`)
	r := k.ok(`{"op":"PUBLISH","topic":"big","events":[{"payload":1},{"payload":2,"opts":{"id":"x"}},` +
		`{"payload":1,"opts":{"id":""}},{"topic":"paused","payload":1}]}`)
	if n := strings.Count(fmt.Sprint(r), "code:"); n != 3 { // 5 left
		t.Errorf("%v", r)
	}
	k.limited("connection", many, "big", batch(6))
	k.ok(many, "big", batch(5))
	k.limited("connection", one, "big")
	k.limited("connection", one, "free.t")

	l := s.dial(t) // big has used 1 + 1 + 5 of 20
	l.ok(many, "big", batch(10))
	m := s.dial(t)
	m.limited("topic", many, "big", batch(4))
	m.ok(many, "big", batch(3))
	m.limited("topic", one, "big")
	m.ok(many, "free.t", batch(7))
	m.usable()
}

// "retry_after_ms is enough", and "a whole number"; HTTP "adds Retry-After (whole seconds, rounded
// up)"; "for HTTP the TCP connection".
func TestRetryAfterIsEnough(t *testing.T) {
	t.Parallel()
	s := own(t, `[{name: "*", connection: {rate: 10, burst: 5}, publish: {rate: 0}}, {name: t, publish: {rate: 4, burst: 2}}]`)
	k := s.dial(t)
	time.Sleep(k.untilLimited("topic", `{"op":"PUBLISH","topic":"t","payload":1}`)) // the wait is exactly as long as promised
	k.ok(`{"op":"PUBLISH","topic":"t","payload":1}`)
	time.Sleep(k.untilLimited("connection", `{"op":"PUBLISH","topic":"u","events":%s}`, batch(5)))
	k.ok(`{"op":"PUBLISH","topic":"u","events":%s}`, batch(5))

	transport := &http.Transport{MaxConnsPerHost: 1}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	link := s.URL() + "/v1/topics/http/events"
	lines := "Content-Type: application/x-ndjson"
	var a testkit.Answer
	testkit.Eventually(t, "the connection's tokens are used up", func() bool {
		a = testkit.CallWith(t, client, "POST", link, strings.Repeat(`{"payload":1}`+"\n", 5), lines)
		return a.Status == 429
	})
	o := a.JSON(t)
	ms := o.Number(t, "retry_after_ms")
	if o["code"] != "rate_limited" || o["scope"] != "connection" || a.Header.Get("Retry-After") != fmt.Sprint((ms+999)/1000) {
		t.Errorf("%s, Retry-After %q", a.Body, a.Header.Get("Retry-After"))
	}
	other := &http.Transport{}
	defer other.CloseIdleConnections()
	if a := testkit.CallWith(t, &http.Client{Transport: other}, "POST", link, `1`); a.Status != 201 {
		t.Errorf("another TCP connection: %d %s", a.Status, a.Body)
	}
	time.Sleep(time.Duration(ms) * time.Millisecond)
	if a := testkit.CallWith(t, client, "POST", link, strings.Repeat(`{"payload":1}`+"\n", 5), lines); a.Status != 200 {
		t.Errorf("after retry_after_ms: %d %s", a.Status, a.Body)
	}
	if a := testkit.CallWith(t, client, "POST", link, strings.Repeat(`{"payload":1}`+"\n", 6), lines); a.Status != 400 ||
		a.JSON(t)["code"] != "bad_request" || !strings.Contains(string(a.Body), "5") {
		t.Errorf("beyond the burst: %d %s", a.Status, a.Body)
	}
}

// The defaults: "connection's bucket (default 200/s, burst 200)", "the topic's (default 1000/s,
// burst 1000)".
func TestDefaultRates(t *testing.T) {
	t.Parallel()
	s := own(t, "")
	k := s.dial(t)
	if r := k.refused("bad_request", `{"op":"PUBLISH","topic":"t","events":%s}`, batch(201)); !strings.Contains(r.Text("msg"), "200") {
		t.Errorf("%v", r)
	}
	k.ok(`{"op":"PUBLISH","topic":"t","events":%s}`, batch(200))
	s = own(t, `[{name: "*", connection: {rate: 0}}]`)
	k = s.dial(t)
	k.send(`{"op":"PUBLISH","topic":"t","events":%s}`, batch(1000))
	k.limited("topic", `{"op":"PUBLISH","topic":"t","events":%s}`, batch(1000))
}

// "on_limit: wait" lets a publish wait for its token, up to max_wait.
func TestOnLimitWait(t *testing.T) {
	t.Parallel()
	s := own(t, `[{name: "*", connection: {rate: 0}, publish: {rate: 5, burst: 1, on_limit: wait, max_wait: 2s}}, `+
		`{name: short, publish: {rate: 0.01, max_wait: 10ms}}]`)
	k := s.dial(t)
	began := time.Now()
	for range 4 {
		k.ok(`{"op":"PUBLISH","topic":"t","payload":1}`)
	}
	if took := time.Since(began); took < 500*time.Millisecond {
		t.Errorf("four publishes at 5/s took %v", took)
	}
	k.ok(`{"op":"PUBLISH","topic":"short","payload":1}`)
	k.limited("topic", `{"op":"PUBLISH","topic":"short","payload":1}`)
}

// bytes_per_second: a topic's publishes are limited by their size as well. Its burst is one
// second's worth, or a whole batch of 8 MiB where that is more.
func TestBytesPerSecond(t *testing.T) {
	t.Parallel()
	s := own(t, `[{name: "*", publish: {bytes_per_second: 1000}}]`)
	k := s.dial(t)
	k.ok(`{"op":"PUBLISH","topic":"t","events":[%s]}`, strings.Repeat(`,{"payload":`+text(1<<20-200)+`}`, 8)[1:])
	var r object
	testkit.Eventually(t, "the bytes are used up", func() bool {
		r = k.ask(`{"op":"PUBLISH","topic":"t","payload":%s}`, text(900))
		return r["op"] == "ERR"
	})
	if wait := r.Number(t, "retry_after_ms"); r["code"] != "rate_limited" || r["scope"] != "topic" || wait < 1 || wait > 1000 {
		t.Errorf("%v", r)
	}
	k.ok(`{"op":"PUBLISH","topic":"other","payload":%s}`, text(900))
	time.Sleep(time.Duration(r.Number(t, "retry_after_ms")) * time.Millisecond)
	k.ok(`{"op":"PUBLISH","topic":"t","payload":%s}`, text(900))
}

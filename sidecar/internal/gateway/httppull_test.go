package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// pulled is the answer to a pull.
type pulled struct {
	Events []struct {
		Event event
		Ctx   struct {
			delivery
			Lease string
		}
	}
}

// result is one of the answers to an ack, a nack or a modack.
type result struct {
	OK          bool
	Code, Error string
}

// path of a verb for the group "g" of the topic "t".
func groupPath(verb string) string { return "/v1/topics/t/groups/g/" + verb }

// pull pulls from the group "g" of the topic "t".
func (s *sidecar) pull(t testing.TB, format string, args ...any) pulled {
	t.Helper()
	res, body := s.do(t, "POST", groupPath("pull"), fmt.Sprintf(format, args...))
	var p pulled
	if err := json.Unmarshal([]byte(body), &p); err != nil || res.StatusCode != 200 || p.Events == nil {
		t.Fatalf("pull: %s %s", res.Status, body)
	}
	return p
}

// names are the ids and attempts of the pulled events.
func (p pulled) names() string {
	var out []string
	for _, e := range p.Events {
		out = append(out, fmt.Sprint(e.Event.ID, "/", e.Ctx.Attempt))
	}
	return strings.Join(out, " ")
}

func (p pulled) leases() (out []string) {
	for _, e := range p.Events {
		out = append(out, e.Ctx.Lease)
	}
	return out
}

// wants checks the pulled events.
func (p pulled) wants(t testing.TB, want string) pulled {
	t.Helper()
	if got := p.names(); got != want {
		t.Fatalf("pulled %q, want %q", got, want)
	}
	return p
}

// settle acks, nacks or modacks; more are further members.
func (s *sidecar) settle(t testing.TB, verb string, leases []string, more ...string) string {
	t.Helper()
	list, err := json.Marshal(leases)
	if err != nil {
		t.Fatal(err)
	}
	res, body := s.do(t, "POST", groupPath(verb), `{"leases":`+strings.Join(append([]string{string(list)}, more...), ",")+`}`)
	var got struct{ Results []result }
	if err := json.Unmarshal([]byte(body), &got); err != nil || res.StatusCode != 200 || len(got.Results) != len(leases) {
		t.Fatalf("%s: %s %s", verb, res.Status, body)
	}
	var out []string
	for _, r := range got.Results {
		if r.OK {
			out = append(out, "ok")
		} else if r.Error == "" {
			t.Errorf("%s: %s", verb, body)
		} else {
			out = append(out, r.Code)
		}
	}
	return strings.Join(out, " ")
}

// onePartition makes pulls return events in the order of publishing.
const onePartition = `[{"name":"*","partitions":1,"publish":{"rate":0},"connection":{"rate":0},"delivery":{"backoff":{"min":"1ms","max":"1ms"}}}]`

// fromStart is a pull of the events that are there now.
const fromStart = `{"wait_ms":0,"opts":{"from":"earliest"}}`

func TestPullAndAck(t *testing.T) {
	s := start(t, setup{policies: onePartition})
	for _, id := range []string{"a", "b", "c"} {
		s.publish(t, "t", id, "")
	}
	p := s.pull(t, fromStart).wants(t, "a/1 b/1 c/1")
	for _, e := range p.Events {
		if left := e.Ctx.AckDeadlineMS; left <= 0 || left > 30_000 || string(e.Event.Payload) != `{"n":1}` || e.Event.Seq == 0 {
			t.Errorf("%+v", e)
		}
	}
	ls := p.leases()
	if got := s.settle(t, "modack", ls[:1], `"extend_ms":60000`); got != "ok" {
		t.Errorf("modack: %s", got)
	}
	if got := s.settle(t, "ack", ls[:2]); got != "ok ok" {
		t.Errorf("ack: %s", got)
	}
	if got := s.settle(t, "ack", []string{ls[2], ls[0], ls[2]}); got != "ok stale_lease stale_lease" {
		t.Errorf("ack again: %s", got)
	}
	s.pull(t, fromStart).wants(t, "")
	if _, body := s.do(t, "GET", "/v1/topics/t/groups/g", ""); !strings.Contains(body, `"lag":0,"inflight":0`) ||
		!strings.Contains(body, `"id":"node/pull","inflight":0,"max_inflight":100,"paused":false,"blocked_by":"caught_up"`) {
		t.Errorf("the group: %s", body)
	}
	s.publish(t, "t", "d", "")
	eventually(t, "d waits for a pull", func() bool {
		_, body := s.do(t, "GET", "/v1/topics/t/groups/g", "")
		return strings.Contains(body, `"blocked_by":"slow_reader"`)
	})
}

func TestPullWaitsForEvents(t *testing.T) {
	s := start(t, setup{policies: onePartition})
	s.pull(t, fromStart).wants(t, "")
	got := make(chan pulled)
	go func() {
		res, err := http.Post("http://"+s.addr+groupPath("pull"), "", strings.NewReader(`{"wait_ms":60000}`))
		var p pulled
		if err != nil {
			t.Error(err)
		} else if err := json.NewDecoder(res.Body).Decode(&p); err != nil {
			t.Error(err)
		} else {
			res.Body.Close()
		}
		got <- p
	}()
	eventually(t, "somebody waits", func() bool { return s.waiting() == 1 })
	s.publish(t, "t", "a", "")
	(<-got).wants(t, "a/1")
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
}

// waiting counts the pulls that wait for events.
func (s *sidecar) waiting() (n int) {
	s.gateway.pulls.mu.Lock()
	defer s.gateway.pulls.mu.Unlock()
	for _, p := range s.gateway.pulls.all {
		p.mu.Lock()
		n += len(p.waiting)
		p.mu.Unlock()
	}
	return n
}

func TestNackedAndExpiredComeAgain(t *testing.T) {
	s := start(t, setup{policies: `[{"name":"*","partitions":1,"delivery":{"max_attempts":3,"backoff":{"min":"1ms","max":"1ms"}}}]`})
	s.publish(t, "t", "a", "")
	first := s.pull(t, fromStart).wants(t, "a/1").leases()
	if got := s.settle(t, "nack", first, `"reason":"no good","delay_ms":0`); got != "ok" {
		t.Errorf("nack: %s", got)
	}
	second := s.pull(t, `{}`).wants(t, "a/2").leases()
	for verb, more := range map[string]string{"ack": `"x":1`, "nack": `"delay_ms":1`, "modack": `"extend_ms":1`} {
		if got := s.settle(t, verb, first, more); got != "stale_lease" {
			t.Errorf("%s of what was nacked: %s", verb, got)
		}
	}
	if got := s.settle(t, "modack", second, `"extend_ms":0`); got != "ok" { // its deadline is now
		t.Errorf("modack: %s", got)
	}
	third := s.pull(t, `{}`).wants(t, "a/3").leases()
	if got := s.settle(t, "ack", second); got != "stale_lease" {
		t.Errorf("ack of what has expired: %s", got)
	}
	if got := s.settle(t, "nack", third, `"reason":"bad"`); got != "ok" {
		t.Errorf("nack: %s", got)
	}
	res, body := s.do(t, "POST", "/v1/topics/t.dlq/groups/g/pull", `{"opts":{"from":"earliest"}}`)
	if res.StatusCode != 200 || !strings.Contains(body, `"sluice-dlq-reason":"bad"`) {
		t.Errorf("the dead letter: %s", body)
	}
}

func TestSeekMakesLeasesStale(t *testing.T) {
	s := start(t, setup{policies: onePartition})
	s.publish(t, "t", "a", "")
	ls := s.pull(t, fromStart).wants(t, "a/1").leases()
	if res, body := s.do(t, "PUT", groupPath("cursor"), `{"from":"earliest"}`); res.StatusCode != 204 {
		t.Fatal(body)
	}
	if got := s.settle(t, "ack", ls); got != "stale_lease" {
		t.Error(got)
	}
	s.pull(t, `{}`).wants(t, "a/1")
}

// A client that leaves before its answer leaves nothing behind.
func TestPullGivenUp(t *testing.T) {
	s := start(t, setup{policies: onePartition})
	s.pull(t, fromStart).wants(t, "")
	ctx, giveUp := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	asking.Go(func() {
		req, err := http.NewRequestWithContext(ctx, "POST", "http://"+s.addr+groupPath("pull"), strings.NewReader(`{"wait_ms":60000}`))
		if err != nil {
			t.Error(err)
			return
		}
		if res, err := transport(t).RoundTrip(req); err == nil {
			t.Errorf("answered: %s", res.Status)
			res.Body.Close()
		}
	})
	eventually(t, "somebody waits", func() bool { return s.waiting() == 1 })
	giveUp()
	asking.Wait()
	// Until the sidecar hears that the connection has ended, it answers into it.
	eventually(t, "nobody waits", func() bool { return s.waiting() == 0 })
	s.publish(t, "t", "a", "")
	s.pull(t, `{}`).wants(t, "a/1")
}

// brokenWriter is a connection that breaks while it is answered.
type brokenWriter struct{ header http.Header }

func (w brokenWriter) Header() http.Header       { return w.header }
func (w brokenWriter) WriteHeader(int)           {}
func (w brokenWriter) Write([]byte) (int, error) { return 0, net.ErrClosed }

func TestPullThatCannotBeWritten(t *testing.T) {
	s := start(t, setup{policies: onePartition})
	s.publish(t, "t", "a", "")
	r := httptest.NewRequestWithContext(t.Context(), "POST", groupPath("pull"), strings.NewReader(fromStart))
	s.gateway.Handler().ServeHTTP(brokenWriter{http.Header{}}, r)
	s.pull(t, fromStart).wants(t, "a/1")
}

func TestPullBounds(t *testing.T) {
	s := start(t, setup{policies: onePartition})
	for i := range 7 {
		s.publish(t, "t", fmt.Sprint(i), "")
	}
	ls := s.pull(t, `{"max":2,"wait_ms":0,"opts":{"from":"earliest","maxInflight":3}}`).wants(t, "0/1 1/1").leases()
	s.pull(t, `{"max":2,"wait_ms":0,"opts":{"maxInflight":3}}`).wants(t, "2/1")
	s.pull(t, `{"max":2,"wait_ms":0,"opts":{"maxInflight":3}}`).wants(t, "") // all in flight
	s.settle(t, "ack", ls)
	s.pull(t, `{"wait_ms":0,"opts":{"maxInflight":3}}`).wants(t, "3/1 4/1")
	// Other opts are another subscription of the group.
	s.pull(t, `{"wait_ms":0,"opts":{"maxInflight":1}}`).wants(t, "5/1")
}

func TestPullKeepsKeysInOrder(t *testing.T) {
	s := start(t, setup{policies: onePartition})
	for _, id := range []string{"a1", "b1", "a2", "b2"} {
		s.publish(t, "t", id, id[:1])
	}
	p := s.pull(t, fromStart).wants(t, "a1/1 b1/1")
	s.pull(t, `{"wait_ms":0}`).wants(t, "")
	s.settle(t, "ack", p.leases()[1:])
	s.pull(t, `{"wait_ms":0}`).wants(t, "b2/1")
	s.settle(t, "ack", p.leases()[:1])
	s.pull(t, `{"wait_ms":0}`).wants(t, "a2/1")
}

func TestPullWithFilters(t *testing.T) {
	s := start(t, setup{policies: onePartition})
	const of = `{"wait_ms":0,"opts":{"from":"earliest","filter":{"key":%q}}}`
	s.pull(t, of, "a").wants(t, "")
	s.pull(t, of, "b").wants(t, "")
	for _, id := range []string{"a1", "b1", "c1"} {
		s.publish(t, "t", id, id[:1])
	}
	s.pull(t, of, "b").wants(t, "b1/1")
	s.pull(t, of, "a").wants(t, "a1/1")
}

func TestPullAutoAck(t *testing.T) {
	s := start(t, setup{policies: onePartition})
	s.publish(t, "t", "a", "")
	ls := s.pull(t, `{"wait_ms":0,"opts":{"from":"earliest","autoAck":true}}`).wants(t, "a/1").leases()
	eventually(t, "it is acked", func() bool { return s.settle(t, "modack", ls, `"extend_ms":1000`) == "stale_lease" })
	s.pull(t, `{"wait_ms":0}`).wants(t, "")
}

// Each TCP connection has a delivery bucket of its own; a delivery without a token waits.
func TestPullRate(t *testing.T) {
	s := start(t, setup{policies: `[{"name":"*","partitions":1,"delivery":{"rate":2}},{"name":"slow","partitions":1,"delivery":{"rate":0.001}}]`})
	for i := range 5 {
		s.publish(t, "t", fmt.Sprint(i), "")
	}
	s.publish(t, "slow", "s0", "")
	s.publish(t, "slow", "s1", "")
	s.pull(t, fromStart).wants(t, "0/1 1/1")
	t.Run("other", func(t *testing.T) { s.pull(t, `{"wait_ms":0}`).wants(t, "2/1 3/1") })
	s.pull(t, `{}`).wants(t, "4/1") // once there is a token
	const slow = "/v1/topics/slow/groups/g/pull"
	if _, body := s.do(t, "POST", slow, fromStart); strings.Count(body, `"lease"`) != 1 {
		t.Errorf("slow: %s", body)
	}
	if _, body := s.do(t, "POST", slow, `{"wait_ms":20}`); body != `{"events":[]}` {
		t.Errorf("slow: %s", body)
	}
}

func TestUnusedTokensGoBack(t *testing.T) {
	s := start(t, setup{policies: `[{"name":"*","partitions":1,"delivery":{"rate":0.001}},{"name":"t","partitions":1,"delivery":{"rate":0.001}}]`})
	s.pull(t, fromStart).wants(t, "")
	s.pull(t, fromStart).wants(t, "")
	s.publish(t, "t", "a", "")
	s.pull(t, fromStart).wants(t, "a/1")
}

func TestPullerRetires(t *testing.T) {
	bounds := DefaultBounds()
	bounds.PullerIdle = 30 * time.Millisecond
	s := start(t, setup{policies: onePartition, bounds: &bounds})
	s.publish(t, "t", "a", "")
	ls := s.pull(t, fromStart).wants(t, "a/1").leases()
	p := s.onlyPuller(t)
	s.gateway.pulls.retire(p) // as its timer does: events in flight keep it
	if got := s.settle(t, "ack", ls); got != "ok" {
		t.Errorf("ack: %s", got)
	}
	eventually(t, "the puller is gone", func() bool { return s.gateway.Stats().Subscriptions == 0 })
	if _, body := s.do(t, "GET", "/v1/topics/t/groups/g", ""); !strings.Contains(body, `"members":[]`) || !strings.Contains(body, `"lag":0`) {
		t.Errorf("the group: %s", body)
	}
	s.publish(t, "t", "b", "")
	s.pull(t, `{}`).wants(t, "b/1")
}

func (s *sidecar) onlyPuller(t testing.TB) *puller {
	t.Helper()
	s.gateway.pulls.mu.Lock()
	defer s.gateway.pulls.mu.Unlock()
	for _, p := range s.gateway.pulls.all {
		return p
	}
	t.Fatal("there is no puller")
	return nil
}

func TestPullsAreBounded(t *testing.T) {
	bounds := DefaultBounds()
	bounds.Pullers = 1
	s := start(t, setup{policies: onePartition, bounds: &bounds})
	s.publish(t, "t", "a", "")
	s.publish(t, "t", "b", "")
	ls := s.pull(t, `{"wait_ms":0,"max":1,"opts":{"from":"earliest"}}`).wants(t, "a/1").leases()
	res, body := s.do(t, "POST", groupPath("pull"), `{"opts":{"maxInflight":7}}`)
	if res.StatusCode != 503 || !strings.Contains(body, `"overloaded"`) || res.Header.Get("Retry-After") == "" {
		t.Errorf("one more: %s %s", res.Status, body)
	}
	s.settle(t, "ack", ls)
	s.pull(t, `{"opts":{"maxInflight":7}}`).wants(t, "b/1") // in place of the other, which is idle
}

func TestPullBadInput(t *testing.T) {
	s := start(t, setup{policies: onePartition})
	s.publish(t, "t", "a", "")
	lease := s.pull(t, fromStart).wants(t, "a/1").leases()[0]
	other := s.gateway.leases.appendLease(nil, "t", "other", s.lease(t, lease))
	for _, c := range []struct {
		path, body string
		status     int
		says       string
	}{
		{groupPath("pull"), `{`, 400, "bad_json"},
		{groupPath("pull"), "\xff", 400, "bad_json"},
		{groupPath("pull"), `[]`, 400, "JSON object"},
		{groupPath("pull"), `{"max":0}`, 400, "max must be a whole number from 1 to 1000"},
		{groupPath("pull"), `{"max":1001}`, 400, "max"},
		{groupPath("pull"), `{"max":"1"}`, 400, "max"},
		{groupPath("pull"), `{"wait_ms":-1}`, 400, "wait_ms must be a whole number from 0 to 60000"},
		{groupPath("pull"), `{"opts":1}`, 400, "opts must be an object"},
		{groupPath("pull"), `{"opts":{"maxInflight":0}}`, 400, "maxInflight"},
		{groupPath("pull"), `{"opts":{"from":"middle"}}`, 400, "from"},
		{"/v1/topics/t/groups/new/pull", `{"opts":{"from":"afterId","afterId":"none"}}`, 404, "afterId"},
		{"/v1/topics/a$b/groups/g/pull", ``, 400, "topic"},
		{"/v1/topics/t/groups/a%20b/pull", ``, 400, "group"},
		{groupPath("pull"), strings.Repeat(" ", maxPullBody+1), 413, "payload_too_large"},
		{groupPath("ack"), ``, 400, "leases is missing"},
		{groupPath("ack"), `{"leases":[]}`, 400, "leases is missing"},
		{groupPath("ack"), `{"leases":"x"}`, 400, "leases must be an array of strings"},
		{groupPath("ack"), `{"leases":["` + lease + `","nonsense"]}`, 400, "leases[1]"},
		{groupPath("ack"), `{"leases":["` + string(other) + `"]}`, 400, "leases[0]"},
		{groupPath("ack"), `{"leases":["` + lease[1:] + `"]}`, 400, "leases[0]"},
		{groupPath("nack"), `{"leases":["x"],"delay_ms":-1}`, 400, "delay_ms"},
		{groupPath("nack"), `{"leases":["x"],"reason":1}`, 400, "reason"},
		{groupPath("modack"), `{"leases":["x"]}`, 400, "extend_ms is missing"},
		{groupPath("modack"), `{"leases":["x"],"extend_ms":1e9}`, 400, "extend_ms"},
		{"/v1/topics/t/groups/other/ack", `{"leases":["` + lease + `"]}`, 400, "leases[0]"},
	} {
		res, body := s.do(t, "POST", c.path, c.body)
		if res.StatusCode != c.status || !strings.Contains(body, c.says) || res.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s %.60s: %s %s", c.path, c.body, res.Status, body)
		}
	}
	if res, body := s.do(t, "GET", groupPath("pull"), ""); res.StatusCode != 405 || res.Header.Get("Allow") != "POST" {
		t.Errorf("GET: %s %s", res.Status, body)
	}
	if got := s.settle(t, "ack", []string{lease}); got != "ok" { // no refusal above has settled it
		t.Errorf("ack: %s", got)
	}
}

func TestLeasesOfOtherSidecars(t *testing.T) {
	s := start(t, setup{policies: onePartition})
	s.publish(t, "t", "a", "")
	lease := s.pull(t, fromStart).leases()[0]
	for node, says := range map[string]string{"node": "started again", "far": `\"far\"`} {
		giver := newLeaser(node)
		token := giver.appendLease(nil, "t", "g", s.lease(t, lease))
		_, body := s.do(t, "POST", groupPath("ack"), `{"leases":["`+string(token)+`"]}`)
		if !strings.Contains(body, `"code":"stale_lease"`) || !strings.Contains(body, says) {
			t.Errorf("of %s: %s", node, body)
		}
	}
}

func TestPullNeedsRights(t *testing.T) {
	s := start(t, setup{access: authOf(t, "tokens:\n"+entry("app", rights)).Access})
	for path, want := range map[string]int{
		"/v1/topics/orders/groups/billing/": 200, "/v1/topics/orders/groups/audit/": 403, "/v1/topics/payments/groups/billing/": 403,
	} {
		for _, verb := range []string{"pull", "ack", "nack", "modack"} {
			topic, group, _ := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(path, "/v1/topics/"), "/"), "/groups/")
			giver := newLeaser("far")
			lease := giver.appendLease(nil, topic, group, s.noLease())
			body := fmt.Sprintf(`{"wait_ms":0,"leases":[%q],"extend_ms":1}`, lease)
			if res, text := s.do(t, "POST", path+verb, body, "Authorization: Bearer app"); res.StatusCode != want {
				t.Errorf("%s%s: %s %s", path, verb, res.Status, text)
			}
			// The answer to a caller without the right to the group does not say whether the
			// request is wrong.
			if res, text := s.do(t, "POST", path+verb, `{"wait_ms":0,"leases":["none"],"extend_ms":1}`, "Authorization: Bearer app"); want == 403 && res.StatusCode != 403 {
				t.Errorf("%s%s with no lease: %s %s", path, verb, res.Status, text)
			}
			if res, text := s.do(t, "POST", path+verb, body); res.StatusCode != 401 {
				t.Errorf("%s%s without a token: %s %s", path, verb, res.Status, text)
			}
		}
	}
}

func TestShutdownGivesPulledBack(t *testing.T) {
	s := start(t, setup{policies: onePartition})
	s.publish(t, "t", "a", "")
	s.pull(t, fromStart).wants(t, "a/1")
	answer := make(chan int)
	go func() {
		res, err := http.Post("http://"+s.addr+groupPath("pull"), "", strings.NewReader(`{"wait_ms":60000}`))
		if err != nil {
			t.Error(err)
			answer <- 0
			return
		}
		res.Body.Close()
		answer <- res.StatusCode
	}()
	eventually(t, "somebody waits", func() bool { return s.waiting() == 1 })
	s.stop()
	if status := <-answer; status != 503 {
		t.Errorf("the pull that waited: %d", status)
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	info, err := s.gateway.cfg.Groups.Info(t.Context(), "t", "g")
	if err != nil || info.Inflight != 0 || info.Lag != 1 || len(info.Members) != 0 {
		t.Errorf("%+v, %v", info, err)
	}
	for _, verb := range []string{"pull", "ack"} {
		if res, body := s.do(t, "POST", groupPath(verb), ""); res.StatusCode != 503 {
			t.Errorf("%s: %s %s", verb, res.Status, body)
		}
	}
}

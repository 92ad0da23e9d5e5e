package consume_test

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

	"github.com/sluice-bus/sluice/internal/budget"
	"github.com/sluice-bus/sluice/sidecar/internal/consume"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/gateway/gatewaytest"
	"github.com/sluice-bus/sluice/sidecar/internal/group"
	"github.com/sluice-bus/sluice/sidecar/internal/session"
)

// fromStart is a pull of the events that are there now.
const fromStart = `{"wait_ms":0,"opts":{"from":"earliest"}}`

func TestPullAndAck(t *testing.T) {
	s := start(t, gatewaytest.Setup{Policies: gatewaytest.OnePartition})
	for _, id := range []string{"a", "b", "c"} {
		s.Publish(t, "t", id, "")
	}
	p := s.Pull(t, fromStart).Wants(t, "a/1 b/1 c/1")
	for _, e := range p.Events {
		if left := e.Ctx.AckDeadlineMS; left <= 0 || left > 30_000 || string(e.Event.Payload) != `{"n":1}` || e.Event.Seq == 0 {
			t.Errorf("%+v", e)
		}
	}
	ls := p.Leases()
	if got := s.Settle(t, "modack", ls[:1], `"extend_ms":60000`); got != "ok" {
		t.Errorf("modack: %s", got)
	}
	if got := s.Settle(t, "ack", ls[:2]); got != "ok ok" {
		t.Errorf("ack: %s", got)
	}
	if got := s.Settle(t, "ack", []string{ls[2], ls[0], ls[2]}); got != "ok stale_lease stale_lease" {
		t.Errorf("ack again: %s", got)
	}
	s.Pull(t, fromStart).Wants(t, "")
	_, body := s.Do(t, "GET", "/v1/topics/t/groups/g", "")
	for _, part := range []string{`"lag":0,"inflight":0`, `"id":"node/pull","node_id":"node","address":"127.0.0.1:`,
		`"inflight":0,"max_inflight":100,"oldest_unacked_ms":0,"paused":false,"blocked_by":"caught_up"`} {
		if !strings.Contains(body, part) {
			t.Errorf("the group: %s; want %s", body, part)
		}
	}
	s.Publish(t, "t", "d", "")
	gatewaytest.Eventually(t, "d waits for a pull", func() bool {
		_, body := s.Do(t, "GET", "/v1/topics/t/groups/g", "")
		return strings.Contains(body, `"blocked_by":"not_pulling"`)
	})
}

func TestPullWaitsForEvents(t *testing.T) {
	s := start(t, gatewaytest.Setup{Policies: gatewaytest.OnePartition})
	s.Pull(t, fromStart).Wants(t, "")
	got := make(chan gatewaytest.Pulled)
	go func() {
		res, err := http.Post("http://"+s.Addr+gatewaytest.GroupPath("pull"), "", strings.NewReader(`{"wait_ms":60000}`))
		var p gatewaytest.Pulled
		if err != nil {
			t.Error(err)
		} else if err := json.NewDecoder(res.Body).Decode(&p); err != nil {
			t.Error(err)
		} else {
			res.Body.Close()
		}
		got <- p
	}()
	gatewaytest.Eventually(t, "somebody waits", func() bool { return s.waiting() == 1 })
	s.Publish(t, "t", "a", "")
	(<-got).Wants(t, "a/1")
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
}

// lease reads a lease of the group "g" of the topic "t".
func (s *sidecar) lease(t testing.TB, token string) group.Lease {
	t.Helper()
	d, ok := s.Gateway.Consumers.Lease("t", "g", token)
	if !ok {
		t.Fatalf("%s is no lease", token)
	}
	return d
}

// waiting counts the pulls that wait for events.
func (s *sidecar) waiting() (n int) {
	return s.Gateway.Consumers.Waiting()
}

func TestNackedAndExpiredComeAgain(t *testing.T) {
	s := start(t, gatewaytest.Setup{Policies: `[{"name":"*","partitions":1,"delivery":{"max_attempts":3,"backoff":{"min":"1ms",` +
		`"max":"1ms"}}}]`})
	s.Publish(t, "t", "a", "")
	first := s.Pull(t, fromStart).Wants(t, "a/1").Leases()
	if got := s.Settle(t, "nack", first, `"reason":"no good","delay_ms":0`); got != "ok" {
		t.Errorf("nack: %s", got)
	}
	second := s.Pull(t, `{}`).Wants(t, "a/2").Leases()
	for verb, more := range map[string][]string{"ack": nil, "nack": {`"delay_ms":1`}, "modack": {`"extend_ms":1`}} {
		if got := s.Settle(t, verb, first, more...); got != "stale_lease" {
			t.Errorf("%s of what was nacked: %s", verb, got)
		}
	}
	if got := s.Settle(t, "modack", second, `"extend_ms":0`); got != "ok" { // its deadline is now
		t.Errorf("modack: %s", got)
	}
	third := s.Pull(t, `{}`).Wants(t, "a/3").Leases()
	if got := s.Settle(t, "ack", second); got != "stale_lease" {
		t.Errorf("ack of what has expired: %s", got)
	}
	if got := s.Settle(t, "nack", third, `"reason":"bad"`); got != "ok" {
		t.Errorf("nack: %s", got)
	}
	res, body := s.Do(t, "POST", "/v1/topics/t.dlq/groups/g/pull", `{"opts":{"from":"earliest"}}`)
	if res.StatusCode != 200 || !strings.Contains(body, `"sluice-dlq-reason":"bad"`) {
		t.Errorf("the dead letter: %s", body)
	}
}

// An empty answer says that there is nothing; one that cannot be read is no such answer.
func TestPullOfWhatCannotBeRead(t *testing.T) {
	s := start(t, gatewaytest.Setup{Policies: gatewaytest.OnePartition})
	s.Publish(t, "t", "a", "")
	s.Log.FailReadsWith(&eventlog.DamageError{File: "segments/7", Offset: 4096, What: "a wrong checksum"})
	res, body := s.Do(t, "POST", gatewaytest.GroupPath("pull"), fromStart)
	if res.StatusCode != 503 || res.Header.Get("Retry-After") == "" || !strings.Contains(body, "segments/7 is damaged at byte 4096") {
		t.Errorf("%s %s", res.Status, body)
	}
	s.Log.FailReadsWith(nil)
	s.Pull(t, `{"wait_ms":10000}`).Wants(t, "a/1")
}

func TestSeekMakesLeasesStale(t *testing.T) {
	s := start(t, gatewaytest.Setup{Policies: gatewaytest.OnePartition})
	s.Publish(t, "t", "a", "")
	ls := s.Pull(t, fromStart).Wants(t, "a/1").Leases()
	if res, body := s.Do(t, "PUT", gatewaytest.GroupPath("cursor"), `{"from":"earliest"}`); res.StatusCode != 204 {
		t.Fatal(body)
	}
	if got := s.Settle(t, "ack", ls); got != "stale_lease" {
		t.Error(got)
	}
	s.Pull(t, `{}`).Wants(t, "a/1")
}

// A client that leaves before its answer leaves nothing behind.
func TestPullGivenUp(t *testing.T) {
	s := start(t, gatewaytest.Setup{Policies: gatewaytest.OnePartition})
	s.Pull(t, fromStart).Wants(t, "")
	ctx, giveUp := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	asking.Go(func() {
		req, err := http.NewRequestWithContext(ctx, "POST", "http://"+s.Addr+gatewaytest.GroupPath("pull"),
			strings.NewReader(`{"wait_ms":60000}`))
		if err != nil {
			t.Error(err)
			return
		}
		if res, err := gatewaytest.Transport(t).RoundTrip(req); err == nil {
			t.Errorf("answered: %s", res.Status)
			res.Body.Close()
		}
	})
	gatewaytest.Eventually(t, "somebody waits", func() bool { return s.waiting() == 1 })
	giveUp()
	asking.Wait()
	// Until the sidecar hears that the connection has ended, it answers into it.
	gatewaytest.Eventually(t, "nobody waits", func() bool { return s.waiting() == 0 })
	s.Publish(t, "t", "a", "")
	s.Pull(t, `{}`).Wants(t, "a/1")
}

// brokenWriter is a connection that breaks while it is answered.
type brokenWriter struct{ header http.Header }

func (w brokenWriter) Header() http.Header       { return w.header }
func (w brokenWriter) WriteHeader(int)           {}
func (w brokenWriter) Write([]byte) (int, error) { return 0, net.ErrClosed }

func TestPullThatCannotBeWritten(t *testing.T) {
	s := start(t, gatewaytest.Setup{Policies: gatewaytest.OnePartition})
	s.Publish(t, "t", "a", "")
	r := httptest.NewRequestWithContext(t.Context(), "POST", gatewaytest.GroupPath("pull"), strings.NewReader(fromStart))
	s.Gateway.Handler().ServeHTTP(brokenWriter{http.Header{}}, r)
	s.Pull(t, fromStart).Wants(t, "a/1")
}

// onWrite is a response that does something when it is written.
type onWrite struct {
	*httptest.ResponseRecorder
	do func()
}

func (w onWrite) Write(text []byte) (int, error) {
	w.do()
	return w.ResponseRecorder.Write(text)
}

// A group is in use neither while its last pull is answered, nor once all that was pulled is settled.
func TestDeleteRightAfterAPull(t *testing.T) {
	s := start(t, gatewaytest.Setup{Policies: gatewaytest.OnePartition})
	s.Publish(t, "t", "a", "")
	s.Settle(t, "ack", s.Pull(t, fromStart).Wants(t, "a/1").Leases())
	answered := onWrite{httptest.NewRecorder(), func() { s.Want(t, 204, "", "DELETE", "/v1/topics/t/groups/g", "") }}
	r := httptest.NewRequestWithContext(t.Context(), "POST", gatewaytest.GroupPath("pull"), strings.NewReader(`{"wait_ms":0}`))
	s.Gateway.Handler().ServeHTTP(answered, r)
	if answered.Code != 200 {
		t.Errorf("%d %s", answered.Code, answered.Body)
	}
	s.Settle(t, "ack", s.Pull(t, fromStart).Wants(t, "a/1").Leases()) // the group is made again
	s.Want(t, 204, "", "DELETE", "/v1/topics/t", "")
}

func TestPullBounds(t *testing.T) {
	s := start(t, gatewaytest.Setup{Policies: gatewaytest.OnePartition})
	for i := range 7 {
		s.Publish(t, "t", fmt.Sprint(i), "")
	}
	ls := s.Pull(t, `{"max":2,"wait_ms":0,"opts":{"from":"earliest","maxInflight":3}}`).Wants(t, "0/1 1/1").Leases()
	s.Pull(t, `{"max":2,"wait_ms":0,"opts":{"maxInflight":3}}`).Wants(t, "2/1")
	s.Pull(t, `{"max":2,"wait_ms":0,"opts":{"maxInflight":3}}`).Wants(t, "") // all in flight
	s.Settle(t, "ack", ls)
	s.Pull(t, `{"wait_ms":0,"opts":{"maxInflight":3}}`).Wants(t, "3/1 4/1")
	// Other opts are another subscription of the group.
	s.Pull(t, `{"wait_ms":0,"opts":{"maxInflight":1}}`).Wants(t, "5/1")
}

func TestPullKeepsKeysInOrder(t *testing.T) {
	s := start(t, gatewaytest.Setup{Policies: gatewaytest.OnePartition})
	for _, id := range []string{"a1", "b1", "a2", "b2"} {
		s.Publish(t, "t", id, id[:1])
	}
	p := s.Pull(t, fromStart).Wants(t, "a1/1 b1/1")
	s.Pull(t, `{"wait_ms":0}`).Wants(t, "")
	s.Settle(t, "ack", p.Leases()[1:])
	s.Pull(t, `{"wait_ms":0}`).Wants(t, "b2/1")
	s.Settle(t, "ack", p.Leases()[:1])
	s.Pull(t, `{"wait_ms":0}`).Wants(t, "a2/1")
}

func TestPullWithFilters(t *testing.T) {
	s := start(t, gatewaytest.Setup{Policies: gatewaytest.OnePartition})
	const of = `{"wait_ms":0,"opts":{"from":"earliest","filter":{"key":%q}}}`
	s.Pull(t, of, "a").Wants(t, "")
	s.Pull(t, of, "b").Wants(t, "")
	for _, id := range []string{"a1", "b1", "c1"} {
		s.Publish(t, "t", id, id[:1])
	}
	s.Pull(t, of, "b").Wants(t, "b1/1")
	s.Pull(t, of, "a").Wants(t, "a1/1")
}

func TestPullAutoAck(t *testing.T) {
	s := start(t, gatewaytest.Setup{Policies: gatewaytest.OnePartition})
	s.Publish(t, "t", "a", "")
	ls := s.Pull(t, `{"wait_ms":0,"opts":{"from":"earliest","autoAck":true}}`).Wants(t, "a/1").Leases()
	gatewaytest.Eventually(t, "it is acked", func() bool { return s.Settle(t, "modack", ls, `"extend_ms":1000`) == "stale_lease" })
	s.Pull(t, `{"wait_ms":0}`).Wants(t, "")
}

// Each TCP connection has a delivery bucket of its own; a delivery without a token waits.
func TestPullRate(t *testing.T) {
	s := start(t, gatewaytest.Setup{Policies: `[{"name":"*","partitions":1,"delivery":{"rate":2}},` +
		`{"name":"slow","partitions":1,"delivery":{"rate":0.001}}]`})
	for i := range 5 {
		s.Publish(t, "t", fmt.Sprint(i), "")
	}
	s.Publish(t, "slow", "s0", "")
	s.Publish(t, "slow", "s1", "")
	s.Pull(t, fromStart).Wants(t, "0/1 1/1")
	t.Run("other", func(t *testing.T) { s.Pull(t, `{"wait_ms":0}`).Wants(t, "2/1 3/1") })
	s.Pull(t, `{}`).Wants(t, "4/1") // once there is a token
	const slow = "/v1/topics/slow/groups/g/pull"
	if _, body := s.Do(t, "POST", slow, fromStart); strings.Count(body, `"lease"`) != 1 {
		t.Errorf("slow: %s", body)
	}
	if _, body := s.Do(t, "POST", slow, `{"wait_ms":20}`); body != `{"events":[]}` {
		t.Errorf("slow: %s", body)
	}
}

func TestUnusedTokensGoBack(t *testing.T) {
	s := start(t, gatewaytest.Setup{Policies: `[{"name":"*","partitions":1,"delivery":{"rate":0.001}},` +
		`{"name":"t","partitions":1,"delivery":{"rate":0.001}}]`})
	s.Pull(t, fromStart).Wants(t, "")
	s.Pull(t, fromStart).Wants(t, "")
	s.Publish(t, "t", "a", "")
	s.Pull(t, fromStart).Wants(t, "a/1")
}

func TestPullerRetires(t *testing.T) {
	bounds := session.DefaultBounds()
	bounds.PullerIdle = 30 * time.Millisecond
	s := start(t, gatewaytest.Setup{Policies: gatewaytest.OnePartition, Bounds: &bounds})
	s.Publish(t, "t", "a", "")
	ls := s.Pull(t, fromStart).Wants(t, "a/1").Leases()
	if n := s.Gateway.Consumers.Retire(); n != 1 { // as its timer does: events in flight keep it
		t.Errorf("%d pullers", n)
	}
	if got := s.Settle(t, "ack", ls); got != "ok" {
		t.Errorf("ack: %s", got)
	}
	gatewaytest.Eventually(t, "the puller is gone", func() bool { return s.Gateway.Stats().Subscriptions == 0 })
	if _, body := s.Do(t, "GET", "/v1/topics/t/groups/g", ""); !strings.Contains(body, `"members":[]`) || !strings.Contains(body, `"lag":0`) {
		t.Errorf("the group: %s", body)
	}
	s.Publish(t, "t", "b", "")
	s.Pull(t, `{}`).Wants(t, "b/1")
}

func TestPullsAreBounded(t *testing.T) {
	places := budget.DefaultPlaces()
	places[budget.Pullers] = 1
	all := budget.New(budget.Bounds{Memory: 1 << 30, Places: places})
	s := start(t, gatewaytest.Setup{Policies: gatewaytest.OnePartition, Budget: all})
	s.Publish(t, "t", "a", "")
	s.Publish(t, "t", "b", "")
	ls := s.Pull(t, `{"wait_ms":0,"max":1,"opts":{"from":"earliest"}}`).Wants(t, "a/1").Leases()
	res, body := s.Do(t, "POST", gatewaytest.GroupPath("pull"), `{"opts":{"maxInflight":7}}`)
	if res.StatusCode != 503 || !strings.Contains(body, `"overloaded"`) || res.Header.Get("Retry-After") == "" {
		t.Errorf("one more: %s %s", res.Status, body)
	}
	s.Settle(t, "ack", ls)
	s.Pull(t, `{"opts":{"maxInflight":7}}`).Wants(t, "b/1") // in place of the other, which is idle
}

func TestPullBadInput(t *testing.T) {
	s := start(t, gatewaytest.Setup{Policies: gatewaytest.OnePartition})
	s.Publish(t, "t", "a", "")
	lease := s.Pull(t, fromStart).Wants(t, "a/1").Leases()[0]
	other := s.Gateway.Consumers.LeaseText("t", "other", s.lease(t, lease))
	for _, c := range []struct {
		path, body string
		status     int
		says       string
	}{
		{gatewaytest.GroupPath("pull"), `{`, 400, "bad_json"},
		{gatewaytest.GroupPath("pull"), "\xff", 400, "bad_json"},
		{gatewaytest.GroupPath("pull"), `[]`, 400, "JSON object"},
		{gatewaytest.GroupPath("pull"), `{"max":0}`, 400, "max must be a whole number from 1 to 1000"},
		{gatewaytest.GroupPath("pull"), `{"max":1001}`, 400, "max"},
		{gatewaytest.GroupPath("pull"), `{"max":"1"}`, 400, "max"},
		{gatewaytest.GroupPath("pull"), `{"wait_ms":-1}`, 400, "wait_ms must be a whole number from 0 to 60000"},
		{gatewaytest.GroupPath("pull"), `{"opts":1}`, 400, "opts must be an object"},
		{gatewaytest.GroupPath("pull"), `{"opts":{"maxInflight":0}}`, 400, "maxInflight"},
		{gatewaytest.GroupPath("pull"), `{"opts":{"from":"middle"}}`, 400, "from"},
		{"/v1/topics/t/groups/new/pull", `{"opts":{"from":"afterId","afterId":"none"}}`, 404, "afterId"},
		{"/v1/topics/a$b/groups/g/pull", ``, 400, "topic"},
		{"/v1/topics/t/groups/a%20b/pull", ``, 400, "group"},
		{gatewaytest.GroupPath("pull"), strings.Repeat(" ", consume.MaxPullBody+1), 413, "payload_too_large"},
		{gatewaytest.GroupPath("ack"), ``, 400, "leases is missing"},
		{gatewaytest.GroupPath("ack"), `{"leases":[]}`, 400, "leases is missing"},
		{gatewaytest.GroupPath("ack"), `{"leases":"x"}`, 400, "leases must be an array of strings"},
		{gatewaytest.GroupPath("ack"), `{"leases":["` + lease + `","nonsense"]}`, 400, "leases[1]"},
		{gatewaytest.GroupPath("ack"), `{"leases":["` + string(other) + `"]}`, 400, "leases[0]"},
		{gatewaytest.GroupPath("ack"), `{"leases":["` + lease[1:] + `"]}`, 400, "leases[0]"},
		{gatewaytest.GroupPath("nack"), `{"leases":["x"],"delay_ms":-1}`, 400, "delay_ms"},
		{gatewaytest.GroupPath("nack"), `{"leases":["x"],"reason":1}`, 400, "reason"},
		{gatewaytest.GroupPath("modack"), `{"leases":["x"]}`, 400, "extend_ms is missing"},
		{gatewaytest.GroupPath("modack"), `{"leases":["x"],"extend_ms":1e9}`, 400, "extend_ms"},
		{"/v1/topics/t/groups/other/ack", `{"leases":["` + lease + `"]}`, 400, "leases[0]"},
	} {
		res, body := s.Do(t, "POST", c.path, c.body)
		if res.StatusCode != c.status || !strings.Contains(body, c.says) || res.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s %.60s: %s %s", c.path, c.body, res.Status, body)
		}
	}
	if res, body := s.Do(t, "GET", gatewaytest.GroupPath("pull"), ""); res.StatusCode != 405 || res.Header.Get("Allow") != "POST" {
		t.Errorf("GET: %s %s", res.Status, body)
	}
	if got := s.Settle(t, "ack", []string{lease}); got != "ok" { // no refusal above has settled it
		t.Errorf("ack: %s", got)
	}
}

func TestLeasesOfOtherSidecars(t *testing.T) {
	s := start(t, gatewaytest.Setup{Policies: gatewaytest.OnePartition})
	s.Publish(t, "t", "a", "")
	lease := s.Pull(t, fromStart).Leases()[0]
	for node, says := range map[string]string{"node": "started again", "far": `\"far\"`} {
		token := consume.LeaseOf(node, "t", "g", s.lease(t, lease))
		_, body := s.Do(t, "POST", gatewaytest.GroupPath("ack"), `{"leases":["`+string(token)+`"]}`)
		if !strings.Contains(body, `"code":"stale_lease"`) || !strings.Contains(body, says) {
			t.Errorf("of %s: %s", node, body)
		}
	}
}

func TestPullNeedsRights(t *testing.T) {
	s := start(t, gatewaytest.Setup{Access: gatewaytest.AuthOf(t, "tokens:\n"+gatewaytest.Entry("app", gatewaytest.Rights)).Access})
	for path, want := range map[string]int{
		"/v1/topics/orders/groups/billing/": 200, "/v1/topics/orders/groups/audit/": 403, "/v1/topics/payments/groups/billing/": 403,
	} {
		for _, verb := range []string{"pull", "ack", "nack", "modack"} {
			topic, name, _ := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(path, "/v1/topics/"), "/"), "/groups/")
			lease := consume.LeaseOf("far", topic, name, group.Lease{})
			more := map[string]string{"pull": `"wait_ms":0`, "modack": `"extend_ms":1`}[verb]
			body := `{` + more + `}`
			if verb != "pull" {
				body = strings.TrimSuffix(fmt.Sprintf(`{"leases":[%q],%s`, lease, more), ",") + `}`
			}
			if res, text := s.Do(t, "POST", path+verb, body, "Authorization: Bearer app"); res.StatusCode != want {
				t.Errorf("%s%s: %s %s", path, verb, res.Status, text)
			}
			// The answer to a caller without the right to the group does not say whether the
			// request is wrong.
			if res, text := s.Do(t, "POST", path+verb, `{"leases":["none"],"what":1}`, "Authorization: Bearer app"); want == 403 &&
				res.StatusCode != 403 {
				t.Errorf("%s%s with no lease: %s %s", path, verb, res.Status, text)
			}
			if res, text := s.Do(t, "POST", path+verb, body); res.StatusCode != 401 {
				t.Errorf("%s%s without a token: %s %s", path, verb, res.Status, text)
			}
		}
	}
}

func TestShutdownGivesPulledBack(t *testing.T) {
	s := start(t, gatewaytest.Setup{Policies: gatewaytest.OnePartition})
	s.Publish(t, "t", "a", "")
	s.Pull(t, fromStart).Wants(t, "a/1")
	answer := make(chan int)
	go func() {
		res, err := http.Post("http://"+s.Addr+gatewaytest.GroupPath("pull"), "", strings.NewReader(`{"wait_ms":60000}`))
		if err != nil {
			t.Error(err)
			answer <- 0
			return
		}
		res.Body.Close()
		answer <- res.StatusCode
	}()
	gatewaytest.Eventually(t, "somebody waits", func() bool { return s.waiting() == 1 })
	s.Stop()
	if status := <-answer; status != 503 {
		t.Errorf("the pull that waited: %d", status)
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	info, err := s.Groups.Info(t.Context(), "t", "g")
	if err != nil || info.Inflight != 0 || info.Lag != 1 || len(info.Members) != 0 {
		t.Errorf("%+v, %v", info, err)
	}
	for _, verb := range []string{"pull", "ack"} {
		if res, body := s.Do(t, "POST", gatewaytest.GroupPath(verb), ""); res.StatusCode != 503 {
			t.Errorf("%s: %s %s", verb, res.Status, body)
		}
	}
}

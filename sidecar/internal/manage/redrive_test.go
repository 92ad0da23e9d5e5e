package manage_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/gateway/gatewaytest"
	"github.com/sluice-bus/sluice/test/require"
)

type deadList struct {
	Total int
	Dead  []deadInfo `json:"dead_letters"`
	Next  string
}

type deadInfo struct {
	DLQ      string `json:"dlq_id"`
	ID       string
	Group    string
	Reason   string
	Attempts int
	DiedAt   int64 `json:"died_at"`
	State    string
	Event    gatewaytest.Event
}

const dlqPath = "/v1/topics/t/dlq"

func (s *sidecar) dead(t testing.TB, query string) (l deadList) {
	t.Helper()
	res, body := s.Do(t, "GET", dlqPath+query, "")
	if err := json.Unmarshal([]byte(body), &l); err != nil || res.StatusCode != http.StatusOK || l.Dead == nil {
		t.Fatalf("list: %s %s", res.Status, body)
	}
	return l
}

// shows is the list as "id/attempts/state …", by id: letters of one millisecond are in any order.
func (l deadList) shows() string {
	var out []string
	for _, d := range l.Dead {
		out = append(out, fmt.Sprint(d.ID, "/", d.Attempts, "/", d.State))
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// change redrives or discards, and returns the last line.
func (s *sidecar) change(t testing.TB, verb, body string) string {
	t.Helper()
	res, answer := s.Do(t, "POST", dlqPath+"/"+verb, body)
	lines := strings.Split(strings.TrimSpace(answer), "\n")
	if res.StatusCode != http.StatusOK || res.Header.Get("Content-Type") != "application/x-ndjson" {
		t.Fatalf("%s: %s %s", verb, res.Status, answer)
	}
	return lines[len(lines)-1]
}

// kill makes dead letters of events 0 to n-1 of the group.
func (s *sidecar) kill(t testing.TB, group string, n int, reason string) {
	t.Helper()
	path := "/v1/topics/t/groups/" + group + "/"
	for left := n; left > 0; {
		_, body := s.Do(t, "POST", path+"pull", `{"max":1000,"wait_ms":5000,"opts":{"from":"earliest"}}`)
		var p gatewaytest.Pulled
		if err := json.Unmarshal([]byte(body), &p); err != nil || len(p.Events) == 0 {
			t.Fatalf("pull: %s", body)
		}
		left -= len(p.Events)
		list, _ := json.Marshal(p.Leases())
		if res, body := s.Do(t, "POST", path+"nack",
			fmt.Sprintf(`{"leases":%s,"dead_letter":true,"reason":%q}`, list, reason)); res.StatusCode != 200 || strings.Contains(body, "code") {
			t.Fatalf("nack: %s", body)
		}
	}
}

func (s *sidecar) publishKeyed(t testing.TB, n int) {
	t.Helper()
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `{"payload":{"n":%d},"opts":{"id":"e%d","key":"k%d","headers":{"h":"v"}}}`+"\n", i, i, i%3)
	}
	if res, body := s.Do(t, "POST", "/v1/topics/t/events", b.String(), "Content-Type: application/x-ndjson"); res.StatusCode != 200 ||
		strings.Contains(body, "code") {
		t.Fatalf("publish: %s", body)
	}
}

func TestDeadLettersAndTheWayBack(t *testing.T) {
	s := start(t, gatewaytest.Setup{Policies: gatewaytest.OnePartition})
	if l := s.dead(t, ""); l.Total != 0 || len(l.Dead) != 0 {
		t.Errorf("before anything died: %+v", l)
	}
	s.publishKeyed(t, 3)
	s.kill(t, "g", 3, "poison")
	s.kill(t, "other", 3, "tired")
	if l := s.dead(t, "?group=g&order=asc"); l.Total != 3 || l.shows() != "e0/1/dead e1/1/dead e2/1/dead" {
		t.Errorf("list: %+v", l)
	}
	up, down := s.dead(t, "?order=asc").Dead, s.dead(t, "").Dead
	slices.Reverse(down)
	if a, b := fmt.Sprint(up), fmt.Sprint(down); a != b {
		t.Errorf("where no order is said the latest come first: backwards they are %s; want %s", b, a)
	}
	if l := s.dead(t, "?reason=tired"); l.Total != 3 || l.Dead[0].Group != "other" {
		t.Errorf("by reason: %+v", l)
	}
	all, cursor := map[string]bool{}, ""
	for range 3 {
		l := s.dead(t, "?limit=2"+cursor)
		if l.Total != 6 || len(l.Dead) != 2 {
			t.Errorf("page: %+v", l)
		}
		for _, d := range l.Dead {
			all[d.DLQ] = true
		}
		cursor = "&cursor=" + l.Next
		if (l.Next == "") != (len(all) == 6) {
			t.Errorf("next %q after %d", l.Next, len(all))
		}
	}
	if len(all) != 6 {
		t.Errorf("pages show %d dead letters", len(all))
	}

	list := s.dead(t, "?group=g&order=asc").Dead
	first := list[slices.IndexFunc(list, func(d deadInfo) bool { return d.ID == "e0" })]
	if first.Event.ID != "e0" || first.Event.Key != "k0" || first.Event.Seq != 1 || first.Event.Topic != "t" || first.DiedAt == 0 {
		t.Errorf("the dead letter has the event %+v", first.Event)
	}
	if got := s.change(t, "redrive", fmt.Sprintf(`{"dlq_ids":[%q]}`, first.DLQ)); got != `{"done":1,"of":1,"ok":true}` {
		t.Errorf("redrive: %s", got)
	}
	if l := s.dead(t, "?group=g&order=asc"); l.shows() != "e0/1/redriven e1/1/dead e2/1/dead" {
		t.Errorf("after the redrive: %s", l.shows())
	}
	if got := s.change(t, "redrive", fmt.Sprintf(`{"dlq_ids":[%q]}`, first.DLQ)); got != `{"done":0,"of":0,"ok":true}` {
		t.Errorf("the same again: %s", got)
	}
	p := s.Pull(t, `{"wait_ms":5000}`).Wants(t, "e0/1")
	if e := p.Events[0].Event; e.Seq != 1 || e.Key != "k0" || e.Headers["sluice-redriven"] != first.DLQ || e.Headers["h"] != "v" ||
		e.Headers["sluice-dlq-id"] != "" {
		t.Errorf("redriven as %+v", e)
	}
	if got := s.Settle(t, "nack", p.Leases(), `"dead_letter":true`, `"reason":"still"`); got != "ok" {
		t.Error(got)
	}
	l := s.dead(t, "?group=g&order=asc&reason=still")
	if l.Total != 1 || l.Dead[0].DLQ != first.DLQ || l.Dead[0].State != "dead" {
		t.Errorf("dead again: %+v; want %s", l, first.DLQ)
	}
	if got := s.change(t, "redrive", `{"group":"g","rate":1000}`); got != `{"done":3,"of":3,"ok":true}` {
		t.Errorf("redrive of the group: %s", got)
	}
	for range 3 { // one key each, in any order
		p := s.Pull(t, `{"max":1,"wait_ms":5000}`)
		if got := s.Settle(t, "ack", p.Leases()); got != "ok" {
			t.Error(got)
		}
	}
	if l := s.dead(t, ""); l.Total != 3 || l.Dead[0].Group != "other" {
		t.Errorf("after all were acked: %+v", l)
	}
	if got := s.Pull(t, `{"wait_ms":0}`).Names(); got != "" {
		t.Errorf("there is more: %s", got)
	}
	if got := s.change(t, "discard", `{"group":"other","reason":"tired","before":4000000000000}`); got != `{"done":3,"of":3,"ok":true}` {
		t.Errorf("discard: %s", got)
	}
	if l := s.dead(t, ""); l.Total != 0 {
		t.Errorf("after the discard: %+v", l)
	}
}

// TestDeadLettersOfAPageAreBounded: a page ends at a size, and next continues.
func TestDeadLettersOfAPageAreBounded(t *testing.T) {
	s := start(t, gatewaytest.Setup{Policies: gatewaytest.OnePartition})
	const n, size = 12, 1000 << 10
	for i := range n {
		event := fmt.Sprintf(`{"payload":%q,"opts":{"id":"e%d"}}`+"\n", strings.Repeat("x", size), i)
		if res, body := s.Do(t, "POST", "/v1/topics/t/events", event, "Content-Type: application/x-ndjson"); res.StatusCode != 200 ||
			strings.Contains(body, "code") {
			t.Fatalf("publish: %s", body)
		}
	}
	s.kill(t, "g", n, "large")
	for _, order := range []string{"asc", "desc"} {
		seen, query := map[string]bool{}, "?limit=1000&order="+order
		for next := "-"; next != ""; {
			l := s.dead(t, query)
			if l.Total != n || len(l.Dead) == 0 || len(l.Dead)*size > (4<<20)+size {
				t.Fatalf("a page of %d, of %d in all", len(l.Dead), l.Total)
			}
			for _, d := range l.Dead {
				seen[d.DLQ] = true
			}
			next = l.Next
			query = "?limit=1000&cursor=" + next
		}
		if len(seen) != n {
			t.Errorf("the pages have %d dead letters; want %d", len(seen), n)
		}
	}
}

// A redrive that its client gives up stops. Finished letters stay finished, and the same call again
// does the rest.
func TestRedriveStopsWithItsClient(t *testing.T) {
	s := start(t, gatewaytest.Setup{Policies: gatewaytest.OnePartition})
	s.publishKeyed(t, 40)
	s.kill(t, "g", 40, "poison")
	req, _ := http.NewRequest("POST", "http://"+s.Addr+dlqPath+"/redrive", strings.NewReader(`{"group":"g","rate":10}`))
	began := time.Now()
	res, err := gatewaytest.Transport(t).RoundTrip(req)
	require.NoError(t, err)
	line := make([]byte, 100)
	if n, err := res.Body.Read(line); err != nil || !strings.HasPrefix(string(line[:n]), `{"done":0,"of":40}`) {
		t.Errorf("first %q, %v", line[:n], err)
	}
	res.Body.Close()
	count := func() (n int) {
		for _, d := range s.dead(t, "").Dead {
			if d.State == "redriven" {
				n++
			}
		}
		return n
	}
	if most := int(time.Since(began).Seconds()*10) + 2; count() > most {
		t.Errorf("%d are redriven; at most %d may be", count(), most)
	}
	if got := s.change(t, "redrive", `{"group":"g","rate":100000}`); !strings.Contains(got, `"ok":true`) {
		t.Errorf("redrive: %s", got)
	}
	if n := count(); n != 40 {
		t.Errorf("%d are redriven", n)
	}
}

func TestDeadLetterRights(t *testing.T) {
	s := start(t, gatewaytest.Setup{Policies: gatewaytest.OnePartition,
		Access: gatewaytest.AuthOf(t, "tokens:\n"+gatewaytest.Entry("g", `subscribe: ["t"], groups: ["g"]`)+
			gatewaytest.Entry("all", `publish: ["*"], subscribe: ["*"]`)+gatewaytest.Entry("admin", `admin: ["t"]`)+gatewaytest.Entry("else",
			`subscribe: ["u"], admin: ["u"]`)).Access})
	as := func(token string) string { return "Authorization: Bearer " + token }
	s.Do(t, "POST", "/v1/topics/t/events", "1", as("all"))
	letters := map[string]string{}
	for _, group := range []string{"g", "h"} {
		path := "/v1/topics/t/groups/" + group + "/"
		_, body := s.Do(t, "POST", path+"pull", `{"opts":{"from":"earliest"}}`, as("all"))
		var p gatewaytest.Pulled
		_ = json.Unmarshal([]byte(body), &p)
		s.Do(t, "POST", path+"nack", fmt.Sprintf(`{"leases":[%q],"dead_letter":true}`, p.Leases()[0]), as("all"))
	}
	_, body := s.Do(t, "GET", dlqPath, "", as("all"))
	var l deadList
	if _ = json.Unmarshal([]byte(body), &l); l.Total != 2 {
		t.Fatalf("list: %s", body)
	}
	for _, d := range l.Dead {
		letters[d.Group] = d.DLQ
	}
	if _, body := s.Do(t, "GET", dlqPath, "", as("g")); !strings.Contains(body, `"total":1`) || strings.Contains(body, letters["h"]) {
		t.Errorf("g sees %s", body)
	}
	for _, c := range []struct {
		token, verb, body string
		want              int
	}{
		{"else", "", "", 403}, {"admin", "", "", 403}, {"no", "", "", 401},
		{"g", "redrive", `{"group":"h"}`, 403},
		{"g", "redrive", `{"dlq_ids":["` + letters["h"] + `"]}`, 403},
		{"else", "redrive", `{"group":"g"}`, 403},
		{"admin", "redrive", `{"group":"g"}`, 403},
		{"all", "discard", `{"group":"g"}`, 403},
		{"else", "discard", `{"group":"g"}`, 403},
		{"g", "redrive", `{"group":"g"}`, 200},
		{"admin", "discard", `{"group":"h"}`, 200},
	} {
		method, path := "POST", dlqPath+"/"+c.verb
		if c.verb == "" {
			method, path = "GET", dlqPath
		}
		if res, body := s.Do(t, method, path, c.body, as(c.token)); res.StatusCode != c.want {
			t.Errorf("%s may %s %s: %s %s; want %d", c.token, c.verb, c.body, res.Status, body, c.want)
		}
	}
}

func TestBadDeadLetterRequests(t *testing.T) {
	s := start(t, gatewaytest.Setup{})
	id := "dlq-" + strings.Repeat("0", 32)
	for _, c := range []struct{ method, path, body, code, says string }{
		{"GET", "?limit=0", "", "bad_request", "limit"},
		{"GET", "?order=up", "", "bad_request", "order"},
		{"GET", "?cursor=x", "", "bad_request", "cursor"},
		{"GET", "?group=a&group=b", "", "bad_request", "group"},
		{"POST", "/redrive", "{", "bad_json", ""},
		{"POST", "/redrive", "[]", "bad_request", "object"},
		{"POST", "/redrive", "{}", "bad_request", "dlq_ids or group"},
		{"POST", "/redrive", `{"group":1}`, "bad_request", "group must be a string"},
		{"POST", "/redrive", `{"group":"g","dlq_ids":["` + id + `"]}`, "bad_request", "one of them"},
		{"POST", "/redrive", `{"dlq_ids":[]}`, "bad_request", "1 to 10000"},
		{"POST", "/redrive", `{"dlq_ids":["x"]}`, "bad_request", "dlq_ids[0]"},
		{"POST", "/redrive", `{"group":"g","rate":0}`, "bad_request", "rate"},
		{"POST", "/redrive", `{"group":"g","before":-1}`, "bad_request", "before"},
		{"POST", "/discard", `{"group":""}`, "bad_request", "group"},
	} {
		if res, body := s.Do(t, c.method, dlqPath+c.path, c.body); res.StatusCode != 400 || !strings.Contains(body, `"code":"`+c.code+`"`) ||
			!strings.Contains(body, c.says) {
			t.Errorf("%s %s %s: %s %s", c.method, c.path, c.body, res.Status, body)
		}
	}
	if got := s.change(t, "redrive", `{"dlq_ids":["`+id+`"]}`); got != `{"done":0,"of":0,"ok":true}` {
		t.Errorf("of one that is gone: %s", got)
	}
}

// Redrives, discards and erasures end when their senders lose the right to them, and say so.
func TestRedriveEndsWithItsRight(t *testing.T) {
	as := "Authorization: Bearer all"
	for _, c := range []struct{ method, path, body string }{
		{"POST", dlqPath + "/redrive", `{"group":"g","rate":0.01}`},
		{"POST", dlqPath + "/discard", `{"group":"g","rate":0.01}`},
		{"DELETE", "/v1/topics/t/events?key=k", ""},
	} {
		auth := gatewaytest.AuthOf(t, "tokens:\n"+gatewaytest.Entry("all", `publish: ["*"], subscribe: ["*"], admin: ["*"]`))
		auth.Follow(t)
		s := start(t, gatewaytest.Setup{Policies: gatewaytest.OnePartition, Access: auth.Access})
		for range 2 {
			s.Do(t, "POST", "/v1/topics/t/events", "1", as)
		}
		s.Do(t, "POST", "/v1/topics/t/events", "1", as, "Sluice-Key: k")
		_, body := s.Do(t, "POST", "/v1/topics/t/groups/g/pull", `{"opts":{"from":"earliest"}}`, as)
		var p gatewaytest.Pulled
		_ = json.Unmarshal([]byte(body), &p)
		for _, lease := range p.Leases() {
			s.Do(t, "POST", "/v1/topics/t/groups/g/nack", fmt.Sprintf(`{"leases":[%q],"dead_letter":true}`, lease), as)
		}
		s.Log.Hold() // an erasure has no pace of its own
		time.AfterFunc(100*time.Millisecond, func() {
			auth.Write(t, "tokens:\n"+gatewaytest.Entry("all", `publish: ["*"], subscribe: ["u"]`))
		})
		_, body = s.Do(t, c.method, c.path, c.body, as)
		if lines := strings.Split(strings.TrimSpace(body), "\n"); !strings.Contains(lines[len(lines)-1], `"code":"forbidden"`) {
			t.Errorf("%s %s: %s", c.method, c.path, body)
		}
	}
}

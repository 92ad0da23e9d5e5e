package contract

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/test/testkit"
)

// in is a time that is so far from now, in milliseconds since the epoch.
func in(d time.Duration) string { return strconv.FormatInt(time.Now().Add(d).UnixMilli(), 10) }

// scheduled is the list of a topic's scheduled events.
func (s *server) scheduled(t testing.TB, topic, query string) object {
	t.Helper()
	a := testkit.Call(t, "GET", s.URL()+"/v1/topics/"+topic+"/scheduled"+query, "")
	if a.Status != 200 {
		t.Fatalf("scheduled events of %s: %d %s", topic, a.Status, a.Body)
	}
	return a.JSON(t)
}

func (s *server) cancel(t testing.TB, topic, id string) int {
	t.Helper()
	return testkit.Call(t, "DELETE", s.URL()+"/v1/topics/"+topic+"/scheduled/"+id, "").Status
}

// "202 OK {id, deliver_at, durability}: kept, and put into the log when it is due by the sidecars'
// clocks (ts = then), never before; past: at once"
func TestScheduledDelivery(t *testing.T) {
	t.Parallel()
	s := shared(t)
	const topic = "one.later"
	k := s.dial(t)
	k.ok(`{"op":"SUBSCRIBE","topic":%q,"group":"g"}`, topic)
	due := in(1500 * time.Millisecond)
	a := s.post(t, topic, `{"n":1}`, "Sluice-Id: a", "Sluice-Key: k", "Sluice-Deliver-At: "+due)
	want := testkit.Members{"id": "a", "deliver_at": due, "durability": "store", "seq": "", "partition": "", "ts": ""}
	if a.Status != 202 || !a.JSON(t).Has(want) {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	if a := s.post(t, topic, `{"n":1}`, "Sluice-Id: a", "Sluice-Key: k", "Sluice-Delay-Ms: 1500"); a.Status != 200 ||
		a.JSON(t)["duplicate"] != true || a.JSON(t).Text("deliver_at") != due {
		t.Errorf("the same again: %d %s", a.Status, a.Body)
	}
	if a := s.post(t, topic, `{"n":2}`, "Sluice-Id: a", "Sluice-Key: k"); a.Status != 409 || a.JSON(t).Text("code") != "conflict" {
		t.Errorf("its id with another payload: %d %s", a.Status, a.Body)
	}
	later := k.ok(`{"op":"PUBLISH","topic":%q,"payload":2,"opts":{"id":"b","delay_ms":2500}}`, topic)
	if later.Text("id") != "b" || later.Text("deliver_at") == "" || later["seq"] != nil {
		t.Errorf("%v", later)
	}
	if list := s.scheduled(t, topic, ""); list.Text("total") != "2" || fmt.Sprint(ids(list.List("scheduled"))) != "[a b]" ||
		list.List("scheduled")[0].Text("deliver_at") != due || list.List("scheduled")[0].Text("key") != "k" {
		t.Errorf("%v", list)
	}
	past := s.post(t, topic, `3`, "Sluice-Id: c", "Sluice-Deliver-At: "+in(-time.Hour))
	if past.Status != 202 || past.JSON(t).Text("id") != "c" {
		t.Errorf("past: %d %s", past.Status, past.Body)
	}
	for i, want := range []string{"c", "a", "b"} {
		e := k.event()
		came := time.Now().UnixMilli()
		event := object(e["event"].(map[string]any))
		if event.Text("id") != want {
			t.Fatalf("event %d is %v; want %s", i, event, want)
		}
		if want == "a" {
			at, _ := strconv.ParseInt(due, 10, 64)
			if ts := event.Number(t, "ts"); ts < at || came < at || event.Text("key") != "k" {
				t.Errorf("due at %s: %v", due, event)
			}
		}
		k.ack(topic, "g", want)
	}
	if list := s.scheduled(t, topic, ""); list.Text("total") != "0" || len(list.List("scheduled")) != 0 {
		t.Errorf("%v", list)
	}
	if status := s.cancel(t, topic, "a"); status != 404 {
		t.Errorf("cancelling what is in the log: %d", status)
	}
	if a := s.post(t, topic, `{"n":1}`, "Sluice-Id: a", "Sluice-Key: k", "Sluice-Delay-Ms: 60000"); a.Status != 200 ||
		a.JSON(t)["duplicate"] != true || a.JSON(t).Text("seq") == "" {
		t.Errorf("the same again once it is in the log: %d %s", a.Status, a.Body)
	}
}

// "the id is taken at once and free again once cancelled"
func TestCancelScheduled(t *testing.T) {
	t.Parallel()
	s := shared(t)
	const topic = "cancelled"
	if status := s.cancel(t, topic, "a"); status != 404 {
		t.Errorf("in a topic that is not there: %d", status)
	}
	hour := "Sluice-Delay-Ms: 3600000"
	for i := range 5 {
		s.post(t, topic, "1", fmt.Sprint("Sluice-Id: e", i), fmt.Sprint("Sluice-Deliver-At: ", in(time.Duration(5-i)*time.Hour)))
	}
	first := s.scheduled(t, topic, "?limit=3")
	second := s.scheduled(t, topic, "?limit=3&cursor="+first.Text("next"))
	if got := append(ids(first.List("scheduled")), ids(second.List("scheduled"))...); fmt.Sprint(got) != "[e4 e3 e2 e1 e0]" ||
		second["next"] != nil || first.Text("total") != "5" {
		t.Errorf("%v, then %v", first, second)
	}
	if status := s.cancel(t, topic, "e2"); status != 204 {
		t.Errorf("cancelling: %d", status)
	}
	if status := s.cancel(t, topic, "e2"); status != 404 {
		t.Errorf("cancelling again: %d", status)
	}
	if a := s.post(t, topic, `"other"`, "Sluice-Id: e2"); a.Status != 201 {
		t.Errorf("the id is not free: %d %s", a.Status, a.Body)
	}
	s.post(t, topic, "1", "Sluice-Id: keyed", "Sluice-Key: k", hour)
	if a := testkit.Call(t, "DELETE", s.URL()+"/v1/topics/"+topic+"/events?key=k", ""); a.Status != 200 {
		t.Errorf("erasing: %d %s", a.Status, a.Body)
	}
	if list := s.scheduled(t, topic, ""); list.Text("total") != "4" {
		t.Errorf("after erasing: %v", list)
	}
	if events := s.replay(t, "topic="+topic).List("events"); len(events) != 1 {
		t.Errorf("replayed %v", events)
	}
	if a := testkit.Call(t, "DELETE", s.URL()+"/v1/topics/"+topic, ""); a.Status != 204 {
		t.Errorf("deleting the topic: %d %s", a.Status, a.Body)
	}
	if list := s.scheduled(t, topic, ""); list.Text("total") != "0" {
		t.Errorf("after deleting the topic: %v", list)
	}
}

// "opts.ts beside it: bad_request"; "at most one year"
func TestBadSchedules(t *testing.T) {
	t.Parallel()
	s := shared(t)
	year := 365 * 24 * time.Hour
	for _, headers := range [][]string{
		{"Sluice-Deliver-At: soon"}, {"Sluice-Deliver-At: -1"}, {"Sluice-Deliver-At: 1.5"}, {"Sluice-Deliver-At: "},
		{"Sluice-Delay-Ms: -1"}, {"Sluice-Delay-Ms: x"}, {"Sluice-Delay-Ms: 5", "Sluice-Ts: 5"}, {"Sluice-Delay-Ms: 5", "Sluice-Deliver-At: 5"},
		{"Sluice-Deliver-At: " + in(year+time.Hour)}, {"Sluice-Delay-Ms: " + fmt.Sprint((year + time.Hour).Milliseconds())},
		{"ce-specversion: 1.0", "ce-id: x", "ce-source: s", "ce-type: t", "ce-deliverat: tomorrow"},
	} {
		a := s.post(t, "undue", "1", headers...)
		if a.Status != 400 || a.JSON(t).Text("code") != "bad_request" {
			t.Errorf("%q: %d %s", headers, a.Status, a.Body)
		}
		if most := fmt.Sprint(year.Milliseconds()); headers[0] == "Sluice-Delay-Ms: x" && !strings.Contains(string(a.Body), "0 to "+most+" is") {
			t.Errorf("%q does not say %s: %s", headers, most, a.Body)
		}
	}
	k := s.dial(t)
	for _, opts := range []string{`"deliver_at":"x"`, `"deliver_at":-1`, `"delay_ms":-1`, `"delay_ms":1,"deliver_at":1`, `"delay_ms":1,"ts":1`,
		`"delay_ms":1e99`,
		`"deliver_at":` + in(year+time.Hour)} {
		k.refused("bad_request", `{"op":"PUBLISH","topic":"undue","payload":1,"opts":{%s}}`, opts)
	}
	for _, query := range []string{"?limit=0", "?limit=1001", "?cursor=x"} {
		if a := testkit.Call(t, "GET", s.URL()+"/v1/topics/undue/scheduled"+query, ""); a.Status != 400 {
			t.Errorf("%s: %d %s", query, a.Status, a.Body)
		}
	}
	day := (24 * time.Hour).Milliseconds()
	lines := fmt.Sprintf("{\"payload\":1,\"opts\":{\"id\":\"l1\",\"delay_ms\":%d}}\n{\"payload\":1,\"opts\":{\"id\":\"l2\","+
		"\"delay_ms\":1,\"ts\":1}}\n{\"payload\":1,\"opts\":{\"id\":\"l3\"}}\n", day)
	results := s.post(t, "undue", lines, "Content-Type: application/x-ndjson").JSON(t).List("results")
	if len(results) != 3 || results[0].Text("deliver_at") == "" || results[1].Text("code") != "bad_request" || results[2].Text("seq") == "" {
		t.Errorf("%v", results)
	}
	ce := []string{"ce-specversion: 1.0", "ce-id: ce1", "ce-source: s", "ce-type: t", "ce-time: 2024-01-01T00:00:00Z",
		"ce-deliverat: " + time.Now().Add(time.Hour).UTC().Format(time.RFC3339)}
	if a := s.post(t, "undue", "1", ce...); a.Status != 202 || a.JSON(t).Text("deliver_at") == "" {
		t.Errorf("a CloudEvent: %d %s", a.Status, a.Body)
	}
	for i, metadata := range []string{"deliverAfter=1h30m", "deliverAt=" + time.Now().Add(time.Hour).UTC().Format(time.RFC3339)} {
		url := fmt.Sprintf("%s/v1.0/publish/any/undue?metadata.cloudevent.id=dapr%d&metadata.%s", s.URL(), i, metadata)
		if a := testkit.Call(t, "POST", url, "1"); a.Status != 204 {
			t.Errorf("Dapr, %s: %d %s", metadata, a.Status, a.Body)
		}
	}
	if list := s.scheduled(t, "undue", ""); list.Text("total") != "4" {
		t.Errorf("%v", list)
	}
}

// "a topic has at most --max-scheduled scheduled events: overloaded, reason scheduled"
func TestScheduledAreBounded(t *testing.T) {
	t.Parallel()
	const topic = "crowded"
	s := newHome(t).start(t, sharedPolicies, "--max-scheduled", "3")
	hour := "Sluice-Delay-Ms: 3600000"
	for i := range 3 {
		if a := s.post(t, topic, "1", fmt.Sprint("Sluice-Id: e", i), hour); a.Status != 202 {
			t.Fatalf("%d %s", a.Status, a.Body)
		}
	}
	for i := range 2 {
		a := s.post(t, topic, "1", fmt.Sprint("Sluice-Id: f", i), hour)
		if got := a.JSON(t); a.Status != 503 || got.Text("code") != "overloaded" || got.Text("reason") != "scheduled" ||
			got.Text("retry_after_ms") == "" {
			t.Errorf("one too many: %d %s", a.Status, a.Body)
		}
	}
	s.dial(t).refused("overloaded", `{"op":"PUBLISH","topic":%q,"payload":1,"opts":{"delay_ms":3600000}}`, topic)
	if a := s.post(t, topic, "1", "Sluice-Id: now"); a.Status != 201 {
		t.Errorf("one that goes into the log at once: %d %s", a.Status, a.Body)
	}
	if a := s.post(t, "uncrowded", "1", hour); a.Status != 202 {
		t.Errorf("in another topic: %d %s", a.Status, a.Body)
	}
}

// "scheduled events may hold retention.max_bytes beside the stored ones; one more is overloaded with
// reason scheduled; they push no stored event out"
func TestScheduledBytesAreBounded(t *testing.T) {
	t.Parallel()
	const topic = "heavy"
	s := newHome(t).start(t, "- {name: heavy, partitions: 1, retention: {max_bytes: 20000}}\n")
	body, hour := `"`+strings.Repeat("x", 4000)+`"`, "Sluice-Delay-Ms: 3600000"
	if a := s.post(t, topic, body, "Sluice-Id: stored"); a.Status != 201 {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	for i := range 4 {
		if a := s.post(t, topic, body, fmt.Sprint("Sluice-Id: e", i), hour); a.Status != 202 {
			t.Fatalf("%d: %d %s", i, a.Status, a.Body)
		}
	}
	if a := s.post(t, topic, body, "Sluice-Id: f", hour); a.Status != 503 || a.JSON(t).Text("reason") != "scheduled" {
		t.Errorf("one too many: %d %s", a.Status, a.Body)
	}
	if a := testkit.Call(t, "GET", s.URL()+"/v1/topics/heavy/events/stored", ""); a.Status != 200 {
		t.Errorf("the stored event: %d %s", a.Status, a.Body)
	}
}

// Scheduled events survive a kill: none is early, lost or twice, even if it is due while no sidecar
// runs.
func TestScheduledOverAKill(t *testing.T) {
	t.Parallel()
	const n, topic = 200, "one.killed"
	h := newHome(t)
	s := h.start(t, sharedPolicies, soon...)
	base := time.Now().Add(time.Second)
	due := map[string]int64{}
	for i := range n {
		id, at := fmt.Sprintf("e%03d", i), base.Add(time.Duration(i)*5*time.Millisecond).UnixMilli()
		due[id] = at
		if a := s.post(t, topic, "1", "Sluice-Id: "+id, fmt.Sprint("Sluice-Deliver-At: ", at)); a.Status != 202 {
			t.Fatalf("%d %s", a.Status, a.Body)
		}
	}
	for _, wait := range []time.Duration{300 * time.Millisecond, 100 * time.Millisecond} {
		time.Sleep(time.Until(base.Add(wait)))
		s.Kill()
		s = h.start(t, sharedPolicies, soon...)
	}
	testkit.Eventually(t, "all scheduled events are in the log", func() bool { return s.scheduled(t, topic, "").Text("total") == "0" })
	seen := map[string]bool{}
	for _, e := range s.replay(t, "topic="+topic+"&limit=1000").List("events") {
		id := e.Text("id")
		if seen[id] || e.Number(t, "ts") < due[id] {
			t.Errorf("%s, due at %d, is twice in the log or early: %v", id, due[id], e)
		}
		seen[id] = true
	}
	if len(seen) != n {
		t.Errorf("the log has %d of %d events", len(seen), n)
	}
}

package contract

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/test/testkit"
)

// metric is the value of one sample; labels are given as they are printed, in any order. NaN-free:
// -1 where there is none.
func (s *server) metric(t *testing.T, name string, labels ...string) float64 {
	t.Helper()
	for line := range strings.Lines(string(testkit.Call(t, "GET", s.OpsURL()+"/metrics", "").Body)) {
		series, value, _ := strings.Cut(strings.TrimSpace(line), "} ")
		if len(labels) == 0 {
			series, value, _ = strings.Cut(strings.TrimSpace(line), " ")
		}
		own, list, _ := strings.Cut(series, "{")
		if own != name {
			continue
		}
		fits := true
		for _, l := range labels {
			fits = fits && (strings.Contains(","+list+",", ","+l+",") || strings.HasSuffix(l, `="`) && strings.Contains(","+list, ","+l))
		}
		if v, err := strconv.ParseFloat(strings.Fields(value + " x")[0], 64); fits && err == nil {
			return v
		}
	}
	return -1
}

// Section 8's names, and the values of these metrics.
func TestMetrics(t *testing.T) {
	t.Parallel()
	s := own(t, `[{name: "*", publish: {rate: 0}, connection: {rate: 0}, partitions: 1}, {name: shut, paused: true}]`)
	k := s.dial(t)
	k.ok(`{"op":"SUBSCRIBE","topic":"m","group":"g","opts":{"maxAttempts":2}}`)
	for _, id := range []string{"a", "b", "c"} {
		s.put(t, "m", id, "1")
	}
	s.post(t, "m", "1", "Sluice-Id: a")
	s.post(t, "m", "2", "Sluice-Id: a")
	s.post(t, "m", "{")
	s.post(t, "shut", "1")
	k.events(3)
	k.ack("m", "g", "a")
	const nack = `{"op":"NACK","topic":"m","group":"g","id":"b","delay_ms":0}`
	k.ok(nack)
	k.event()
	k.ok(nack) // b becomes a dead letter
	const topic, group = `topic="m"`, `group="g"`
	for _, c := range []struct {
		name   string
		labels []string
		want   float64
	}{
		{"sluice_events_published_total", []string{topic}, 3},
		{"sluice_events_duplicate_total", []string{topic}, 1},
		{"sluice_events_rejected_total", []string{topic, `code="conflict"`}, 1},
		{"sluice_events_rejected_total", []string{topic, `code="bad_json"`}, 1},
		{"sluice_events_rejected_total", []string{`topic="shut"`, `code="topic_paused"`}, 1},
		{"sluice_events_delivered_total", []string{topic, group}, 4},
		{"sluice_events_acked_total", []string{topic, group}, 1},
		{"sluice_events_nacked_total", []string{topic, group}, 2},
		{"sluice_events_redelivered_total", []string{topic, group}, 1},
		{"sluice_events_dead_lettered_total", []string{topic, group}, 1},
		{"sluice_events_inflight", []string{topic, group}, 1},
		{"sluice_group_lag", []string{topic, group}, 1},
		{"sluice_publish_duration_seconds_count", []string{topic}, -2},
		{"sluice_delivery_latency_seconds_count", []string{topic, group}, 1},
		{"sluice_store_append_duration_seconds_count", nil, -2},
		{"sluice_store_batch_size_count", nil, -2},
		{"sluice_spool_events", nil, 0},
		{"sluice_spool_bytes", nil, 0},
		{"sluice_ws_connections", nil, 1},
		{"sluice_policy_version_info", []string{`policy="shut"`, `version="`}, 1},
		{"sluice_store_up", nil, 1},
		{"sluice_group_members", []string{topic, group}, 1},
		{"sluice_build_info", []string{`version="`, `store="`}, 1},
	} {
		var got float64
		holds := func() bool {
			got = s.metric(t, c.name, c.labels...)
			return c.want >= 0 && got == c.want || c.want == -2 && got >= 1
		}
		if !holds() { // a gauge may lag a little
			testkit.Eventually(t, fmt.Sprintf("%s%v is %v (now %v)", c.name, c.labels, c.want, got), holds)
		}
	}
	k.drop()
	testkit.Eventually(t, "no connection is counted", func() bool { return s.metric(t, "sluice_ws_connections") == 0 })
}

// "Topics past a configurable count share the label _other"
func TestTopicLabels(t *testing.T) {
	t.Parallel()
	s := own(t, "", "--max-topic-labels", "2")
	for i := range 5 {
		s.put(t, fmt.Sprint("t", i), "x", "1")
	}
	if n := s.metric(t, "sluice_events_published_total", `topic="_other"`); n != 3 {
		t.Errorf("_other counts %v", n)
	}
}

// "what names a topic or group that is deleted goes within a minute, and a topic that was only refused
// has no label of its own"
func TestLabelsGo(t *testing.T) {
	t.Parallel()
	s := own(t, `[{name: "shut.*", paused: true}]`, "--max-topic-labels", "2")
	for i := range 3 { // these take no place
		s.post(t, fmt.Sprint("refused", i), "{")
		s.post(t, fmt.Sprint("shut.", i), "1")
	}
	for _, topic := range []string{"a", "b"} {
		s.put(t, topic, "x", "1")
		for _, group := range []string{"g", "h"} {
			testkit.Call(t, "POST", s.URL()+"/v1/topics/"+topic+"/groups/"+group+"/pull", `{"wait_ms":0,"opts":{"from":"earliest"}}`)
		}
	}
	named := func(label string) bool {
		return strings.Contains(string(testkit.Call(t, "GET", s.OpsURL()+"/metrics", "").Body), label)
	}
	for _, label := range []string{`topic="a"`, `topic="b"`, `group="h",topic="a"`} {
		if !named(label) {
			t.Errorf("nothing is labelled %s", label)
		}
	}
	for _, path := range []string{"/v1/topics/a", "/v1/topics/b/groups/h"} {
		testkit.Eventually(t, path+" is deleted", func() bool { return testkit.Call(t, "DELETE", s.URL()+path, "").Status == 204 })
	}
	testkit.Eventually(t, "deleted names are no labels", func() bool { return !named(`topic="a"`) && !named(`group="h",topic="b"`) })
	s.put(t, "c", "x", "1")
	if !named(`sluice_events_published_total{topic="c"} 1`) || !named(`sluice_events_published_total{topic="b"} 1`) || named("refused0") {
		t.Error("the place of a deleted topic is not another one's, or one that is there lost its own")
	}
}

// "GET /healthz (alive), GET /readyz (200 only when it can accept publishes), GET /metrics
// (Prometheus text), GET /v1/status (JSON: …)"
func TestOps(t *testing.T) {
	t.Parallel()
	s := own(t, `[{name: "*", partitions: 2}]`, "--node-id", "node-7")
	k := s.dial(t)
	k.ok(`{"op":"SUBSCRIBE","topic":"t","group":"g"}`)
	for _, path := range []string{"/healthz", "/readyz"} {
		if a := testkit.Call(t, "GET", s.OpsURL()+path, ""); a.Status != 200 {
			t.Errorf("%s: %d %s", path, a.Status, a.Body)
		}
	}
	if a := testkit.Call(t, "GET", s.OpsURL()+"/metrics", ""); a.Status != 200 ||
		!strings.HasPrefix(a.Header.Get("Content-Type"), "text/plain") {
		t.Errorf("%d %v", a.Status, a.Header)
	}
	a := testkit.Call(t, "GET", s.OpsURL()+"/v1/status", "")
	o := a.JSON(t)
	scheme := "embedded:"
	if sharesStore(t) {
		scheme = "mongodb"
	}
	for _, name := range []string{"version", "node_id", "store.url", "store.state", "policies", "connections", "queues", "subscriptions",
		"spool.events", "spool.bytes", "peers"} {
		if o.At(name) == nil {
			t.Errorf("status has no %s: %s", name, a.Body)
		}
	}
	if o["node_id"] != "node-7" || !strings.HasPrefix(o.Text("store.url"), scheme) || o.Text("spool.events") != "0" {
		t.Errorf("%s", a.Body)
	}
	if p := o.List("policies"); len(p) != 1 || p[0]["name"] != "*" || p[0].Text("version") == "" || p[0].Text("source") == "" {
		t.Errorf("policies: %s", a.Body)
	}
	if a := testkit.Call(t, "GET", s.OpsURL()+"/v1/none", ""); a.Status != 404 {
		t.Errorf("%d", a.Status)
	}
}

// "GET / of every HTTP listener": one URL finds the others.
func TestEachListenerNamesTheOthers(t *testing.T) {
	t.Parallel()
	s := own(t, "")
	for _, url := range []string{s.URL(), s.ReplayURL(), s.OpsURL()} {
		told := testkit.Call(t, "GET", url+"/", "").JSON(t)
		want := fmt.Sprint(map[string]any{"app": s.Listen, "replay": s.Replay, "ops": s.Ops})
		if told["program"] != "sluice-sidecar" || fmt.Sprint(told["listeners"]) != want || told["routes"] == nil {
			t.Errorf("%s: %v, want listeners %s", url, told, want)
		}
	}
}

package contract

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/test/testkit"
)

// "group: 1 to 255 bytes of visible characters without /. No topic, id, group or node id is . or ..", over both ways in.
func TestGroupNames(t *testing.T) {
	t.Parallel()
	s := shared(t)
	k := s.dial(t)
	for group, good := range map[string]bool{
		strings.Repeat("g", 255): true, "a.b-c_d:e": true, strings.Repeat("é", 127): true, "...": true,
		strings.Repeat("g", 256): false, strings.Repeat("é", 128): false, "a b": false, "a/b": false, ".": false, "..": false, "a\tb": false,
	} {
		r := k.ask(`{"op":"SUBSCRIBE","topic":"one.groups","group":%q}`, group)
		refused := r["code"] == "bad_request" && strings.Contains(r.Text("msg"), "group")
		if good && r["op"] != "OK" || !good && !refused {
			t.Errorf("SUBSCRIBE as %.20q: %v", group, r)
		}
		path := strings.NewReplacer("/", "%2F", " ", "%20", "\t", "%09", ".", "%2E").Replace(group)
		a := testkit.Call(t, "POST", s.URL()+"/v1/topics/one.groups/groups/"+path+"/pull", `{"wait_ms":0}`)
		if good && a.Status != 200 || !good && (a.Status != 400 || !strings.Contains(a.JSON(t).Text("error"), "group")) {
			t.Errorf("pull as %.20q: %d %s", group, a.Status, a.Body)
		}
	}
}

// "Partition = hash of key, or of id where there is no key."
func TestPartitionOfAKey(t *testing.T) {
	t.Parallel()
	s := shared(t) // topics of four partitions
	seen := map[any]bool{}
	for i := range 12 {
		name := fmt.Sprint("n", i)
		byKey := s.put(t, "names.a", "x"+name, "1", "Sluice-Key: "+name)["partition"]
		byID := s.put(t, "names.b", name, "1")["partition"]
		if again := s.put(t, "names.c", "y"+name, "1", "Sluice-Key: "+name)["partition"]; again != byKey || byID != byKey {
			t.Errorf("%s is in %v as a key, in %v as another topic's, in %v as an id", name, byKey, again, byID)
		}
		seen[byKey] = true
	}
	if len(seen) < 2 {
		t.Errorf("12 keys are in the partitions %v", seen)
	}
}

// "A traceparent or tracestate that is not one, and baggage beyond 8,192 bytes, are left out; the event is taken." What copied events
// carry of the sidecar's own headers is left out, too, and any other sluice- header is refused.
func TestHeadersThatAreLeftOut(t *testing.T) {
	t.Parallel()
	s := shared(t)
	const topic = "one.leftout"
	s.put(t, topic, "http", "1", "traceparent: 00-nonsense", "tracestate: \"", "baggage: a="+strings.Repeat("b", 8192), "Sluice-Header-A: b",
		"Sluice-Header-Sluice-Schema-Version: 7", "Sluice-Header-Sluice-Redriven: 1", "Sluice-Header-Sluice-Capture-Op: insert")
	k := s.dial(t)
	k.ok(`{"op":"PUBLISH","topic":%q,"payload":1,"opts":{"id":"ws","headers":{"a":"b","traceparent":"x","tracestate":"\"","baggage":"a=%s",`+
		`"sluice-schema-version":"7","sluice-redriven":"1","sluice-capture-op":"insert"}}}`, topic, strings.Repeat("b", 8192))
	for _, e := range s.replay(t, "topic="+topic).List("events") {
		for name := range e["headers"].(map[string]any) {
			if name != "a" && name != "traceparent" { // the sidecar's span, where it records one
				t.Errorf("%s keeps %s", e["id"], name)
			}
		}
		if e.Text("headers.a") != "b" || strings.HasPrefix(e.Text("headers.traceparent"), "00-nonsense") || e.Text("headers.traceparent") == "x" {
			t.Errorf("%v", e)
		}
	}
	if a := s.post(t, topic, "1", "Sluice-Header-Sluice-Other: 1"); a.Status != 400 || !strings.Contains(string(a.Body), "sluice-other") {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	k.refused("bad_request", `{"op":"PUBLISH","topic":%q,"payload":1,"opts":{"headers":{"sluice-other":"1"}}}`, topic)
}

// "Publishing to, making and scheduling for a topic that ends in .dlq is bad_request; it is subscribed to, pulled, streamed, replayed,
// exported, sought in and deleted like others".
func TestDeadLetterTopicIsATopic(t *testing.T) {
	t.Parallel()
	s := shared(t)
	const topic, letters = "one.letters", "/v1/topics/one.letters.dlq"
	s.put(t, topic, "x", "1")
	k := s.dial(t)
	k.die(topic, "g", "x")
	id := s.letters(t, topic+".dlq", 1)[0].Text("id")
	hour := []string{"Sluice-Delay-Ms: 3600000"}
	answers(t, s.URL(), []call{
		{"POST " + letters + "/events", "1", nil, 400, ".dlq"},
		{"POST " + letters + "/events", "1", hour, 400, ".dlq"},
		{"PUT " + letters, "", nil, 400, ".dlq"},
	})
	k.refused("bad_request", `{"op":"PUBLISH","topic":"%s.dlq","payload":1}`, topic)
	k.ok(`{"op":"SUBSCRIBE","topic":"%s.dlq","opts":{"from":"earliest"}}`, topic)
	k.await("the dead letter", func(f object) bool { return isEvent(f) && f.Text("event.id") == id })
	k.ok(`{"op":"UNSUBSCRIBE","topic":"%s.dlq"}`, topic)
	pulled := s.pulled(t, topic+".dlq", "h", fromStart, 1)
	s.settle(t, topic+".dlq", "h", "ack", pulled, "")
	if a := testkit.Call(t, "PUT", s.URL()+letters+"/groups/h/cursor", `{"from":"earliest"}`); a.Status != 204 {
		t.Errorf("seek: %d %s", a.Status, a.Body)
	}
	again := s.pulled(t, topic+".dlq", "h", fromStart, 1)
	s.settle(t, topic+".dlq", "h", "ack", again, "")
	stream := s.stream(t, topic+".dlq", "?from=earliest")
	streamed := stream.event()
	stream.end()
	export := testkit.Call(t, "GET", s.ReplayURL()+"/export?topic="+topic+".dlq", "")
	for how, got := range map[string]string{
		"pulled": fmt.Sprint(ids(pulled)), "pulled again": fmt.Sprint(ids(again)), "streamed": "[" + streamed.Text("id") + "]",
	} {
		if got != "["+id+"]" {
			t.Errorf("%s: %s, want %s", how, got, id)
		}
	}
	if !strings.Contains(string(export.Body), id) {
		t.Errorf("export: %s", export.Body)
	}
	testkit.Eventually(t, "nobody is subscribed, and the topic of dead letters is deleted", func() bool {
		a := testkit.Call(t, "DELETE", s.URL()+letters, "")
		if a.Status != 204 && a.JSON(t)["code"] != "in_use" {
			t.Errorf("%d %s", a.Status, a.Body)
		}
		return a.Status == 204
	})
	if n := s.replay(t, "topic="+topic+".dlq").Number(t, "count"); n != 0 {
		t.Errorf("%d dead letters are left", n)
	}
}

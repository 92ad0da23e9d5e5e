package contract

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/test/testkit"
)

// "not delivered to a group later than that after acceptance; counted in
// sluice_events_expired_total{topic,group}", whichever way the event was published; replay still
// has it.
func TestTTL(t *testing.T) {
	t.Parallel()
	s := own(t, `
- name: "*"
  partitions: 1
- name: kept
  retention: {expired: dead_letter}
`)
	k := s.dial(t)
	const ttl = 300
	for _, topic := range []string{"dropped", "kept"} {
		k.ok(`{"op":"PUBLISH","topic":%q,"payload":1,"opts":{"id":"a","ttl_ms":%d}}`, topic, ttl)
		k.ok(`{"op":"PUBLISH","topic":%q,"events":[{"payload":1,"opts":{"id":"b","ttl_ms":%d}}]}`, topic, ttl)
		s.put(t, topic, "c", "1", fmt.Sprintf("Sluice-Ttl-Ms: %d", ttl))
		s.post(t, topic, fmt.Sprintf(`{"payload":1,"opts":{"id":"d","ttl_ms":%d}}`, ttl), "Content-Type: application/x-ndjson")
		s.post(t, topic, "1", "ce-specversion: 1.0", "ce-id: e", "ce-source: s", "ce-type: t", fmt.Sprintf("ce-ttlms: %d", ttl))
		if a := testkit.Call(t, "POST", s.URL()+"/v1.0/publish/p/"+topic+"?metadata.ttlInSeconds=3600&metadata.cloudevent.id=f",
			"1"); a.Status != 204 {
			t.Fatalf("%d %s", a.Status, a.Body)
		}
	}
	time.Sleep((ttl + 1) * time.Millisecond) // the time has to pass
	for _, topic := range []string{"dropped", "kept"} {
		k.ok(`{"op":"SUBSCRIBE","topic":%q,"group":"g","opts":{"from":"earliest"}}`, topic)
		f := k.await("an event", func(f object) bool { return isEvent(f) && f["topic"] == topic })
		if f.Text("event.id") != "f" || f.Text("event.ttl_ms") != "3600000" {
			t.Errorf("%s: %v is delivered", topic, f)
		}
		line := fmt.Sprintf(`sluice_events_expired_total{group="g",topic=%q} 5`, topic)
		testkit.Eventually(t, line, func() bool {
			return strings.Contains(string(testkit.Call(t, "GET", s.OpsURL()+"/metrics", "").Body), line)
		})
		events := s.replay(t, "topic="+topic).List("events")
		if len(events) != 6 || events[0].Text("ttl_ms") != fmt.Sprint(ttl) {
			t.Errorf("%s: replay has %v", topic, events)
		}
	}
	for _, e := range s.letters(t, "kept.dlq", 5) {
		if e.Text("headers.sluice-dlq-reason") != "expired" || e["ttl_ms"] != nil {
			t.Errorf("dead letter %v", e)
		}
	}
	if a := s.replay(t, "topic=dropped.dlq"); len(a.List("events")) != 0 {
		t.Errorf("%v", a)
	}
	if a := s.post(t, "dropped", "1", "Sluice-Ttl-Ms: 0"); a.Status != 400 || !strings.Contains(string(a.Body), "Sluice-Ttl-Ms") {
		t.Errorf("%d %s", a.Status, a.Body)
	}
}

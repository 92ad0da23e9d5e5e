package contract

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/test/testkit"
)

// die lets a group of one member give up on the one event of a topic.
func (k *socket) die(topic, group, id string) {
	k.t.Helper()
	k.ok(`{"op":"SUBSCRIBE","topic":%q,"group":%q,"opts":{"from":"earliest","maxAttempts":1}}`, topic, group)
	k.await("the event", func(f object) bool { return isEvent(f) && f["group"] == group && f.Text("event.id") == id })
	k.ok(`{"op":"NACK","topic":%q,"group":%q,"id":%q,"delay_ms":0}`, topic, group, id)
}

// letters waits until a topic holds n dead letters.
func (s *server) letters(t *testing.T, topic string, n int) []object {
	t.Helper()
	var events []object
	testkit.Eventually(t, fmt.Sprintf("%d dead letters in %.40s", n, topic), func() bool {
		events = s.replay(t, "topic="+topic).List("events")
		return len(events) >= n
	})
	return events
}

// "Every event is … moved to <topic>.dlq … Nothing is dropped in silence": also where two groups
// give up on one event, or a group twice, and where the event is at every limit itself.
func TestDeadLettersAtTheEdges(t *testing.T) {
	t.Parallel()
	s := shared(t)
	k := s.dial(t)

	s.put(t, "one.two", "x", "1")
	k.die("one.two", "g", "x")
	k.die("one.two", "h", "x")
	seen := map[string]bool{}
	for _, e := range s.letters(t, "one.two.dlq", 2) {
		seen[e.Text("headers.sluice-dlq-group")] = true
	}
	if !seen["g"] || !seen["h"] {
		t.Errorf("dead letters of %v", seen)
	}

	id, key := strings.Repeat("i", 128), strings.Repeat("k", 512)
	var headers []string
	for i := range 64 {
		headers = append(headers, fmt.Sprintf("%q:%q", fmt.Sprintf("h%02d", i), strings.Repeat("v", 253)))
	}
	k.ok(`{"op":"PUBLISH","topic":"one.full","payload":%s,"opts":{"id":%q,"key":%q,"headers":{%s}}}`, text(1<<20), id, key,
		strings.Join(headers, ","))
	k.die("one.full", strings.Repeat("g", 200), id)
	e := s.letters(t, "one.full.dlq", 1)[0]
	if e.Text("headers.sluice-dlq-id") != id || e.Text("key") != key || len(e["payload"].(string)) != 1<<20-2 {
		t.Errorf("a full event: id %s, key %s", e.Text("headers.sluice-dlq-id"), e.Text("key"))
	}

	if a := testkit.Call(t, "POST", s.URL()+"/v1/topics/one.two.dlq/events", "1"); a.Status != 400 {
		t.Errorf("publishing a dead letter: %d %s", a.Status, a.Body)
	}
	k.die("one.two.dlq", "o", s.letters(t, "one.two.dlq", 2)[0].Text("id"))
	s.letters(t, "one.two.dlq.dlq", 1)
}

// A topic whose name leaves no room for ".dlq" loses nothing either: its events stay, or have a
// dead letter in another topic. The connection and the topic live on.
func TestDeadLetterOfTheLongestName(t *testing.T) {
	t.Parallel()
	s := shared(t)
	k := s.dial(t)
	topic := "one." + strings.Repeat("t", 251)
	s.put(t, topic, "x", "1", "Sluice-Key: k")
	k.die(topic, "g", "x")
	testkit.Eventually(t, "the event is kept by the group, or by a dead letter topic", func() bool {
		if lag := s.group(t, topic, "g").Text("lag"); lag != "0" {
			return true
		}
		for _, o := range testkit.ParseObject(t, testkit.Call(t, "GET", s.URL()+"/v1/topics", "").Body).List("topics") {
			if name := o.Text("topic"); strings.HasSuffix(name, "dlq") && strings.Contains(name, strings.Repeat("t", 100)) {
				return true
			}
		}
		return false
	})
	k.usable()
}

// "<topic>.dlq … keeps for its topic's retention.dead_letters, whatever a glob says of retention".
func TestDeadLettersAreKept(t *testing.T) {
	t.Parallel()
	s := own(t, `
- {name: "*", partitions: 1, connection: {rate: 0}, retention: {ttl: 500ms}}
- {name: brief, retention: {ttl: 0s, dead_letters: 500ms}}
- {name: long, retention: {ttl: 500ms}}
`, "--retention-interval", "100ms")
	k := s.dial(t)
	for _, topic := range []string{"brief", "long"} {
		s.put(t, topic, "x", "1")
		k.die(topic, "g", "x")
	}
	s.letters(t, "long.dlq", 1)
	count := func(topic string) int64 { return s.replay(t, "topic="+topic).Number(t, "count") }
	testkit.Eventually(t, "what is kept for 500 ms is removed", func() bool { return count("brief.dlq")+count("long") == 0 })
	if count("brief") != 1 || count("long.dlq") != 1 {
		t.Errorf("%d events and %d dead letters are left that are kept for longer", count("brief"), count("long.dlq"))
	}
}

// The limits of publishers do not refuse a dead letter: it does not disappear because a bucket is
// empty or its topic is paused.
func TestDeadLettersPassLimits(t *testing.T) {
	t.Parallel()
	s := own(t, `[{name: "*", connection: {rate: 0}, partitions: 1}, {name: t.dlq, publish: {rate: 0.01, burst: 1}}, `+
		`{name: u.dlq, paused: true}]`)
	k := s.dial(t)
	for _, id := range []string{"a", "b", "c"} {
		s.put(t, "t", id, "1")
		k.die("t", "g"+id, id)
	}
	s.letters(t, "t.dlq", 3)
	s.put(t, "u", "x", "1")
	k.die("u", "g", "x")
	testkit.Eventually(t, "the event is kept by the group, or by u.dlq", func() bool {
		return s.group(t, "u", "g").Text("lag") == "1" || s.replay(t, "topic=u.dlq").Number(t, "count") == 1
	})
}

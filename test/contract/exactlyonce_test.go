package contract

import (
	"testing"

	"github.com/sluice-bus/sluice/test/testkit"
)

// "an id that was acked is not delivered again to that group, even where its cursor is set back";
// other groups, and groups that did not ask, get it again.
func TestExactlyOnceAfterASeek(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	s := h.start(t, sharedPolicies, soon...)
	const topic = "one.once"
	seek := func(group string) {
		t.Helper()
		if a := testkit.Call(t, "PUT", s.URL()+"/v1/topics/"+topic+"/groups/"+group+"/cursor", `{"from":"earliest"}`); a.Status != 204 {
			t.Fatalf("%d %s", a.Status, a.Body)
		}
	}
	s.put(t, topic, "a", "1")
	s.put(t, topic, "b", "1")
	k := s.dial(t)
	k.ok(`{"op":"SUBSCRIBE","topic":%q,"group":"once","opts":{"from":"earliest","exactlyOnce":true}}`, topic)
	k.events(2)
	k.ack(topic, "once", "a")
	seek("once")
	if f := k.event(); f.Text("event.id") != "b" {
		t.Errorf("%v", f)
	}
	k.ack(topic, "once", "b")
	s.Kill() // marks are as durable as acks
	s = h.start(t, sharedPolicies, soon...)
	k = s.dial(t)
	k.ok(`{"op":"SUBSCRIBE","topic":%q,"group":"once","opts":{"exactlyOnce":true}}`, topic)
	k.ok(`{"op":"SUBSCRIBE","topic":%q,"group":"plain","opts":{"from":"earliest"}}`, topic)
	for range 2 {
		f := k.event()
		if f["group"] != "plain" {
			t.Errorf("%v", f)
		}
		k.ack(topic, "plain", f.Text("event.id"))
	}
	seek("once")
	seek("plain") // "events acked before may come again"
	s.put(t, topic, "c", "1")
	var once, plain []string
	for range 4 {
		f := k.event()
		if f["group"] == "once" {
			once = append(once, f.Text("event.id"))
		} else {
			plain = append(plain, f.Text("event.id"))
		}
	}
	if len(once) != 1 || once[0] != "c" || len(plain) != 3 {
		t.Errorf("exactlyOnce %v, plain %v", once, plain)
	}
}

// "or it was published again under another seq": once retention has removed the event and the
// dedupe window is over, its id may be published again.
func TestExactlyOnceAfterARepublish(t *testing.T) {
	t.Parallel()
	s := own(t, `[{name: "*", publish: {rate: 0}, connection: {rate: 0}, partitions: 1, retention: {ttl: 200ms}, dedupe: {window: 100ms}}]`,
		"--retention-interval", "100ms")
	k := s.dial(t)
	k.ok(`{"op":"SUBSCRIBE","topic":"again","group":"once","opts":{"exactlyOnce":true}}`)
	k.ok(`{"op":"SUBSCRIBE","topic":"again"}`)
	first := s.put(t, "again", "x", "1")
	k.events(2)
	k.ack("again", "once", "x")
	var second object
	testkit.Eventually(t, "x is accepted again", func() bool {
		a := s.post(t, "again", "1", "Sluice-Id: x")
		second = a.JSON(t)
		return a.Status == 201
	})
	if second.Number(t, "seq") <= first.Number(t, "seq") {
		t.Errorf("seq %v after %v", second["seq"], first["seq"])
	}
	if f := k.event(); f["group"] == "once" || f.Text("event.id") != "x" {
		t.Errorf("%v", f)
	}
	s.put(t, "again", "end", "1")
	for range 2 {
		if f := k.event(); f["group"] == "once" && f.Text("event.id") != "end" {
			t.Errorf("delivered again: %v", f)
		}
	}
}

// "autoAck" acks: the events that it acked are marked as well.
func TestExactlyOnceWithAutoAck(t *testing.T) {
	t.Parallel()
	s := shared(t)
	k := s.dial(t)
	k.ok(`{"op":"SUBSCRIBE","topic":"one.auto","group":"g","opts":{"autoAck":true,"exactlyOnce":true}}`)
	s.put(t, "one.auto", "a", "1")
	k.event()
	testkit.Eventually(t, "a is acked", func() bool { return s.group(t, "one.auto", "g").Text("lag") == "0" })
	if a := testkit.Call(t, "PUT", s.URL()+"/v1/topics/one.auto/groups/g/cursor", `{"from":"earliest"}`); a.Status != 204 {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	s.put(t, "one.auto", "b", "1")
	if f := k.event(); f.Text("event.id") != "b" {
		t.Errorf("%v", f)
	}
}

package gateway

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestPublishAndReceive(t *testing.T) {
	s := start(t, setup{})
	c := s.dial(t)
	c.ask(`{"op":"SUBSCRIBE","topic":"orders","group":"g","corr":"s"}`)
	c.send(`{"op":"PUBLISH","topic":"orders","payload":{"b":1.0,"a":12345678901234567890},
		"opts":{"id":"e1","key":"k","headers":{"H":"v"},"ts":5},"corr":"p"}`)
	ok, ev := c.next(), c.next() // the event may overtake its receipt
	if ok.Op == "EVENT" {
		ok, ev = ev, ok
	}
	if ok.Op != "OK" || ok.Corr != "p" || ok.ID != "e1" || ok.Seq != 1 || ok.Durability != "store" || ok.Partition == nil {
		t.Errorf("receipt: %+v", ok)
	}
	if string(ev.Event.Payload) != `{"b":1.0,"a":12345678901234567890}` || ev.Event.Headers["H"] != "v" || ev.Event.TS != 5 || ev.Event.Key != "k" {
		t.Errorf("event: %+v, payload %s", ev.Event, ev.Event.Payload)
	}
	if ev.Topic != "orders" || ev.Group != "g" || ev.Ctx != (delivery{1, 30_000}) {
		t.Errorf("delivery: %+v", ev)
	}
	c.ask(`{"op":"ACK","topic":"orders","group":"g","id":"e1"}`)
	c.ask(`{"op":"ACK","topic":"orders","group":"g","id":"e1"}`) // not in flight any more: harmless
	again := c.ask(`{"op":"PUBLISH","topic":"orders","payload":{"a":12345678901234567890,"b":1},"opts":{"id":"e1","key":"k","headers":{"H":"v"}}}`)
	if !again.Duplicate || again.Seq != 1 {
		t.Errorf("duplicate: %+v", again)
	}
	c.send(`{"op":"PUBLISH","topic":"orders","payload":2,"opts":{"id":"e1","key":"k"},"corr":"p"}`)
	if f := c.want("ERR/conflict"); f.Corr != "p" || f.Seq != 1 {
		t.Errorf("conflict: %+v", f)
	}
}

func TestPublishBatch(t *testing.T) {
	s := start(t, setup{})
	c := s.dial(t)
	f := c.ask(`{"op":"PUBLISH","topic":"a","events":[{"payload":1,"opts":{"id":"x"}},{"topic":"b","payload":2},{"payload":3,"opts":{"ts":-1}},{"payload_base64":"AAE="}]}`)
	if len(f.Results) != 4 {
		t.Fatalf("results: %+v", f)
	}
	for i, code := range []string{"", "", "bad_request", ""} {
		if got := f.Results[i]; got.Code != code || code == "" && got.Seq == 0 {
			t.Errorf("result %d: %+v", i, got)
		}
	}
}

func TestSubscribeTwice(t *testing.T) {
	c := start(t, setup{}).dial(t)
	c.ask(`{"op":"SUBSCRIBE","topic":"t","group":"g"}`)
	c.send(`{"op":"SUBSCRIBE","topic":"t","group":"g"}`)
	c.want("ERR/already_subscribed")
	c.ask(`{"op":"SUBSCRIBE","topic":"t"}`)
	c.send(`{"op":"SUBSCRIBE","topic":"t"}`)
	c.want("ERR/already_subscribed")
	c.ask(`{"op":"UNSUBSCRIBE","topic":"t","group":"g"}`)
	c.ask(`{"op":"SUBSCRIBE","topic":"t","group":"g"}`)
}

func TestNackRedelivers(t *testing.T) {
	s := start(t, setup{})
	c := s.dial(t)
	c.ask(`{"op":"SUBSCRIBE","topic":"t","group":"g"}`)
	s.publish(t, "t", "e", "")
	c.wantEvent("e")
	c.send(`{"op":"NACK","topic":"t","group":"g","id":"e","reason":"no","delay_ms":0}`)
	ok, ev := c.next(), c.next()
	if ok.Op == "EVENT" {
		ok, ev = ev, ok
	}
	if ok.Op != "OK" || ev.Op != "EVENT" || ev.Ctx.Attempt != 2 {
		t.Fatalf("after the nack: %+v, %+v", ok, ev)
	}
	c.ask(`{"op":"ACK","topic":"t","group":"g","ids":["e"]}`)
	c.alive()
}

func TestModAck(t *testing.T) {
	s := start(t, setup{})
	c := s.dial(t)
	c.ask(`{"op":"SUBSCRIBE","topic":"t","group":"g"}`)
	s.publish(t, "t", "e", "")
	c.wantEvent("e")
	c.ask(`{"op":"MODACK","topic":"t","group":"g","id":"e","extend_ms":60000}`)
	c.send(`{"op":"MODACK","topic":"t","group":"g","id":"other","extend_ms":60000}`)
	c.want("ERR/unknown_id")
	c.send(`{"op":"MODACK","topic":"t","group":"g","id":"e","extend_ms":0}`) // the deadline is now
	ok, ev := c.next(), c.next()
	if ok.Op == "EVENT" {
		ok, ev = ev, ok
	}
	if ok.Op != "OK" || ev.Ctx.Attempt != 2 {
		t.Fatalf("after the deadline: %+v, %+v", ok, ev)
	}
}

func TestAckDeadline(t *testing.T) {
	s := start(t, setup{})
	c := s.dial(t)
	c.ask(`{"op":"SUBSCRIBE","topic":"t","group":"g","opts":{"ackTimeoutMs":20}}`)
	s.publish(t, "t", "e", "")
	for attempt := range 3 {
		if f := c.wantEvent("e"); f.Ctx != (delivery{attempt + 1, 20}) {
			t.Fatalf("delivery %d: %+v", attempt+1, f.Ctx)
		}
	}
}

func TestPauseAndResume(t *testing.T) {
	s := start(t, setup{})
	c := s.dial(t)
	for _, group := range []string{"", `,"group":"g"`} {
		c.ask(`{"op":"SUBSCRIBE","topic":"t"%s}`, group)
		c.ask(`{"op":"PAUSE","topic":"t"%s}`, group)
		id := "e" + fmt.Sprint(len(group))
		s.publish(t, "t", id, "")
		c.alive()
		c.ask(`{"op":"RESUME","topic":"t"%s}`, group)
		c.wantEvent(id)
		c.ask(`{"op":"UNSUBSCRIBE","topic":"t"%s}`, group)
	}
}

func TestUnsubscribeGivesBack(t *testing.T) {
	s := start(t, setup{})
	c := s.dial(t)
	c.ask(`{"op":"SUBSCRIBE","topic":"t","group":"g"}`)
	s.publish(t, "t", "e", "")
	c.wantEvent("e")
	other := s.dial(t)
	other.ask(`{"op":"SUBSCRIBE","topic":"t","group":"g"}`)
	c.ask(`{"op":"UNSUBSCRIBE","topic":"t","group":"g"}`)
	if f := other.wantEvent("e"); f.Ctx.Attempt != 1 {
		t.Errorf("attempt %d after UNSUBSCRIBE", f.Ctx.Attempt)
	}
	c.send(`{"op":"ACK","topic":"t","group":"g","id":"e"}`)
	c.want("ERR/not_subscribed")
	c.alive()
}

func TestClosedConnectionCountsAttempt(t *testing.T) {
	s := start(t, setup{})
	c := s.dial(t)
	c.ask(`{"op":"SUBSCRIBE","topic":"t","group":"g"}`)
	s.publish(t, "t", "e", "")
	c.wantEvent("e")
	other := s.dial(t)
	other.ask(`{"op":"SUBSCRIBE","topic":"t","group":"g"}`)
	c.ws.CloseNow()
	if f := other.wantEvent("e"); f.Ctx.Attempt != 2 {
		t.Errorf("attempt %d after the connection closed", f.Ctx.Attempt)
	}
}

func TestFrom(t *testing.T) {
	s := start(t, setup{})
	for i := range 3 {
		res, body := s.do(t, "POST", "/v1/topics/t/events", "1", fmt.Sprintf("Sluice-Id: e%d", i), fmt.Sprintf("Sluice-Ts: %d", 10*(i+1)), "Sluice-Key: k")
		if res.StatusCode != 201 {
			t.Fatal(body)
		}
	}
	for _, tc := range []struct{ opts, first string }{
		{`{"from":"earliest"}`, "e0"},
		{`{"from":"ts","ts":15}`, "e1"},
		{`{"from":"afterId","afterId":"e1"}`, "e2"},
		{`{"from":"latest"}`, ""},
		{`{}`, ""},
	} {
		for _, group := range []string{"", `,"group":"g` + tc.first + `"`} {
			c := s.dial(t)
			c.ask(`{"op":"SUBSCRIBE","topic":"t"%s,"opts":%s}`, group, tc.opts)
			if tc.first != "" {
				c.wantEvent(tc.first)
			} else {
				c.alive()
			}
		}
	}
	c := s.dial(t)
	c.send(`{"op":"SUBSCRIBE","topic":"t","group":"new","opts":{"from":"afterId","afterId":"nobody"}}`)
	c.want("ERR/not_found")
	c.send(`{"op":"SUBSCRIBE","topic":"t","opts":{"from":"afterId","afterId":"nobody"}}`)
	c.want("ERR/not_found")
	c.alive()
}

func TestFilter(t *testing.T) {
	s := start(t, setup{})
	c := s.dial(t)
	for i, filter := range []string{`{"key":"k"}`, `{"tag":"x"}`, `{"header":{"h":"v"}}`, `{"key":"k","tag":"x","header":{"h":"v"}}`} {
		topic := fmt.Sprintf("t%d", i)
		c.ask(`{"op":"SUBSCRIBE","topic":%q,"group":"g","opts":{"filter":%s}}`, topic, filter)
		pub := s.dial(t)
		pub.ask(`{"op":"PUBLISH","topic":%q,"payload":1,"opts":{"id":"no","key":"other","tags":["y"],"headers":{"h":"w"}}}`, topic)
		pub.ask(`{"op":"PUBLISH","topic":%q,"payload":1,"opts":{"id":"yes","key":"k","tags":["y","x"],"headers":{"h":"v"}}}`, topic)
		c.wantEvent("yes")
		c.alive()
	}
}

func TestMaxBatch(t *testing.T) {
	limits := defaultLimits()
	limits.FrameBytes = 40_000 // so that 10,000 bytes fill a frame of events
	s := start(t, setup{limits: &limits})
	var lines strings.Builder
	for i := range 10 {
		fmt.Fprintf(&lines, `{"payload":1,"opts":{"id":"e%d","key":"k"}}`+"\n", i)
	}
	fmt.Fprintf(&lines, `{"payload":"%s","opts":{"id":"e10","key":"k"}}`+"\n", strings.Repeat("x", 9900))
	if res, body := s.do(t, "POST", "/v1/topics/t/events", lines.String(), "Content-Type: application/x-ndjson"); res.StatusCode != 200 {
		t.Fatal(body)
	}
	c := s.dial(t)
	c.ask(`{"op":"SUBSCRIBE","topic":"t","group":"g","opts":{"from":"earliest","maxBatch":4,"ordered":false}}`)
	var sizes []int
	for at := 0; at < 11; {
		f := c.next()
		switch f.Op {
		case "EVENT":
			f.Events = append(f.Events, struct {
				Event event
				Ctx   delivery
			}{f.Event, f.Ctx})
		case "EVENTS":
			if f.Topic != "t" || f.Group != "g" || len(f.Events) < 2 {
				t.Fatalf("frame: %+v", f)
			}
		}
		sizes = append(sizes, len(f.Events))
		for _, ev := range f.Events {
			if ev.Event.ID != fmt.Sprintf("e%d", at) || ev.Ctx.Attempt != 1 {
				t.Fatalf("event %d: %+v", at, ev)
			}
			at++
		}
	}
	if got := fmt.Sprint(sizes); got != "[4 4 2 1]" {
		t.Errorf("frames of %s events", got)
	}
}

func TestMaxInflight(t *testing.T) {
	s := start(t, setup{})
	c := s.dial(t)
	c.ask(`{"op":"SUBSCRIBE","topic":"t","group":"g","opts":{"maxInflight":2}}`)
	for i := range 3 {
		s.publish(t, "t", fmt.Sprint(i), "k"+fmt.Sprint(i))
	}
	first := c.want("EVENT")
	c.want("EVENT")
	c.alive()
	c.send(`{"op":"ACK","topic":"t","group":"g","id":%q}`, first.Event.ID)
	ops := map[string]bool{c.next().Op: true, c.next().Op: true}
	if !ops["OK"] || !ops["EVENT"] {
		t.Errorf("after the ack: %v", ops)
	}
}

func TestKeyOrder(t *testing.T) {
	s := start(t, setup{})
	c := s.dial(t)
	c.ask(`{"op":"SUBSCRIBE","topic":"t","group":"g"}`)
	for _, e := range []struct{ id, key string }{{"a1", "a"}, {"a2", "a"}, {"b1", "b"}} {
		s.publish(t, "t", e.id, e.key)
	}
	got := map[string]bool{c.want("EVENT").Event.ID: true, c.want("EVENT").Event.ID: true}
	if !got["a1"] || !got["b1"] {
		t.Fatalf("first came %v", got)
	}
	c.alive()
	c.send(`{"op":"ACK","topic":"t","group":"g","id":"a1"}`)
	ok, ev := c.next(), c.next()
	if ok.Op == "EVENT" {
		ok, ev = ev, ok
	}
	if ok.Op != "OK" || ev.Event.ID != "a2" {
		t.Fatalf("after the ack: %+v, %+v", ok, ev)
	}
}

func TestExactlyOnce(t *testing.T) {
	s := start(t, setup{})
	c := s.dial(t)
	c.ask(`{"op":"SUBSCRIBE","topic":"t","group":"g","opts":{"exactlyOnce":true}}`)
	s.publish(t, "t", "e1", "k")
	c.wantEvent("e1")
	c.ask(`{"op":"ACK","topic":"t","group":"g","id":"e1"}`)
	if res, body := s.do(t, "PUT", "/v1/topics/t/groups/g/cursor", `{"from":"earliest"}`); res.StatusCode != 204 {
		t.Fatal(body)
	}
	s.publish(t, "t", "e2", "k")
	c.wantEvent("e2")
	c.alive()
}

func TestDeadLetter(t *testing.T) {
	s := start(t, setup{})
	c, dead := s.dial(t), s.dial(t)
	dead.ask(`{"op":"SUBSCRIBE","topic":"t.dlq"}`)
	c.ask(`{"op":"SUBSCRIBE","topic":"t","group":"g","opts":{"maxAttempts":2}}`)
	s.publish(t, "t", "e", "k")
	c.wantEvent("e")
	c.send(`{"op":"NACK","topic":"t","group":"g","id":"e","delay_ms":0}`)
	for range 2 { // the reply and the second delivery
		c.next()
	}
	c.ask(`{"op":"NACK","topic":"t","group":"g","id":"e","reason":"broken"}`)
	f := dead.want("EVENT")
	for name, want := range map[string]string{"reason": "broken", "group": "g", "attempts": "2", "id": "e"} {
		if got := f.Event.Headers["sluice-dlq-"+name]; got != want {
			t.Errorf("sluice-dlq-%s: %q, want %q", name, got, want)
		}
	}
	if f.Event.Key != "k" || string(f.Event.Payload) != `{"n":1}` {
		t.Errorf("dead letter: %+v", f.Event)
	}
	c.alive()
}

func TestAutoAck(t *testing.T) {
	s := start(t, setup{})
	c := s.dial(t)
	c.ask(`{"op":"SUBSCRIBE","topic":"t","group":"g","opts":{"autoAck":true,"maxInflight":1}}`)
	for i := range 5 { // each waits for the ack of the one before
		s.publish(t, "t", fmt.Sprint(i), "k")
	}
	for i := range 5 {
		c.wantEvent(fmt.Sprint(i))
	}
	eventually(t, "everything acked", func() bool {
		_, body := s.do(t, "GET", "/v1/topics/t/groups/g", "")
		return strings.Contains(body, `"lag":0,"inflight":0`)
	})
	c.alive()
}

func TestWithoutGroup(t *testing.T) {
	s := start(t, setup{})
	c, other := s.dial(t), s.dial(t)
	c.ask(`{"op":"SUBSCRIBE","topic":"t"}`)
	other.ask(`{"op":"SUBSCRIBE","topic":"t"}`)
	s.publish(t, "t", "e", "")
	for _, c := range []*client{c, other} {
		if f := c.wantEvent("e"); f.Group != "" || f.Ctx.Attempt != 1 {
			t.Errorf("delivery: %+v", f)
		}
	}
	c.send(`{"op":"ACK","topic":"t","id":"e"}`)
	c.want("ERR/bad_request")
}

func TestRebalanceIsTold(t *testing.T) {
	s := start(t, setup{policies: `[{"name":"*","partitions":3}]`})
	c := s.dial(t)
	c.ask(`{"op":"SUBSCRIBE","topic":"t","group":"g","opts":{"rebalance":true}}`)
	if f := c.want("ASSIGNED"); fmt.Sprint(f.Partitions) != "[0 1 2]" || f.Topic != "t" || f.Group != "g" {
		t.Errorf("assigned: %+v", f)
	}
	other := s.dial(t) // did not ask, and gets its share all the same
	other.ask(`{"op":"SUBSCRIBE","topic":"t","group":"g"}`)
	second := s.dial(t)
	second.ask(`{"op":"SUBSCRIBE","topic":"t","group":"g","opts":{"rebalance":true}}`)
	second.want("ASSIGNED")
	other.send(`{"op":"UNSUBSCRIBE","topic":"t","group":"g"}`)
	other.want("OK")
	second.send(`{"op":"UNSUBSCRIBE","topic":"t","group":"g"}`)
	mine := map[int]bool{0: true, 1: true, 2: true}
	for revoked := false; !revoked || len(mine) < 3; {
		f := c.next()
		for _, p := range f.Partitions {
			if mine[p] == (f.Op == "ASSIGNED") {
				t.Errorf("%s of %d, having %v", f.Op, p, mine)
			}
			if mine[p] = true; f.Op == "REVOKED" {
				delete(mine, p)
				revoked = true
			}
		}
	}
	c.alive()
}

func TestDeliveryRateIsShared(t *testing.T) {
	s := start(t, setup{policies: `[{"name":"*","publish":{"rate":0},"connection":{"rate":0},"delivery":{"rate":2}}]`})
	c := s.dial(t)
	c.ask(`{"op":"SUBSCRIBE","topic":"t","group":"a"}`)
	c.ask(`{"op":"SUBSCRIBE","topic":"t","group":"b"}`)
	began := time.Now()
	for i := range 2 {
		s.publish(t, "t", fmt.Sprint(i), "")
	}
	for range 4 { // a burst of 2, and 2 a second after that
		c.want("EVENT")
	}
	if took := time.Since(began); took < 900*time.Millisecond {
		t.Errorf("4 deliveries took %v", took)
	}
	s.policies.Swap(snapshot(t, unlimited)) // the bucket is retuned where it is
	for i := range 20 {
		s.publish(t, "t", fmt.Sprintf("more%d", i), "")
	}
	for range 40 {
		c.want("EVENT")
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("44 deliveries took %v", took)
	}
}

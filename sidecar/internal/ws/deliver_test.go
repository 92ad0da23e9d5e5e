package ws_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/gateway/gatewaytest"
)

func TestPublishAndReceive(t *testing.T) {
	s := start(t, gatewaytest.Setup{})
	c := s.Dial(t)
	c.Ask(`{"op":"SUBSCRIBE","topic":"orders","group":"g","corr":"s"}`)
	c.Send(`{"op":"PUBLISH","topic":"orders","payload":{"b":1.0,"a":12345678901234567890},
		"opts":{"id":"e1","key":"k","headers":{"H":"v"},"ts":5},"corr":"p"}`)
	ok, ev := c.Next(), c.Next() // the event may overtake its receipt
	if ok.Op == "EVENT" {
		ok, ev = ev, ok
	}
	stored := ok.Seq == 1 && ok.Durability == "store" && ok.Partition != nil
	if ok.Op != "OK" || ok.Corr != "p" || ok.ID != "e1" || !stored {
		t.Errorf("receipt: %+v", ok)
	}
	if string(ev.Event.Payload) != `{"b":1.0,"a":12345678901234567890}` || ev.Event.Headers["H"] != "v" || ev.Event.TS != 5 ||
		ev.Event.Key != "k" {
		t.Errorf("event: %+v, payload %s", ev.Event, ev.Event.Payload)
	}
	if ev.Topic != "orders" || ev.Group != "g" || ev.Ctx != (gatewaytest.Delivery{Attempt: 1, AckDeadlineMS: 30_000}) {
		t.Errorf("delivery: %+v", ev)
	}
	c.Ask(`{"op":"ACK","topic":"orders","group":"g","id":"e1"}`)
	c.Ask(`{"op":"ACK","topic":"orders","group":"g","id":"e1"}`) // not in flight any more: harmless
	again := c.Ask(`{"op":"PUBLISH","topic":"orders","payload":{"a":12345678901234567890,"b":1},` +
		`"opts":{"id":"e1","key":"k","headers":{"H":"v"}}}`)
	if !again.Duplicate || again.Seq != 1 {
		t.Errorf("duplicate: %+v", again)
	}
	c.Send(`{"op":"PUBLISH","topic":"orders","payload":2,"opts":{"id":"e1","key":"k"},"corr":"p"}`)
	if f := c.Want("ERR/conflict"); f.Corr != "p" || f.Seq != 1 {
		t.Errorf("conflict: %+v", f)
	}
}

func TestPublishBatch(t *testing.T) {
	s := start(t, gatewaytest.Setup{})
	c := s.Dial(t)
	f := c.Ask(`{"op":"PUBLISH","topic":"a","events":[{"payload":1,"opts":{"id":"x"}},{"topic":"b","payload":2},` +
		`{"payload":3,"opts":{"ts":-1}},{"payload_base64":"AAE="}]}`)
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
	c := start(t, gatewaytest.Setup{}).Dial(t)
	c.Ask(`{"op":"SUBSCRIBE","topic":"t","group":"g"}`)
	c.Send(`{"op":"SUBSCRIBE","topic":"t","group":"g"}`)
	c.Want("ERR/already_subscribed")
	c.Ask(`{"op":"SUBSCRIBE","topic":"t"}`)
	c.Send(`{"op":"SUBSCRIBE","topic":"t"}`)
	c.Want("ERR/already_subscribed")
	c.Ask(`{"op":"UNSUBSCRIBE","topic":"t","group":"g"}`)
	c.Ask(`{"op":"SUBSCRIBE","topic":"t","group":"g"}`)
}

func TestNackRedelivers(t *testing.T) {
	s := start(t, gatewaytest.Setup{})
	c := s.Dial(t)
	c.Ask(`{"op":"SUBSCRIBE","topic":"t","group":"g"}`)
	s.Publish(t, "t", "e", "")
	c.WantEvent("e")
	c.Send(`{"op":"NACK","topic":"t","group":"g","id":"e","reason":"no","delay_ms":0}`)
	ok, ev := c.Next(), c.Next()
	if ok.Op == "EVENT" {
		ok, ev = ev, ok
	}
	if ok.Op != "OK" || ev.Op != "EVENT" || ev.Ctx.Attempt != 2 {
		t.Fatalf("after the nack: %+v, %+v", ok, ev)
	}
	c.Ask(`{"op":"ACK","topic":"t","group":"g","ids":["e"]}`)
	c.Alive()
}

func TestModAck(t *testing.T) {
	s := start(t, gatewaytest.Setup{})
	c := s.Dial(t)
	c.Ask(`{"op":"SUBSCRIBE","topic":"t","group":"g"}`)
	s.Publish(t, "t", "e", "")
	c.WantEvent("e")
	c.Ask(`{"op":"MODACK","topic":"t","group":"g","id":"e","extend_ms":60000}`)
	c.Send(`{"op":"MODACK","topic":"t","group":"g","id":"other","extend_ms":60000}`)
	c.Want("ERR/unknown_id")
	c.Send(`{"op":"MODACK","topic":"t","group":"g","id":"e","extend_ms":0}`) // the deadline is now
	ok, ev := c.Next(), c.Next()
	if ok.Op == "EVENT" {
		ok, ev = ev, ok
	}
	if ok.Op != "OK" || ev.Ctx.Attempt != 2 {
		t.Fatalf("after the deadline: %+v, %+v", ok, ev)
	}
}

func TestAckDeadline(t *testing.T) {
	s := start(t, gatewaytest.Setup{})
	c := s.Dial(t)
	c.Ask(`{"op":"SUBSCRIBE","topic":"t","group":"g","opts":{"ackTimeoutMs":20}}`)
	s.Publish(t, "t", "e", "")
	for attempt := range 3 {
		if f := c.WantEvent("e"); f.Ctx != (gatewaytest.Delivery{Attempt: attempt + 1, AckDeadlineMS: 20}) {
			t.Fatalf("delivery %d: %+v", attempt+1, f.Ctx)
		}
	}
}

func TestPauseAndResume(t *testing.T) {
	s := start(t, gatewaytest.Setup{})
	c := s.Dial(t)
	for _, group := range []string{"", `,"group":"g"`} {
		c.Ask(`{"op":"SUBSCRIBE","topic":"t"%s}`, group)
		c.Ask(`{"op":"PAUSE","topic":"t"%s}`, group)
		id := "e" + fmt.Sprint(len(group))
		s.Publish(t, "t", id, "")
		c.Alive()
		c.Ask(`{"op":"RESUME","topic":"t"%s}`, group)
		c.WantEvent(id)
		c.Ask(`{"op":"UNSUBSCRIBE","topic":"t"%s}`, group)
	}
}

func TestUnsubscribeGivesBack(t *testing.T) {
	s := start(t, gatewaytest.Setup{})
	c := s.Dial(t)
	c.Ask(`{"op":"SUBSCRIBE","topic":"t","group":"g"}`)
	s.Publish(t, "t", "e", "")
	c.WantEvent("e")
	other := s.Dial(t)
	other.Ask(`{"op":"SUBSCRIBE","topic":"t","group":"g"}`)
	c.Ask(`{"op":"UNSUBSCRIBE","topic":"t","group":"g"}`)
	if f := other.WantEvent("e"); f.Ctx.Attempt != 1 {
		t.Errorf("attempt %d after UNSUBSCRIBE", f.Ctx.Attempt)
	}
	c.Send(`{"op":"ACK","topic":"t","group":"g","id":"e"}`)
	c.Want("ERR/not_subscribed")
	c.Alive()
}

func TestClosedConnectionCountsAttempt(t *testing.T) {
	s := start(t, gatewaytest.Setup{})
	c := s.Dial(t)
	c.Ask(`{"op":"SUBSCRIBE","topic":"t","group":"g"}`)
	s.Publish(t, "t", "e", "")
	c.WantEvent("e")
	other := s.Dial(t)
	other.Ask(`{"op":"SUBSCRIBE","topic":"t","group":"g"}`)
	c.WS.CloseNow()
	if f := other.WantEvent("e"); f.Ctx.Attempt != 2 {
		t.Errorf("attempt %d after the connection closed", f.Ctx.Attempt)
	}
}

func TestFrom(t *testing.T) {
	s := start(t, gatewaytest.Setup{})
	for i := range 3 {
		res, body := s.Do(t, "POST", "/v1/topics/t/events", "1", fmt.Sprintf("Sluice-Id: e%d", i), fmt.Sprintf("Sluice-Ts: %d", 10*(i+1)),
			"Sluice-Key: k")
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
			c := s.Dial(t)
			c.Ask(`{"op":"SUBSCRIBE","topic":"t"%s,"opts":%s}`, group, tc.opts)
			if tc.first != "" {
				c.WantEvent(tc.first)
			} else {
				c.Alive()
			}
		}
	}
	c := s.Dial(t)
	c.Send(`{"op":"SUBSCRIBE","topic":"t","group":"new","opts":{"from":"afterId","afterId":"nobody"}}`)
	c.Want("ERR/not_found")
	c.Send(`{"op":"SUBSCRIBE","topic":"t","opts":{"from":"afterId","afterId":"nobody"}}`)
	c.Want("ERR/not_found")
	c.Alive()
}

func TestFilter(t *testing.T) {
	s := start(t, gatewaytest.Setup{})
	c := s.Dial(t)
	for i, filter := range []string{`{"key":"k"}`, `{"tag":"x"}`, `{"header":{"h":"v"}}`, `{"key":"k","tag":"x","header":{"h":"v"}}`} {
		topic := fmt.Sprintf("t%d", i)
		c.Ask(`{"op":"SUBSCRIBE","topic":%q,"group":"g","opts":{"filter":%s}}`, topic, filter)
		pub := s.Dial(t)
		pub.Ask(`{"op":"PUBLISH","topic":%q,"payload":1,"opts":{"id":"no","key":"other","tags":["y"],"headers":{"h":"w"}}}`, topic)
		pub.Ask(`{"op":"PUBLISH","topic":%q,"payload":1,"opts":{"id":"yes","key":"k","tags":["y","x"],"headers":{"h":"v"}}}`, topic)
		c.WantEvent("yes")
		c.Alive()
	}
}

func TestMaxBatch(t *testing.T) {
	limits := wire.DefaultLimits()
	limits.FrameBytes = 40_000 // so that 10,000 bytes fill a frame of events
	s := start(t, gatewaytest.Setup{Limits: &limits})
	var lines strings.Builder
	for i := range 10 {
		fmt.Fprintf(&lines, `{"payload":1,"opts":{"id":"e%d","key":"k"}}`+"\n", i)
	}
	fmt.Fprintf(&lines, `{"payload":"%s","opts":{"id":"e10","key":"k"}}`+"\n", strings.Repeat("x", 9900))
	if res, body := s.Do(t, "POST", "/v1/topics/t/events", lines.String(), "Content-Type: application/x-ndjson"); res.StatusCode != 200 {
		t.Fatal(body)
	}
	c := s.Dial(t)
	c.Ask(`{"op":"SUBSCRIBE","topic":"t","group":"g","opts":{"from":"earliest","maxBatch":4,"ordered":false}}`)
	var sizes []int
	for at := 0; at < 11; {
		f := c.Next()
		switch f.Op {
		case "EVENT":
			f.Events = append(f.Events, struct {
				Event gatewaytest.Event
				Ctx   gatewaytest.Delivery
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
	s := start(t, gatewaytest.Setup{})
	c := s.Dial(t)
	c.Ask(`{"op":"SUBSCRIBE","topic":"t","group":"g","opts":{"maxInflight":2}}`)
	for i := range 3 {
		s.Publish(t, "t", fmt.Sprint(i), "k"+fmt.Sprint(i))
	}
	first := c.Want("EVENT")
	c.Want("EVENT")
	c.Alive()
	c.Send(`{"op":"ACK","topic":"t","group":"g","id":%q}`, first.Event.ID)
	ops := map[string]bool{c.Next().Op: true, c.Next().Op: true}
	if !ops["OK"] || !ops["EVENT"] {
		t.Errorf("after the ack: %v", ops)
	}
}

func TestKeyOrder(t *testing.T) {
	s := start(t, gatewaytest.Setup{})
	c := s.Dial(t)
	c.Ask(`{"op":"SUBSCRIBE","topic":"t","group":"g"}`)
	for _, e := range []struct{ id, key string }{{"a1", "a"}, {"a2", "a"}, {"b1", "b"}} {
		s.Publish(t, "t", e.id, e.key)
	}
	got := map[string]bool{c.Want("EVENT").Event.ID: true, c.Want("EVENT").Event.ID: true}
	if !got["a1"] || !got["b1"] {
		t.Fatalf("first came %v", got)
	}
	c.Alive()
	c.Send(`{"op":"ACK","topic":"t","group":"g","id":"a1"}`)
	ok, ev := c.Next(), c.Next()
	if ok.Op == "EVENT" {
		ok, ev = ev, ok
	}
	if ok.Op != "OK" || ev.Event.ID != "a2" {
		t.Fatalf("after the ack: %+v, %+v", ok, ev)
	}
}

func TestExactlyOnce(t *testing.T) {
	s := start(t, gatewaytest.Setup{})
	c := s.Dial(t)
	c.Ask(`{"op":"SUBSCRIBE","topic":"t","group":"g","opts":{"exactlyOnce":true}}`)
	s.Publish(t, "t", "e1", "k")
	c.WantEvent("e1")
	c.Ask(`{"op":"ACK","topic":"t","group":"g","id":"e1"}`)
	if res, body := s.Do(t, "PUT", "/v1/topics/t/groups/g/cursor", `{"from":"earliest"}`); res.StatusCode != 204 {
		t.Fatal(body)
	}
	s.Publish(t, "t", "e2", "k")
	c.WantEvent("e2")
	c.Alive()
}

func TestDeadLetter(t *testing.T) {
	s := start(t, gatewaytest.Setup{})
	c, dead := s.Dial(t), s.Dial(t)
	dead.Ask(`{"op":"SUBSCRIBE","topic":"t.dlq"}`)
	c.Ask(`{"op":"SUBSCRIBE","topic":"t","group":"g","opts":{"maxAttempts":2}}`)
	s.Publish(t, "t", "e", "k")
	c.WantEvent("e")
	c.Send(`{"op":"NACK","topic":"t","group":"g","id":"e","delay_ms":0}`)
	for range 2 { // the reply and the second delivery
		c.Next()
	}
	c.Ask(`{"op":"NACK","topic":"t","group":"g","id":"e","reason":"broken"}`)
	f := dead.Want("EVENT")
	for name, want := range map[string]string{"reason": "broken", "group": "g", "attempts": "2", "id": "e"} {
		if got := f.Event.Headers["sluice-dlq-"+name]; got != want {
			t.Errorf("sluice-dlq-%s: %q, want %q", name, got, want)
		}
	}
	if f.Event.Key != "k" || string(f.Event.Payload) != `{"n":1}` {
		t.Errorf("dead letter: %+v", f.Event)
	}
	c.Alive()
}

func TestAutoAck(t *testing.T) {
	s := start(t, gatewaytest.Setup{})
	c := s.Dial(t)
	c.Ask(`{"op":"SUBSCRIBE","topic":"t","group":"g","opts":{"autoAck":true,"maxInflight":1}}`)
	for i := range 5 { // each waits for the ack of the one before
		s.Publish(t, "t", fmt.Sprint(i), "k")
	}
	for i := range 5 {
		c.WantEvent(fmt.Sprint(i))
	}
	gatewaytest.Eventually(t, "everything acked", func() bool {
		_, body := s.Do(t, "GET", "/v1/topics/t/groups/g", "")
		return strings.Contains(body, `"lag":0,"inflight":0`)
	})
	c.Alive()
}

func TestWithoutGroup(t *testing.T) {
	s := start(t, gatewaytest.Setup{})
	c, other := s.Dial(t), s.Dial(t)
	c.Ask(`{"op":"SUBSCRIBE","topic":"t"}`)
	other.Ask(`{"op":"SUBSCRIBE","topic":"t"}`)
	s.Publish(t, "t", "e", "")
	for _, c := range []*gatewaytest.Client{c, other} {
		if f := c.WantEvent("e"); f.Group != "" || f.Ctx.Attempt != 1 {
			t.Errorf("delivery: %+v", f)
		}
	}
	c.Send(`{"op":"ACK","topic":"t","id":"e"}`)
	c.Want("ERR/bad_request")
}

func TestRebalanceIsTold(t *testing.T) {
	s := start(t, gatewaytest.Setup{Policies: `[{"name":"*","partitions":3}]`})
	c := s.Dial(t)
	c.Ask(`{"op":"SUBSCRIBE","topic":"t","group":"g","opts":{"rebalance":true}}`)
	if f := c.Want("ASSIGNED"); fmt.Sprint(f.Partitions) != "[0 1 2]" || f.Topic != "t" || f.Group != "g" {
		t.Errorf("assigned: %+v", f)
	}
	other := s.Dial(t) // did not ask, and gets its share all the same
	other.Ask(`{"op":"SUBSCRIBE","topic":"t","group":"g"}`)
	second := s.Dial(t)
	second.Ask(`{"op":"SUBSCRIBE","topic":"t","group":"g","opts":{"rebalance":true}}`)
	second.Want("ASSIGNED")
	other.Send(`{"op":"UNSUBSCRIBE","topic":"t","group":"g"}`)
	other.Want("OK")
	second.Send(`{"op":"UNSUBSCRIBE","topic":"t","group":"g"}`)
	mine := map[int]bool{0: true, 1: true, 2: true}
	for revoked := false; !revoked || len(mine) < 3; {
		f := c.Next()
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
	c.Alive()
}

func TestDeliveryRateIsShared(t *testing.T) {
	s := start(t, gatewaytest.Setup{Policies: `[{"name":"*","publish":{"rate":0},"connection":{"rate":0},"delivery":{"rate":2}}]`})
	c := s.Dial(t)
	c.Ask(`{"op":"SUBSCRIBE","topic":"t","group":"a"}`)
	c.Ask(`{"op":"SUBSCRIBE","topic":"t","group":"b"}`)
	began := time.Now()
	for i := range 2 {
		s.Publish(t, "t", fmt.Sprint(i), "")
	}
	for range 4 { // a burst of 2, and 2 a second after that
		c.Want("EVENT")
	}
	if took := time.Since(began); took < 900*time.Millisecond {
		t.Errorf("4 deliveries took %v", took)
	}
	s.Policies.Swap(gatewaytest.Snapshot(t, gatewaytest.Unlimited)) // the bucket is retuned where it is
	for i := range 20 {
		s.Publish(t, "t", fmt.Sprintf("more%d", i), "")
	}
	for range 40 {
		c.Want("EVENT")
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("44 deliveries took %v", took)
	}
}

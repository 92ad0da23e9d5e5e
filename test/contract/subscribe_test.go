package contract

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/test/testkit"
)

// TestFrom holds where a subscription starts: "from latest | earliest | ts | afterId"; "Default
// from: latest"; "ts and afterId start each partition at its lowest seq with that ts or later, or
// with (ts, id) after that event's; from there on, log order".
func TestFrom(t *testing.T) {
	t.Parallel()
	s := shared(t)
	const topic = "one.from"
	for _, e := range []string{"a 10", "b 30", "c 20", "e 40", "d 40", "f 50"} {
		id, ts, _ := strings.Cut(e, " ")
		s.put(t, topic, id, "1", "Sluice-Ts: "+ts)
	}
	k := s.dial(t)
	for i, c := range []struct{ opts, want string }{
		{`{}`, ""}, {`{"from":"latest"}`, ""}, {`{"from":"earliest"}`, "abcedf"},
		{`{"from":"ts","ts":0}`, "abcedf"}, {`{"from":"ts","ts":30}`, "bcedf"}, {`{"from":"ts","ts":31}`, "edf"},
		{`{"from":"ts","ts":40}`, "edf"}, {`{"from":"ts","ts":51}`, ""},
		{`{"from":"afterId","afterId":"a"}`, "bcedf"}, {`{"from":"afterId","afterId":"c"}`, "bcedf"},
		{`{"from":"afterId","afterId":"b"}`, "edf"}, {`{"from":"afterId","afterId":"d"}`, "edf"},
		{`{"from":"afterId","afterId":"e"}`, "f"}, {`{"from":"afterId","afterId":"f"}`, ""},
	} {
		for _, group := range []string{"", fmt.Sprintf(`"group":"g%d",`, i)} {
			k.ok(`{"op":"SUBSCRIBE","topic":%q,%s"opts":%s}`, topic, group, c.opts)
			end := fmt.Sprintf("end-%d-%t", i, group == "")
			s.put(t, topic, end, "1", "Sluice-Ts: 9")
			var got string
			for {
				id := k.event().Text("event.id")
				if id == end {
					break
				}
				if !strings.HasPrefix(id, "end") {
					got += id
				}
			}
			if got != c.want {
				t.Errorf("%s %s: got %q, want %q", group, c.opts, got, c.want)
			}
			k.ok(`{"op":"UNSUBSCRIBE","topic":%q%s}`, topic, strings.TrimSuffix(","+group, ","))
			k.kept = nil
		}
	}
}

// "With a group: durable, … shared by all connections of the group. from counts only while the
// group has no cursor." "Without a group: this connection alone gets every event; nothing is
// remembered; autoAck is implied."
func TestGroupsShareAndOthersDoNot(t *testing.T) {
	t.Parallel()
	s := shared(t)
	const topic, n = "subscribe.share", 60
	a, b, c, d := s.dial(t), s.dial(t), s.dial(t), s.dial(t)
	for _, k := range []*socket{a, b} {
		k.ok(`{"op":"SUBSCRIBE","topic":%q,"group":"g"}`, topic)
	}
	for _, k := range []*socket{c, d} {
		k.ok(`{"op":"SUBSCRIBE","topic":%q,"opts":{"maxInflight":2}}`, topic)
	}
	for i := range n {
		s.put(t, topic, fmt.Sprint(i), "1")
	}
	for _, k := range []*socket{c, d} {
		got := ids(k.events(n))
		slices.Sort(got)
		if len(slices.Compact(got)) != n {
			t.Errorf("a connection without a group got %d of %d", len(got), n)
		}
		k.silent("all were delivered")
	}
	seen := map[string]bool{}
	var members [2]int
	testkit.Eventually(t, "the group has every event", func() bool {
		for i, k := range []*socket{a, b} {
			if f := k.within(instant/10, isEvent); f != nil {
				if id := f.Text("event.id"); seen[id] {
					t.Errorf("%s was delivered twice", id)
				} else {
					seen[id] = true
				}
				if f["group"] != "g" || f["topic"] != topic || f.Text("ctx.attempt") != "1" {
					t.Errorf("%v", f)
				}
				members[i]++
				k.ack(topic, "g", f.Text("event.id"))
			}
		}
		return len(seen) == n
	})
	if members[0] == 0 || members[1] == 0 {
		t.Errorf("the members got %v", members)
	}
	testkit.Eventually(t, "the lag is 0", func() bool { return s.group(t, topic, "g").Text("lag") == "0" })

	a.drop()
	b.drop()
	testkit.Eventually(t, "nobody is left", func() bool { return len(s.group(t, topic, "g").List("members")) == 0 })
	s.put(t, topic, "meanwhile", "1")
	e := s.dial(t) // the cursor is there: earliest does not count
	e.ok(`{"op":"SUBSCRIBE","topic":%q,"group":"g","opts":{"from":"earliest"}}`, topic)
	if f := e.event(); f.Text("event.id") != "meanwhile" {
		t.Errorf("the group goes on with %v", f)
	}
	e.silent("the group has acked everything else")
}

// "OK, before the first event"
func TestOKComesBeforeTheFirstEvent(t *testing.T) {
	t.Parallel()
	s := shared(t)
	s.put(t, "subscribe.first", "x", "1")
	k := s.dial(t)
	for i := range fewer(t, 20, 5) {
		corr := k.send(`{"op":"SUBSCRIBE","topic":"subscribe.first","group":"g%d","opts":{"from":"earliest"}}`, i)
		group := fmt.Sprint("g", i)
		f := k.await("OK or EVENT", func(f object) bool { return f.Text("corr") == corr || f["group"] == group })
		if f["op"] != "OK" {
			t.Fatalf("first %v", f)
		}
	}
}

// "filter {key, tag, header:{name:value}}"
func TestFilter(t *testing.T) {
	t.Parallel()
	s := shared(t)
	const topic = "one.filter"
	k := s.dial(t)
	k.ok(`{"op":"PUBLISH","topic":%q,"events":[
		{"payload":1,"opts":{"id":"a","key":"k","tags":["eu","us"],"headers":{"h":"v","i":"w"}}},
		{"payload":1,"opts":{"id":"b","key":"k","tags":["us"],"headers":{"h":"w"}}},
		{"payload":1,"opts":{"id":"c","key":"l","tags":["eu"],"headers":{"h":"v"}}},
		{"payload":1,"opts":{"id":"d"}},
		{"payload":1,"opts":{"id":"end","key":"k","tags":["eu"],"headers":{"h":"v","i":"w"}}}]}`, topic)
	for i, c := range []struct{ filter, want string }{
		{`{}`, "a b c d"}, {`{"key":"k"}`, "a b"}, {`{"tag":"eu"}`, "a c"}, {`{"header":{"h":"v"}}`, "a c"},
		{`{"header":{"h":"v","i":"w"}}`, "a"}, {`{"key":"k","tag":"us"}`, "a b"}, {`{"key":"k","tag":"us","header":{"h":"w"}}`, "b"},
		{`{"tag":"e"}`, ""},
	} {
		for _, group := range []string{"", fmt.Sprintf(`"group":"g%d",`, i)} {
			k.ok(`{"op":"SUBSCRIBE","topic":%q,%s"opts":{"from":"earliest","ordered":false,"filter":%s}}`, topic, group, c.filter)
			if c.want == "" {
				k.silent("nothing fits the filter " + c.filter)
			} else {
				var got []string
				for n := len(strings.Fields(c.want)); n > 0; n-- {
					got = append(got, k.event().Text("event.id"))
				}
				if strings.Join(got, " ") != c.want {
					t.Errorf("%s %s: %v, want %s", group, c.filter, got, c.want)
				}
			}
			if group != "" && c.want != "" { // events that the filter passes over are settled for the group
				k.ok(`{"op":"ACK","topic":%q,%s"ids":["a","b","c","d","end"]}`, topic, group)
			}
			k.ok(`{"op":"UNSUBSCRIBE","topic":%q%s}`, topic, strings.TrimSuffix(","+group, ","))
			k.kept = nil
		}
	}
}

// "with maxBatch > 1 also EVENTS {topic, group, events:[{event, ctx}…]}"
func TestMaxBatch(t *testing.T) {
	t.Parallel()
	s := shared(t)
	const n = 50
	for i := range n {
		s.put(t, "one.batch", fmt.Sprint(i), "1")
	}
	k := s.dial(t)
	k.ok(`{"op":"SUBSCRIBE","topic":"one.batch","group":"g","opts":{"from":"earliest","maxBatch":8,"ackTimeoutMs":60000}}`)
	var got []string
	batches := 0
	for len(got) < n {
		f := k.await("EVENT or EVENTS", func(f object) bool { return f["op"] == "EVENT" || f["op"] == "EVENTS" })
		if f["op"] == "EVENT" {
			got = append(got, f.Text("event.id"))
			continue
		}
		batches++
		items := f.List("events")
		if len(items) > 8 || f["group"] != "g" || f["topic"] != "one.batch" {
			t.Errorf("%v", f)
		}
		for _, e := range items {
			if left := e.Number(t, "ctx.ack_deadline_ms"); e.Text("ctx.attempt") != "1" || left < 1 || left > 60000 {
				t.Errorf("%v", e["ctx"])
			}
		}
		got = append(got, ids(items)...)
	}
	if batches == 0 {
		t.Error("no EVENTS at all")
	}
	for i, id := range got {
		if id != fmt.Sprint(i) {
			t.Fatalf("%v", got)
		}
	}
}

// "autoAck"
func TestAutoAck(t *testing.T) {
	t.Parallel()
	s := shared(t)
	k := s.dial(t)
	k.ok(`{"op":"SUBSCRIBE","topic":"subscribe.auto","group":"g","opts":{"autoAck":true,"maxInflight":2}}`)
	for i := range 30 {
		s.put(t, "subscribe.auto", fmt.Sprint(i), "1")
	}
	k.events(30)
	testkit.Eventually(t, "all is acked", func() bool {
		g := s.group(t, "subscribe.auto", "g")
		return g.Text("lag") == "0" && g.Text("inflight") == "0"
	})
}

// "PAUSE / RESUME: while paused no EVENT is sent, in-flight ones can still be acked, and their
// deadlines still run"
func TestPause(t *testing.T) {
	t.Parallel()
	s := shared(t)
	const topic = "one.pause"
	k, other := s.dial(t), s.dial(t)
	k.ok(`{"op":"SUBSCRIBE","topic":%q,"group":"g","opts":{"ackTimeoutMs":1000}}`, topic)
	k.ok(`{"op":"SUBSCRIBE","topic":%q}`, topic)
	s.put(t, topic, "a", "1")
	s.put(t, topic, "b", "1")
	isG := func(f object) bool { return isEvent(f) && f["group"] == "g" }
	k.await("EVENT a", isG)
	k.await("EVENT b", isG)
	k.ok(`{"op":"PAUSE","topic":%q,"group":"g"}`, topic)
	k.ok(`{"op":"PAUSE","topic":%q,"group":"g"}`, topic) // again is harmless
	k.ack(topic, "g", "a")
	s.put(t, topic, "c", "1")
	k.await("c without a group", func(f object) bool { return isEvent(f) && f["group"] != "g" && f.Text("event.id") == "c" })
	testkit.Eventually(t, "b's deadline has run out", func() bool { return s.group(t, topic, "g").Text("inflight") == "0" })
	if f := k.within(instant, isG); f != nil {
		t.Errorf("paused: %v", f)
	}
	k.ok(`{"op":"RESUME","topic":%q,"group":"g"}`, topic)
	var got []string
	for len(got) < 2 {
		f := k.await("EVENT b or c", isG)
		got = append(got, f.Text("event.id")+f.Text("ctx.attempt"))
		k.ack(topic, "g", f.Text("event.id"))
	}
	if slices.Sort(got); got[0] != "b2" || got[1] != "c1" {
		t.Errorf("after RESUME: %v", got)
	}
	other.refused("not_subscribed", `{"op":"PAUSE","topic":%q,"group":"g"}`, topic)
}

// "ASSIGNED / REVOKED {topic, group, partitions} when the client subscribed with
// opts.rebalance:true"
func TestRebalance(t *testing.T) {
	t.Parallel()
	s := shared(t)
	s.put(t, "subscribe.rebalance", "x", "1")
	a, quiet := s.dial(t), s.dial(t)
	a.ok(`{"op":"SUBSCRIBE","topic":"subscribe.rebalance","group":"g","opts":{"rebalance":true}}`)
	f := a.await("ASSIGNED", func(f object) bool { return f["op"] == "ASSIGNED" })
	if p, _ := f["partitions"].([]any); len(p) == 0 || f["topic"] != "subscribe.rebalance" || f["group"] != "g" {
		t.Errorf("%v", f)
	}
	quiet.ok(`{"op":"SUBSCRIBE","topic":"subscribe.rebalance","group":"g"}`)
	if f := quiet.within(instant, func(f object) bool { return f["op"] == "ASSIGNED" || f["op"] == "REVOKED" }); f != nil {
		t.Errorf("without rebalance:true: %v", f)
	}
}

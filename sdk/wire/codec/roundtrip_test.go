package codec

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
)

func sameEvent(a, b *wire.Event) bool {
	samePlace := a.Topic == b.Topic && a.Partition == b.Partition && a.Seq == b.Seq && a.Spooled == b.Spooled
	sameNames := a.ID == b.ID && a.TS == b.TS && a.Key == b.Key && a.SID == b.SID
	sameLists := slices.Equal(a.Headers, b.Headers) && slices.Equal(a.Tags, b.Tags) && slices.Equal(a.CausedBy, b.CausedBy)
	return samePlace && sameNames && sameLists && bytes.Equal(a.Payload, b.Payload) && a.Binary == b.Binary
}

func fullEvent() *wire.Event {
	return &wire.Event{ID: "id-1", TS: 1723140000000, Topic: "orders.created", Partition: 3, Seq: 1042, Key: "customer \"17\"",
		Headers: wire.Headers{{Name: "b", Value: "2"}, {Name: "a", Value: "é\n"}},
		Tags:    []string{"eu", ""}, CausedBy: []string{"id-0"}, SID: "boot-1", TTLMS: 60000,
		Payload: []byte(`{"any":"JSON","n":12345678901234567890}`)}
}

func TestAppendJSONIsTheContractsForm(t *testing.T) {
	want := `{"id":"id-1","ts":1723140000000,"topic":"orders.created","partition":3,"seq":1042,"key":"customer \"17\"",` +
		`"headers":{"b":"2","a":"é\n"},` +
		`"tags":["eu",""],"caused_by":["id-0"],"sid":"boot-1","ttl_ms":60000,"payload":{"any":"JSON","n":12345678901234567890}}`
	if got := string(AppendEventJSON(nil, fullEvent())); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	spare := &wire.Event{ID: "x", Topic: "t", Binary: true, Payload: []byte{0, 255}, Spooled: true}
	if got, want := string(AppendEventJSON(nil, spare)), `{"id":"x","ts":0,"topic":"t","payload_base64":"AP8=","spooled":true}`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestAppendEventAllocatesNothing(t *testing.T) {
	e, dst := fullEvent(), make([]byte, 0, 4096)
	if n := testing.AllocsPerRun(100, func() { dst = AppendEvent(dst[:0], e.Topic, "g", AppendEventJSON, e, 1, 30000) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestRepliesRoundTrip(t *testing.T) {
	e, spare := fullEvent(), &wire.Event{ID: "x", Topic: "t", Payload: []byte("1"), Spooled: true}
	refused := &wire.Error{Code: wire.RateLimited, Msg: "too \"fast\"", RetryAfter: 1500 * time.Microsecond, Scope: "topic", Seq: 7,
		Fields: []wire.FieldError{{Field: "rate.limit", Message: "is negative"}}, Missing: []string{"node-2"}, Pointer: "/a/0",
		IDs: []string{"a"}}
	received := *refused
	received.RetryAfter = 2 * time.Millisecond // whole milliseconds, rounded up
	stored := wire.Receipt{ID: "a", TS: 5, Partition: 2, Seq: 9, Duplicate: true}
	spooled := wire.Receipt{ID: "b", TS: 6, Spooled: true}
	results := []wire.ResultItem{{Receipt: stored}, {Err: refused}, {Receipt: spooled}}
	answered := []wire.ResultItem{{Receipt: stored}, {Err: &received}, {Receipt: spooled}}
	events := AppendEventsStart(nil, "t", "g")
	events = AppendEventsEnd(AppendEventsItem(AppendEventsItem(events, AppendEventJSON, e, 1, 30000), AppendEventJSON, spare, 2, 5))
	for _, c := range []struct {
		frame []byte
		want  Reply
	}{
		{AppendOK(nil, "c", true), Reply{Op: wire.OpOK, Corr: "c", HasCorr: true}},
		{AppendOK(nil, "", false), Reply{Op: wire.OpOK}},
		{AppendReceipt(nil, &stored, "c", true), Reply{Op: wire.OpOK, Corr: "c", HasCorr: true, Receipt: stored}},
		{AppendReceipt(nil, &spooled, "", true), Reply{Op: wire.OpOK, HasCorr: true, Receipt: spooled}},
		{AppendResults(nil, results, "c", true), Reply{Op: wire.OpOK, Corr: "c", HasCorr: true, Results: answered}},
		{AppendErr(nil, refused, "c", true), Reply{Op: wire.OpErr, Corr: "c", HasCorr: true, Err: &received}},
		{AppendEvent(nil, "t", "", AppendEventJSON, e, 3, 100),
			Reply{Op: wire.OpEvent, Topic: "t", Deliveries: []wire.Delivery{{Event: *e, Attempt: 3,
				AckDeadlineMS: 100}}}},
		{events, Reply{Op: wire.OpEvents, Topic: "t", Group: "g", Deliveries: []wire.Delivery{{Event: *e, Attempt: 1, AckDeadlineMS: 30000},
			{Event: *spare, Attempt: 2, AckDeadlineMS: 5}}}},
		{AppendAssignment(nil, wire.OpAssigned, "t", "g", []int{0, 5}), Reply{Op: wire.OpAssigned, Topic: "t", Group: "g", Partitions: []int{0,
			5}}},
	} {
		if !json.Valid(c.frame) {
			t.Errorf("not JSON: %s", c.frame)
		}
		got, err := DecodeReply(c.frame)
		if err != nil || !reflect.DeepEqual(*got, c.want) {
			t.Errorf("%s\ngot  %+v (%v)\nwant %+v", c.frame, got, err, c.want)
		}
	}
	if got, err := ParseReceipt(AppendReceiptBody(nil, &stored)); err != nil || got != stored {
		t.Errorf("got %+v (%v)", got, err)
	}
	if got, err := ParseResults(AppendResultsBody(nil, results)); err != nil || !reflect.DeepEqual(got, answered) {
		t.Errorf("got %+v (%v)", got, err)
	}
	if got := ParseErrorBody(429, AppendErrorBody(nil, refused)); !reflect.DeepEqual(got, &received) {
		t.Errorf("got %+v", got)
	}
	if got := ParseErrorBody(404, []byte("<html>")); got.Code != wire.NotFound {
		t.Errorf("got %+v", got)
	}
}

func TestRequestsRoundTrip(t *testing.T) {
	e := fullEvent()
	e.Partition, e.Seq = 0, 0
	bytesOnly := wire.Event{Topic: "u", Binary: true, Payload: []byte{1}}
	n, many, yes, k := int64(5), 7, true, ""
	opts := wire.SubscribeOptions{From: wire.FromTS, TS: &n, MaxInflight: &many, AckTimeoutMS: &n, MaxAttempts: &many,
		MaxBatch: &many, Ordered: &yes,
		ExactlyOnce: true, DedupeTTLMS: &n, AutoAck: true, Rebalance: true, Filter: &wire.Filter{Key: &k, Tag: &k,
			Headers: wire.Headers{{Name: "a", Value: "b"}}}}
	ids := []string{"1", "2"}
	for _, c := range []struct {
		frame []byte
		want  Request
	}{
		{AppendPublish(nil, "c", &wire.PublishItem{Event: *e, HasTS: true, Later: wire.Later{DelayMS: &n}}), Request{Op: wire.OpPublish,
			Topic: e.Topic, Publish: wire.PublishItem{Event: *e, HasTS: true, Later: wire.Later{DelayMS: &n}}}},
		{AppendPublish(nil, "c", &wire.PublishItem{Event: bytesOnly}), Request{Op: wire.OpPublish, Topic: "u",
			Publish: wire.PublishItem{Event: bytesOnly}}},
		{AppendPublishBatch(nil, "c", e.Topic, []wire.PublishItem{{Event: *e, HasTS: true},
			{Event: bytesOnly, Later: wire.Later{DeliverAt: &n}}}),
			Request{Op: wire.OpPublish, Topic: e.Topic, IsBatch: true, Events: []wire.PublishItem{{Event: *e, HasTS: true},
				{Event: bytesOnly, Later: wire.Later{DeliverAt: &n}}}}},
		{AppendSubscribe(nil, "c", "t", "g", &opts), Request{Op: wire.OpSubscribe, Topic: "t", Group: "g", Subscribe: opts}},
		{AppendSubscribe(nil, "c", "t", "", nil), Request{Op: wire.OpSubscribe, Topic: "t"}},
		{AppendOnSubscription(nil, wire.OpUnsubscribe, "c", "t", "g"), Request{Op: wire.OpUnsubscribe, Topic: "t", Group: "g"}},
		{AppendAck(nil, "c", "t", "g", "1"), Request{Op: wire.OpAck, Topic: "t", Group: "g", IDs: ids[:1]}},
		{AppendAck(nil, "c", "t", "g", ids...), Request{Op: wire.OpAck, Topic: "t", Group: "g", IDs: ids}},
		{AppendToAck(AppendAck(nil, "c", "t", "g", ids...), "]}"), Request{Op: wire.OpAck, Topic: "t", Group: "g",
			IDs: []string{"1", "2", "]}"}}},
		{AppendToAck(AppendToAck(AppendAck(nil, "c", "t", "g", "]"), "1"), "2", "3"), Request{Op: wire.OpAck, Topic: "t", Group: "g",
			IDs: []string{"1", "2", "3", "]"}}},
		{AppendNack(nil, "c", "t", "g", ids, wire.Nack{Reason: "why", DelayMS: &n, DeadLetter: true}), Request{Op: wire.OpNack, Topic: "t",
			Group: "g", IDs: ids, Nack: wire.Nack{Reason: "why", DelayMS: &n, DeadLetter: true}}},
		{AppendModAck(nil, "c", "t", "g", ids, 5), Request{Op: wire.OpModAck, Topic: "t", Group: "g", IDs: ids, ExtendMS: &n}},
		{AppendOnSubscription(nil, wire.OpPause, "c", "t", "g"), Request{Op: wire.OpPause, Topic: "t", Group: "g"}},
		{AppendOnSubscription(nil, wire.OpResume, "c", "t", ""), Request{Op: wire.OpResume, Topic: "t"}},
		{AppendPing(nil, "c"), Request{Op: wire.OpPing}},
		{AppendAuth(nil, "c", "secret"), Request{Op: wire.OpAuth, Token: "secret"}},
	} {
		c.want.Corr, c.want.HasCorr = "c", true
		got, err := DecodeRequest(c.frame, wire.DefaultLimits())
		if err != nil || !reflect.DeepEqual(*got, c.want) {
			t.Errorf("%s\ngot  %+v (%v)\nwant %+v", c.frame, got, err, c.want)
		}
	}
	if p := ParsePublishLine(AppendPublishLine(nil, &wire.PublishItem{Event: *e, HasTS: true}), wire.DefaultLimits()); p.Err != nil ||
		p.Event.ID != e.ID || p.Event.Topic != "" {
		t.Errorf("got %+v", p)
	}
}

func FuzzParseEvent(f *testing.F) {
	f.Add(AppendEventJSON(nil, fullEvent()))
	f.Add([]byte(`{"id":"\u0041","ts":1e3,"payload_base64":"AA==","spooled":true,"extra":[[]]}`))
	for _, text := range nasty {
		f.Add([]byte(`{"payload":` + text + `}`))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		e, err := ParseEvent(text)
		if err != nil {
			return
		}
		if e.Seq == 0 {
			e.Partition = 0 // it has no meaning without a seq, and is left out
		}
		out := AppendEventJSON(nil, &e)
		back, err := ParseEvent(out)
		if err != nil || !json.Valid(out) && len(out) < 10_000 || !sameEvent(&e, &back) {
			t.Fatalf("%q: %+v became %s, and that %+v (%v)", text, e, out, back, err)
		}
	})
}

func FuzzDecodeReply(f *testing.F) {
	f.Add(AppendEvent(nil, "t", "g", AppendEventJSON, fullEvent(), 1, 5))
	f.Add([]byte(`{"op":"OK","results":[{"id":"a","seq":1},{"code":"conflict","msg":"m","fields":[{"field":"f"},1]},2]}`))
	for _, frame := range sidecarFrames(fullEvent(), &wire.Event{ID: "x", Topic: "u", Binary: true, Payload: []byte{0}, Spooled: true}) {
		f.Add(frame)
		f.Add(bytes.ReplaceAll(frame, []byte("1"), []byte("01"))) // no number
	}
	f.Add([]byte(`{"op":"EVENTS","events":[{"event":{"id":"a","payload":1},"ctx":{"attempt":1}}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := decodeAnyReply(text)
		if err == nil && (r == nil || r.Op == "") {
			t.Fatalf("%q: %+v", text, r)
		}
		if fast := decodeFast(text); fast != nil && (err != nil || !reflect.DeepEqual(fast, r)) {
			t.Fatalf("%q: the fast path gives\n%+v, the general one\n%+v (%v)", text, fast, r, err)
		}
		ParseErrorBody(500, text)
	})
}

package codec

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/sluice-bus/sluice/sdk/wire"
)

func times(n int, format string) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}

// pub is a PUBLISH to a good topic, with more behind it.
func pub(more string) string { return `{"op":"PUBLISH","corr":"c","topic":"t",` + more + `}` }

func TestDecodeRequestRefuses(t *testing.T) {
	long := strings.Repeat("x", 2000)
	const ack = `{"op":"ACK","corr":"c","topic":"t","group":"g",`
	const sub = `{"op":"SUBSCRIBE","corr":"c","topic":"t","opts":`
	for _, c := range []struct {
		frame string
		code  wire.Code
		says  string
	}{
		{``, wire.BadJSON, ""}, {`{"corr":"c"`, wire.BadJSON, "byte 11"}, {`{"corr":"c"} x`, wire.BadJSON, ""},
		{"{\"corr\":\"c\",\"op\":\"\xff\"}", wire.BadJSON, "UTF-8"},
		{pub(`"payload":01`), wire.BadJSON, "zero"}, {`[1]`, wire.BadRequest, "object"}, {`"x"`, wire.BadRequest, "object"},
		{`{"corr":"c"}`, wire.BadRequest, "op"}, {`{"corr":"c","op":null}`, wire.BadRequest, "op"},
		{`{"corr":"c","op":1}`, wire.BadRequest, "op"},
		{`{"corr":"c","op":"FLY"}`, wire.UnknownOp, "FLY"}, {`{"op":"PUBLSH"}`, wire.UnknownOp, `did you mean "PUBLISH"?`},
		{`{"corr":"c","op":"ping"}`, wire.UnknownOp, "ping"},
		{`{"corr":1,"op":"PING"}`, wire.BadRequest, "corr"}, {`{"corr":"\ud800","op":"PING"}`, wire.BadRequest, "corr"},
		{`{"op":"PUBLISH","corr":"c","payload":1}`, wire.BadRequest, "topic"},
		{`{"op":"PUBLISH","corr":"c","topic":"_t","payload":1}`, wire.BadRequest, "reserved"},
		{`{"op":"PUBLISH","corr":"c","topic":"a b","payload":1}`, wire.BadRequest, "topic"},
		{`{"op":"PUBLISH","corr":"c","topic":"` + long + `","payload":1}`, wire.BadRequest, "255"},
		{pub(`"x":1`), wire.BadRequest, "payload"}, {pub(`"payload":1,"payload_base64":""`), wire.BadRequest, "not both"},
		{pub(`"payload_base64":1`), wire.BadRequest, "payload_base64"},
		{pub(`"payload_base64":"!"`), wire.BadRequest, "base64"}, {pub(`"payload":` + strings.Repeat("[", 513) + strings.Repeat("]", 513)),
			wire.BadRequest, "512"},
		{pub(`"payload":"` + strings.Repeat("x", 1<<20) + `"`), wire.PayloadTooLarge, "payload"},
		{pub(`"payload":1,"opts":1`), wire.BadRequest, "opts"},
		{pub(`"payload":1,"opts":{"id":""}`), wire.BadRequest, "id"}, {pub(`"payload":1,"opts":{"id":"a b"}`), wire.BadRequest, "id"},
		{pub(`"payload":1,"opts":{"id":"\u200b"}`), wire.BadRequest, "id"},
		{pub(`"payload":1,"opts":{"id":"` + long + `"}`), wire.BadRequest, "id"}, {pub(`"payload":1,"opts":{"id":1}`), wire.BadRequest, "id"},
		{pub(`"payload":1,"opts":{"id":"\udc00"}`), wire.BadRequest, "id"},
		{pub(`"payload":1,"opts":{"ts":-1}`), wire.BadRequest, "ts"}, {pub(`"payload":1,"opts":{"ts":1.5}`), wire.BadRequest, "ts"},
		{pub(`"payload":1,"opts":{"ts":"1"}`), wire.BadRequest, "ts"},
		{pub(`"payload":1,"opts":{"ts":9007199254740992}`), wire.BadRequest, "ts"},
		{pub(`"payload":1,"opts":{"ts":1e99999999999999999999}`), wire.BadRequest, "ts"},
		{pub(`"payload":1,"opts":{"key":"` + long + `"}`), wire.BadRequest, "key"},
		{pub(`"payload":1,"opts":{"key":"\ud800"}`), wire.BadRequest, "key"},
		{pub(`"payload":1,"opts":{"sid":"` + long + `"}`), wire.BadRequest, "sid"},
		{pub(`"payload":1,"opts":{"ttl_ms":0}`), wire.BadRequest, "ttl_ms must be a whole number from 1"},
		{pub(`"payload":1,"opts":{"ttl_ms":1.5}`), wire.BadRequest, "ttl_ms"},
		{pub(`"payload":1,"opts":{"ttl_ms":"1"}`), wire.BadRequest, "ttl_ms"},
		{pub(`"payload":1,"opts":{"ttl_ms":315360000001}`), wire.BadRequest, "315360000000"},
		{pub(`"payload":1,"opts":{"headers":[]}`), wire.BadRequest, "headers"},
		{pub(`"payload":1,"opts":{"headers":{"a":1}}`), wire.BadRequest, "headers"},
		{pub(`"payload":1,"opts":{"headers":{"":"x"}}`), wire.BadRequest, "headers"},
		{pub(`"payload":1,"opts":{"headers":{` + times(65, `"h%d":""`) + `}}`), wire.PayloadTooLarge, "64"},
		{pub(`"payload":1,"opts":{"headers":{"a":"` + strings.Repeat("x", 16<<10) + `"}}`), wire.PayloadTooLarge, "headers"},
		{pub(`"payload":1,"opts":{"tags":"x"}`), wire.BadRequest, "tags"}, {pub(`"payload":1,"opts":{"tags":[1]}`), wire.BadRequest, "tags"},
		{pub(`"payload":1,"opts":{"tags":[` + times(65, `"%d"`) + `]}`), wire.BadRequest, "tags"},
		{pub(`"payload":1,"opts":{"caused_by":["` + long + `"]}`), wire.BadRequest, "caused_by"},
		{pub(`"events":{}`), wire.BadRequest, "events"}, {pub(`"events":[],"payload":1`), wire.BadRequest, "not both"},
		{pub(`"events":[],"opts":{"key":"k"}`), wire.BadRequest, "opts"},
		{pub(`"events":[` + times(1001, `{"payload":%d}`) + `]`), wire.PayloadTooLarge, "1000"},
		{pub(`"events":[` + strings.Repeat(" ", 8<<20) + `]`), wire.PayloadTooLarge, "batch"},
		{ack + `"x":1}`, wire.BadRequest, "id"}, {ack + `"id":1}`, wire.BadRequest, "id"}, {ack + `"ids":[]}`, wire.BadRequest, "id"},
		{ack + `"ids":"a"}`, wire.BadRequest, "ids"}, {ack + `"ids":[1]}`, wire.BadRequest, "ids"},
		{ack + `"ids":[` + times(10_001, `"%d"`) + `]}`, wire.BadRequest, "10000"},
		{`{"op":"ACK","corr":"c","topic":"t","id":"1"}`, wire.BadRequest, "group"},
		{`{"op":"ACK","corr":"c","group":"g","id":"1"}`, wire.BadRequest, "topic"},
		{`{"op":"NACK","corr":"c","topic":"t","group":"g","id":"1","delay_ms":-1}`, wire.BadRequest, "delay_ms"},
		{`{"op":"NACK","corr":"c","topic":"t","group":"g","id":"1","reason":1}`, wire.BadRequest, "reason"},
		{`{"op":"NACK","corr":"c","topic":"t","group":"g","id":"1","hold":true}`, wire.BadRequest, "delay_ms"},
		{`{"op":"NACK","corr":"c","topic":"t","group":"g","id":"1","hold":1,"delay_ms":1}`, wire.BadRequest, "hold"},
		{`{"op":"NACK","corr":"c","topic":"t","group":"g","id":"1","dead_letter":"yes"}`, wire.BadRequest, "dead_letter"},
		{`{"op":"NACK","corr":"c","topic":"t","group":"g","id":"1","dead_letter":true,"hold":true,"delay_ms":1}`, wire.BadRequest,
			"dead_letter and hold"},
		{`{"op":"MODACK","corr":"c","topic":"t","group":"g","id":"1"}`, wire.BadRequest, "extend_ms"},
		{`{"op":"MODACK","corr":"c","topic":"t","group":"g","id":"1","extend_ms":86400001}`, wire.BadRequest, "extend_ms"},
		{`{"op":"SUBSCRIBE","corr":"c"}`, wire.BadRequest, "topic"}, {`{"op":"SUBSCRIBE","corr":"c","topic":"t","group":"a/b"}`,
			wire.BadRequest, "group"}, {sub + `[]}`, wire.BadRequest, "opts"},
		{sub + `{"from":"then"}}`, wire.BadRequest, "from"}, {sub + `{"from":"ts"}}`, wire.BadRequest, "ts"},
		{sub + `{"from":"positions"}}`, wire.BadRequest, "positions is missing"},
		{sub + `{"from":"positions","positions":{},"ts":1}}`, wire.BadRequest, "ts goes with from ts"},
		{sub + `{"from":"ts","ts":1,"afterId":"x"}}`, wire.BadRequest, "afterId goes with from afterId, and from is ts"},
		{sub + `{"positions":{"0":1}}}`, wire.BadRequest, "positions goes with from positions, and from is missing"},
		{sub + `{"from":"afterId"}}`, wire.BadRequest, "afterId"}, {sub + `{"maxInflight":0}}`, wire.BadRequest, "maxInflight"},
		{sub + `{"maxInflight":100001}}`, wire.BadRequest, "maxInflight"}, {sub + `{"ackTimeoutMs":0}}`, wire.BadRequest, "ackTimeoutMs"},
		{sub + `{"maxAttempts":"5"}}`, wire.BadRequest, "maxAttempts"}, {sub + `{"maxBatch":1001}}`, wire.BadRequest, "maxBatch"},
		{sub + `{"ordered":1}}`, wire.BadRequest, "ordered"}, {sub + `{"exactlyOnce":"true"}}`, wire.BadRequest, "exactlyOnce"},
		{sub + `{"dedupeTtlMs":0}}`, wire.BadRequest, "dedupeTtlMs"}, {sub + `{"autoAck":0}}`, wire.BadRequest, "autoAck"},
		{sub + `{"filter":[]}}`, wire.BadRequest, "filter"}, {sub + `{"filter":{"key":1}}}`, wire.BadRequest, "filter.key"},
		{sub + `{"filter":{"header":{"a":1}}}}`, wire.BadRequest, "filter.header"},
		{sub + `{"filter":{"key":"` + strings.Repeat("k", 513) + `"}}}`, wire.BadRequest, "filter.key is 513 bytes"},
		{sub + `{"filter":{"tag":"` + strings.Repeat("t", 257) + `"}}}`, wire.BadRequest, "filter.tag is 257 bytes"},
		{sub + `{"filter":{"header":{"a":"` + strings.Repeat("v", 16<<10) + `"}}}}`, wire.BadRequest, "filter.header has more"},
		{`{"op":"UNSUBSCRIBE","corr":"c"}`, wire.BadRequest, "topic"}, {`{"op":"AUTH","corr":"c","token":1}`, wire.BadRequest, "token"},
	} {
		r, err := DecodeRequest([]byte(c.frame), wire.DefaultLimits())
		if err == nil || err.Code != c.code || !strings.Contains(err.Msg, c.says) {
			t.Errorf("%.100s: %v, want %s naming %s", c.frame, err, c.code, c.says)
			continue
		}
		if len(err.Msg) > 300 || !utf8.ValidString(err.Msg) {
			t.Errorf("%.100s: message of %d bytes", c.frame, len(err.Msg))
		}
		if want := strings.Contains(c.frame, `"corr":"c"`); r.HasCorr != want || want && r.Corr != "c" {
			t.Errorf("%.100s: corr %q, %v", c.frame, r.Corr, r.HasCorr)
		}
	}
}

func TestDecodeRequestAccepts(t *testing.T) {
	decode := func(frame string) *Request {
		t.Helper()
		r, err := DecodeRequest([]byte(frame), wire.DefaultLimits())
		if err != nil {
			t.Fatalf("%.100s: %v", frame, err)
		}
		return r
	}
	deep := strings.Repeat("[", 512) + strings.Repeat("]", 512)
	for payload, want := range map[string]string{` { "b" : 1, "a" : [ 1e400 ] } `: `{"b":1,"a":[1e400]}`, `null`: `null`,
		`"\ud800"`: `"\ud800"`, deep: deep,
		`"` + strings.Repeat("x", 1<<20-2) + `"`: `"` + strings.Repeat("x", 1<<20-2) + `"`} {
		if r := decode(pub(`"payload":` + payload)); string(r.Publish.Event.Payload) != want || r.Publish.Event.Topic != "t" {
			t.Errorf("payload %.40s became %.40s", payload, r.Publish.Event.Payload)
		}
	}
	e := decode(pub(`"payload":0,"payload":1,"opts":{"id":"\u0041é","ts":1.7e3,"key":"",` +
		`"headers":{"a":"1","a":"2","b":null},"tags":["x",""],"caused_by":["y"],"sid":null,"ttl_ms":5e3}`)).Publish
	want := wire.Event{ID: "Aé", TS: 1700, Topic: "t", Headers: wire.Headers{{Name: "a", Value: "2"}}, Tags: []string{"x", ""},
		CausedBy: []string{"y"}, TTLMS: 5000, Payload: []byte("1")}
	if !reflect.DeepEqual(e.Event, want) || !e.HasTS {
		t.Errorf("got %+v", e)
	}
	if e := decode(pub(`"payload":null,"payload_base64":"AP8\/"`)).Publish.Event; !e.Binary || string(e.Payload) != "\x00\xff\x3f" {
		t.Errorf("base64 became %q", e.Payload)
	}
	if r := decode(`{"opts":null,"topic":"_sys","op":"SUBSCRIBE","group":""}`); r.HasCorr || r.Group != "" || r.Topic != "_sys" {
		t.Errorf("got %+v", r)
	}
	if r := decode(`{"op":"ACK","topic":"t","group":"g","id":"1","ids":["2","3"]}`); !reflect.DeepEqual(r.IDs, []string{"2", "3", "1"}) {
		t.Errorf("got %v", r.IDs)
	}
	if r := decode(`{"op":"PING","corr":` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + `,"corr":""}`); !r.HasCorr {
		t.Error("an empty corr is one")
	}
}

func TestBatchGoesOnWithoutTheBadEvents(t *testing.T) {
	frame := pub(`"events":[{"payload":1},{"payload":2,"topic":"u"},{"topic":"_x","payload":3},7,{"opts":{}},{"payload":6,"opts":{"id":"` +
		strings.Repeat("x", 129) + `"}},{"payload":"` + strings.Repeat("x", 1<<20) + `"},{"payload":8,"opts":{"id":"8"}}]`)
	r, err := DecodeRequest([]byte(frame), wire.DefaultLimits())
	if err != nil || !r.IsBatch {
		t.Fatal(err)
	}
	var got []string
	for _, p := range r.Events {
		if p.Err != nil {
			got = append(got, string(p.Err.Code))
		} else {
			got = append(got, p.Event.Topic+"="+string(p.Event.Payload))
		}
	}
	want := "t=1 u=2 bad_request bad_request bad_request bad_request payload_too_large t=8"
	if s := strings.Join(got, " "); s != want {
		t.Errorf("got %s, want %s", s, want)
	}
	r, err = DecodeRequest([]byte(`{"op":"PUBLISH","events":[{"payload":1},{"topic":"t","payload":1}]}`), wire.DefaultLimits())
	if err != nil || r.Events[0].Err == nil || r.Events[1].Err != nil {
		t.Errorf("without a topic in the frame: %v, %+v", err, r.Events)
	}
	if r, err := DecodeRequest([]byte(pub(`"events":[]`)), wire.DefaultLimits()); err != nil || !r.IsBatch || len(r.Events) != 0 {
		t.Errorf("an empty batch: %+v, %v", r, err)
	}
}

func TestParsePublishLine(t *testing.T) {
	for line, code := range map[string]wire.Code{`{"payload":1,"opts":{"id":"x"}}`: "", `{"payload":`: wire.BadJSON, ``: wire.BadJSON,
		`[1]`: wire.BadRequest, `{}`: wire.BadRequest, "{\"payload\":\"\xff\"}": wire.BadJSON} {
		p := ParsePublishLine([]byte(line), wire.DefaultLimits())
		read, refused := p.Err == nil && p.Event.ID == "x", p.Err != nil && p.Err.Code == code
		if code == "" && !read || code != "" && !refused {
			t.Errorf("%q: %+v", line, p)
		}
	}
}

func TestCheckReadTopic(t *testing.T) {
	longest := strings.Repeat("t", wire.MaxTopicBytes)
	for name, ok := range map[string]bool{"": false, "_sys": true, longest: true, longest + "x": false, longest + ".dlq": true,
		longest + ".dlq.dlq": true,
		longest + "x.dlq":    false, longest + strings.Repeat(".dlq", 100): false, "a/b": false} {
		if err := CheckReadTopic(name); (err == nil) != ok {
			t.Errorf("%.20s (%d): %v", name, len(name), err)
		}
	}
}

func FuzzDecodeRequest(f *testing.F) {
	f.Add(publishFrame)
	for _, text := range nasty {
		f.Add([]byte(pub(`"payload":` + text)))
		f.Add([]byte(text))
	}
	f.Add([]byte(pub(`"events":[{"payload":1,"topic":"u","opts":{"tags":["a"],"headers":{"a":"b"}}},3]`)))
	f.Add([]byte(`{"op":"SUBSCRIBE","topic":"t","group":"g","opts":{"from":"ts","ts":5,"maxBatch":10,"ordered":false,` +
		`"filter":{"key":"k","header":{"a":"b"}}}}`))
	f.Add([]byte(`{"op":"MODACK","topic":"t","group":"g","ids":["a","b"],"extend_ms":1e3,"corr":"\u0041"}`))
	lim := wire.DefaultLimits()
	lim.PayloadBytes, lim.BatchEvents, lim.JSONDepth, lim.HeaderCount = 500, 5, 5, 3
	f.Fuzz(func(t *testing.T, frame []byte) {
		r, err := DecodeRequest(frame, lim)
		if err != nil {
			if err.Code.HTTPStatus() == 500 || err.Msg == "" || !utf8.ValidString(err.Msg) {
				t.Fatalf("%q: %+v", frame, err)
			}
			return
		}
		for _, p := range append(r.Events, r.Publish) {
			if p.Err != nil || r.Op != wire.OpPublish || r.IsBatch && p.Event.Topic == "" {
				continue
			}
			e := &p.Event
			badID := e.ID != "" && CheckID(e.ID) != nil
			if badID || CheckTopic(e.Topic) != nil || CheckKey(e.Key, lim) != nil || CheckHeaders(e.Headers, lim) != nil || CheckTS(e.TS) != nil {
				t.Fatalf("%q let pass %+v", frame, e)
			}
			if compact, err := CompactPayload(e.Payload, lim); !e.Binary && (err != nil || string(compact) != string(e.Payload)) {
				t.Fatalf("%q let pass the payload %q: %v", frame, e.Payload, err)
			}
			back, bad := ParseEvent(AppendEventJSON(nil, e))
			if bad != nil || !sameEvent(&back, e) {
				t.Fatalf("%+v came back as %+v (%v)", e, back, bad)
			}
		}
	})
}

// Events stay in caches for long: they must not keep, or share, their frame.
func TestRequestKeepsNothingOfItsFrame(t *testing.T) {
	e := fullEvent()
	for _, binary := range []bool{false, true} {
		e.Binary = binary
		frame := AppendPublishBatch(nil, "c", "", []wire.PublishItem{{Event: *e, HasTS: true}})
		r, err := DecodeRequest(frame, wire.DefaultLimits())
		if err != nil {
			t.Fatal(err)
		}
		clear(frame)
		got := r.Events[0].Event
		got.Partition, got.Seq = e.Partition, e.Seq
		if !sameEvent(&got, e) {
			t.Errorf("got %+v", got)
		}
	}
}

// Decoding a frame allocates what the request keeps, and nothing for the frame.
func TestDecodingAllocates(t *testing.T) {
	for text, most := range map[string]float64{
		`{"op":"ACK","topic":"t","group":"g","ids":["a"],"corr":"1"}`:                           2,
		`{"op":"ACK","topic":"t","group":"g","ids":["c0ffee-1","c0ffee-2","c0ffee-3"]}`:         3,
		`{"op":"PUBLISH","topic":"t","opts":{"id":"a","key":"k"},"payload":{"n":1},"corr":"1"}`: 4,
	} {
		frame := []byte(text)
		if n := testing.AllocsPerRun(100, func() { DecodeRequest(frame, wire.DefaultLimits()) }); n > most {
			t.Errorf("%s: %v allocations, want at most %v", text, n, most)
		}
	}
}

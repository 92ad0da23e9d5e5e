package contract

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"net/url"
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

// faithful are payloads that must be "handed out equal to what came in: object member order kept,
// numbers equal as decimals, strings exact".
var faithful = []string{
	`null`, `true`, `false`, `""`, `[]`, `{}`, `0`, `-0`, `"text"`,
	`12345678901234567890`, `0.1`, `1e400`, `-1E-400`, `1.10`, `123456789.123456789123456789`, `1e+5`,
	`9007199254740993`, `-9223372036854775809`, `18446744073709551616`,
	`{"z":1,"a":2,"m":{"b":1,"a":2}}`, `{"":0," ":1}`, `{"10":1,"9":2,"1":3}`,
	`[1,"1",1.0,[],{},null,true]`, `[[[[[[]]]]]]`, `{"payload":{"payload":1},"op":"ACK","corr":"x"}`,
	`"naïve ☃ 😀 \u0000 \u001f \" \\ \/ \b\f\n\r\t"`, `"\u00e9\u2028\u2029<>&"`, `"\ud83d\ude00"`, "\"\u2028\u2029\u007f\ufeff\"",
	`{"\u0061":"\u0062","é":"<script>&amp;"}`, `{"__proto__":1,"constructor":2}`,
}

// tokens is a JSON text as its tokens, numbers as exact decimals.
func tokens(t testing.TB, text []byte) []string {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var out []string
	for {
		tok, err := d.Token()
		if err == io.EOF {
			return out
		}
		if err != nil {
			t.Fatalf("%v in %.200q", err, text)
		}
		if n, ok := tok.(json.Number); ok {
			r, _ := new(big.Rat).SetString(n.String())
			out = append(out, "number "+r.RatString())
			continue
		}
		out = append(out, fmt.Sprintf("%T %v", tok, tok))
	}
}

func wantSame(t testing.TB, what, want string, got []byte) {
	t.Helper()
	if w, g := tokens(t, []byte(want)), tokens(t, got); strings.Join(w, "\n") != strings.Join(g, "\n") {
		t.Errorf("%s: sent %s, got %s", what, want, got)
	}
}

type rawEvent struct {
	ID      string          `json:"id"`
	Payload json.RawMessage `json:"payload"`
}

// payloadOf is an event's payload as the frame has it.
func payloadOf(t testing.TB, frame object) []byte {
	t.Helper()
	var f struct{ Event rawEvent }
	require.NoError(t, json.Unmarshal(frame[asSent].(frameText), &f))
	return f.Event.Payload
}

// TestPayloadsAreHandedOutEqual publishes every payload over each way in and reads it over each way
// out.
func TestPayloadsAreHandedOutEqual(t *testing.T) {
	t.Parallel()
	s := shared(t)
	k := s.dial(t)
	const topic = "one.faithful"
	k.ok(`{"op":"SUBSCRIBE","topic":%q,"opts":{"from":"earliest"}}`, topic)
	var sent []string
	var lines, batch strings.Builder
	for i, p := range faithful {
		sent = append(sent, p, p)
		k.ok(`{"op":"PUBLISH","topic":%q,"opts":{"ts":%d},"payload":%s}`, topic, len(sent), p)
		s.put(t, topic, fmt.Sprint("http", i), p, fmt.Sprint("Sluice-Ts: ", len(sent)))
	}
	for i, p := range faithful {
		fmt.Fprintf(&lines, `{"payload":%s,"opts":{"ts":%d}}`+"\n", p, 1000+i)
		fmt.Fprintf(&batch, `,{"payload":%s,"opts":{"ts":%d}}`, p, 2000+i)
	}
	if a := s.post(t, topic, lines.String(), "Content-Type: application/x-ndjson"); a.Status != 200 {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	k.ok(`{"op":"PUBLISH","topic":%q,"events":[%s]}`, topic, batch.String()[1:])
	sent = append(append(sent, faithful...), faithful...)

	for i, f := range k.events(len(sent)) {
		wantSame(t, fmt.Sprint("EVENT ", f.Text("event.id")), sent[i], payloadOf(t, f))
	}
	var page struct{ Events []rawEvent }
	if err := json.Unmarshal(testkit.Call(t, "GET", s.ReplayURL()+"/replay?topic="+topic, "").Body, &page); err != nil ||
		len(page.Events) != len(sent) {
		t.Fatalf("%v, %d events", err, len(page.Events))
	}
	export := strings.Split(strings.TrimSpace(string(testkit.Call(t, "GET", s.ReplayURL()+"/export?topic="+topic, "").Body)), "\n")
	if len(export) != len(sent) {
		t.Fatalf("%d lines exported, want %d", len(export), len(sent))
	}
	for i := range sent {
		wantSame(t, "replay", sent[i], page.Events[i].Payload)
		var e rawEvent
		require.NoError(t, json.Unmarshal([]byte(export[i]), &e))
		wantSame(t, "export", sent[i], e.Payload)
	}
}

// "a lone surrogate escape is kept or refused, never changed"
func TestLoneSurrogates(t *testing.T) {
	t.Parallel()
	s := shared(t)
	k := s.dial(t)
	k.ok(`{"op":"SUBSCRIBE","topic":"one.surrogates","opts":{"from":"earliest"}}`)
	for _, p := range []string{`"\ud800"`, `"\udc00x"`, `{"\udfff":1}`, `"\ud800\ud800"`, `"\ud83dx\ude00"`} {
		if r := k.ask(`{"op":"PUBLISH","topic":"one.surrogates","payload":%s}`, p); r["op"] == "OK" {
			if got := payloadOf(t, k.event()); !strings.EqualFold(string(got), p) {
				t.Errorf("%s was changed to %s", p, got)
			}
		} else if c := r["code"]; c != "bad_json" && c != "bad_request" {
			t.Errorf("%s: %v", p, r)
		}
		for _, opts := range []string{`{"key":%s}`, `{"sid":%s}`, `{"tags":[%s]}`, `{"headers":{"h":%s}}`, `{"caused_by":[%s]}`} {
			opts = fmt.Sprintf(opts, `"\ud800"`)
			if r := k.ask(`{"op":"PUBLISH","topic":"one.surrogates","payload":1,"opts":%s}`, opts); r["op"] == "OK" {
				if raw := k.event()[asSent].(frameText); !bytes.Contains(bytes.ToLower(raw), []byte(`\ud800`)) {
					t.Errorf("opts %s came out as %s", opts, raw)
				}
			}
		}
	}
	k.usable()
}

// "A payload that is not JSON travels as payload_base64 with headers["content-type"], byte for
// byte."
func TestPayloadsThatAreNotJSON(t *testing.T) {
	t.Parallel()
	s := shared(t)
	k := s.dial(t)
	k.ok(`{"op":"SUBSCRIBE","topic":"one.bytes","opts":{"from":"earliest"}}`)
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	coded := base64.StdEncoding.EncodeToString(all)
	s.put(t, "one.bytes", "octets", string(all), "Content-Type: application/octet-stream")
	s.put(t, "one.bytes", "text", `{"a": 1}`, "Content-Type: text/plain; charset=utf-8")
	s.put(t, "one.bytes", "nothing", "", "Content-Type: image/png")
	k.ok(`{"op":"PUBLISH","topic":"one.bytes","payload_base64":%q,"opts":{"id":"ws","headers":{"content-type":"x/y"}}}`, coded)
	for i, want := range []struct{ id, base64, kind string }{
		{"octets", coded, "application/octet-stream"},
		{"text", base64.StdEncoding.EncodeToString([]byte(`{"a": 1}`)), "text/plain; charset=utf-8"},
		{"nothing", "", "image/png"},
		{"ws", coded, "x/y"},
	} {
		e := k.event()
		got, has := e.At("event").(map[string]any)["payload_base64"]
		_, json := e.At("event").(map[string]any)["payload"]
		if e.Text("event.id") != want.id || !has || got != want.base64 || e.Text("event.headers.content-type") != want.kind || json {
			t.Errorf("%d: want %v, got %v", i, want, e["event"])
		}
	}
	k.refused("bad_request", `{"op":"PUBLISH","topic":"one.bytes","payload_base64":"%%%%"}`)
	k.refused("bad_request", `{"op":"PUBLISH","topic":"one.bytes","payload_base64":"AA==","payload":1}`)
	k.refused("bad_request", `{"op":"PUBLISH","topic":"one.bytes","payload_base64":7}`)
	k.refused("bad_request", `{"op":"PUBLISH","topic":"one.bytes"}`)
}

// "JSON is expected with application/json, …+json, no content type, and curl's default form type;
// any other type is kept as bytes."
func TestContentTypes(t *testing.T) {
	t.Parallel()
	s := shared(t)
	for i, c := range []struct {
		kind string
		json bool
	}{
		{"application/json", true}, {"application/json; charset=utf-8", true}, {"APPLICATION/JSON", true},
		{"application/vnd.a+json", true}, {"", true}, {"application/x-www-form-urlencoded", true},
		{"text/json-ish", false}, {"application/xml", false}, {"text/plain", false}, {"application/jsonx", false},
	} {
		id := fmt.Sprint("e", i)
		var headers []string
		if c.kind != "" {
			headers = []string{"Content-Type: " + c.kind}
		}
		s.put(t, "one.types", id, `{"a":1}`, headers...)
		e := s.replay(t, "topic=one.types&limit=100").List("events")[i]
		if _, json := e["payload"]; json != c.json {
			t.Errorf("%q: %v", c.kind, e)
		}
		if a := s.post(t, "one.types", `{"a":`, headers...); c.json && (a.Status != 400 || a.JSON(t)["code"] != "bad_json") {
			t.Errorf("%q with half a JSON body: %d %s", c.kind, a.Status, a.Body)
		}
	}
	for _, body := range []string{"", " ", "{} {}", "nul", "\"\xff\"", "{'a':1}", "[1,]", "01", "\"\n\"", "NaN"} {
		if a := s.post(t, "one.types", body, "Content-Type: application/json"); a.Status != 400 || a.JSON(t)["code"] != "bad_json" {
			t.Errorf("body %q: %d %s", body, a.Status, a.Body)
		}
	}
}

// "Absent optional fields are left out, not null". The given fields come out as they went in, the
// same in EVENT, replay and export: "A replayed or exported event is the same JSON object that
// subscribers get."
func TestEventFields(t *testing.T) {
	t.Parallel()
	s := shared(t)
	k := s.dial(t)
	k.ok(`{"op":"SUBSCRIBE","topic":"one.fields","opts":{"from":"earliest"}}`)
	bare := k.ok(`{"op":"PUBLISH","topic":"one.fields","payload":null}`)
	e := k.event().At("event").(map[string]any)
	if len(e) != 6 || e["id"] != bare["id"] || e["topic"] != "one.fields" ||
		fmt.Sprint(e["seq"], e["partition"], e["ts"]) != fmt.Sprint(bare["seq"], bare["partition"], bare["ts"]) {
		t.Errorf("want id, ts, topic, partition, seq and payload of %v, got %v", bare, e)
	}
	if id := bare.Text("id"); len(id) != 36 || id[14] != '7' {
		t.Errorf("%q is not a UUIDv7", id)
	}
	r := k.ok(`{"op":"PUBLISH","topic":"one.fields","payload":1,"opts":{"id":"i/d?&é","ts":9007199254740991,"key":"k ☃",
		"headers":{"A-b":"ü \u0000"},"tags":["eu",""],"caused_by":["x","y"],"sid":"boot-1"}}`)
	f := k.event()
	want := object{"id": "i/d?&é", "ts": json.Number("9007199254740991"), "topic": "one.fields", "partition": r["partition"], "seq": r["seq"],
		"key":     "k ☃",
		"headers": object{"A-b": "ü \x00"}, "tags": []any{"eu", ""}, "caused_by": []any{"x", "y"}, "sid": "boot-1", "payload": json.Number("1")}
	w, _ := json.Marshal(want)
	if g, _ := json.Marshal(f["event"]); !bytes.Equal(w, g) {
		t.Errorf("want %s\n got %s", w, g)
	}
	var frame struct{ Event json.RawMessage }
	require.NoError(t, json.Unmarshal(f[asSent].(frameText), &frame))
	line := testkit.Call(t, "GET", s.ReplayURL()+"/export?topic=one.fields&fromTs=9007199254740991&toTs=9007199254740991", "").Body
	if !bytes.Equal(bytes.TrimSpace(line), frame.Event) {
		t.Errorf("exported %s\nEVENT    %s", line, frame.Event)
	}
	page := testkit.Call(t, "GET", s.ReplayURL()+"/replay?topic=one.fields&from=afterId&afterId="+url.QueryEscape(bare.Text("id")), "").Body
	if !bytes.Contains(page, frame.Event) {
		t.Errorf("replayed %s\nEVENT    %s", page, frame.Event)
	}
}

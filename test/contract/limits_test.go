package contract

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

// text is a JSON string whose text has n bytes, quotes included.
func text(n int) string { return `"` + strings.Repeat("x", n-2) + `"` }

// TestFieldLimits holds section 2's limits, each at its edge and one beyond, over WebSocket.
func TestFieldLimits(t *testing.T) {
	t.Parallel()
	k := shared(t).dial(t)
	nested := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	headers := func(n int) string {
		h := map[string]string{}
		for i := range n {
			h[fmt.Sprint("h", i)] = ""
		}
		b, _ := json.Marshal(h)
		return string(b)
	}
	const topic = "one.limits"
	for _, c := range []struct{ name, rest, code, names string }{
		{"id 128", `"payload":1,"opts":{"id":` + text(130) + `}`, "", ""},
		{"id 129", `"payload":1,"opts":{"id":` + text(131) + `}`, "bad_request", "id"},
		{"id 128 visible characters", `"payload":1,"opts":{"id":"` + strings.Repeat("é", 128) + `"}`, "", ""},
		{"id empty", `"payload":1,"opts":{"id":""}`, "bad_request", "id"},
		{"id with a space", `"payload":1,"opts":{"id":"a b"}`, "bad_request", "id"},
		{"id with a control character", `"payload":1,"opts":{"id":"a\u0007"}`, "bad_request", "id"},
		{"id a number", `"payload":1,"opts":{"id":7}`, "bad_request", "id"},
		{"key 512", `"payload":1,"opts":{"key":` + text(514) + `}`, "", ""},
		{"key 513", `"payload":1,"opts":{"key":` + text(515) + `}`, "bad_request", "key"},
		{"key 513 bytes", `"payload":1,"opts":{"key":"` + strings.Repeat("é", 256) + `x"}`, "bad_request", "key"},
		{"ts negative", `"payload":1,"opts":{"ts":-1}`, "bad_request", "ts"},
		{"ts broken", `"payload":1,"opts":{"ts":1.5}`, "bad_request", "ts"},
		{"ts a string", `"payload":1,"opts":{"ts":"1"}`, "bad_request", "ts"},
		{"ts too large", `"payload":1,"opts":{"ts":1e30}`, "bad_request", "ts"},
		{"ts 0", `"payload":1,"opts":{"ts":0}`, "", ""},
		{"headers 64", `"payload":1,"opts":{"headers":` + headers(64) + `}`, "", ""},
		{"headers 65", `"payload":1,"opts":{"headers":` + headers(65) + `}`, "payload_too_large", "header"},
		{"headers 16 KiB", `"payload":1,"opts":{"headers":{"h":` + text(16384+1) + `}}`, "", ""},
		{"headers 16 KiB + 1", `"payload":1,"opts":{"headers":{"h":` + text(16384+2) + `}}`, "payload_too_large", "header"},
		{"header a number", `"payload":1,"opts":{"headers":{"h":1}}`, "bad_request", "header"},
		{"tags not a list", `"payload":1,"opts":{"tags":"eu"}`, "bad_request", "tags"},
		{"caused_by of numbers", `"payload":1,"opts":{"caused_by":[1]}`, "bad_request", "caused_by"},
		{"sid a list", `"payload":1,"opts":{"sid":[]}`, "bad_request", "sid"},
		{"opts not an object", `"payload":1,"opts":[]`, "bad_request", "opts"},
		{"payload 1 MiB", `"payload":` + text(1<<20), "", ""},
		{"payload 1 MiB + 1", `"payload":` + text(1<<20+1), "payload_too_large", "payload"},
		{"nesting 512", `"payload":` + nested(512), "", ""},
	} {
		r := k.ask(`{"op":"PUBLISH","topic":%q,%s}`, topic, c.rest)
		switch {
		case c.code == "" && r["op"] != "OK":
			t.Errorf("%s: %v", c.name, r)
		case c.code != "" && (r["code"] != c.code || !strings.Contains(r.Text("msg"), c.names)):
			t.Errorf("%s: want %s naming %s, got %v", c.name, c.code, c.names, r)
		}
	}
	// A nesting that is too deep must be refused. The contract leaves the code open.
	if r := k.ask(`{"op":"PUBLISH","topic":%q,"payload":%s}`, topic, nested(513)); r["op"] != "ERR" || r["code"] == "internal" {
		t.Errorf("nesting 513: %v", r)
	}
	k.usable()
}

func TestTopicNames(t *testing.T) {
	t.Parallel()
	s := shared(t)
	k := s.dial(t)
	for topic, good := range map[string]bool{
		strings.Repeat("t", 255): true, "A-Z_a.9": true, "-": true, "a.": true,
		strings.Repeat("t", 256): false, "": false, "_mine": false, "a b": false, "a/b": false, "é": false, "a*": false,
	} {
		r := k.ask(`{"op":"PUBLISH","topic":%q,"payload":1}`, topic)
		if good && r["op"] != "OK" || !good && (r["code"] != "bad_request" || !strings.Contains(r.Text("msg"), "topic")) {
			t.Errorf("topic %.20q: %v", topic, r)
		}
	}
	k.refused("bad_request", `{"op":"PUBLISH","payload":1}`)
	k.refused("bad_request", `{"op":"PUBLISH","topic":7,"payload":1}`)
	for _, path := range []string{strings.Repeat("t", 256), "_mine", "a%20b", "%C3%A9"} {
		if a := s.post(t, path, `1`); a.Status != 400 || a.JSON(t)["code"] != "bad_request" {
			t.Errorf("topic %.20s: %d %s", path, a.Status, a.Body)
		}
	}
}

// The same limits over HTTP: payload, batch of 1,000 and 8 MiB, key, id, headers.
func TestBodyLimits(t *testing.T) {
	t.Parallel()
	s := shared(t)
	line := `{"payload":1}` + "\n"
	big := func(n int) string { // n bytes in eight lines or more
		b := strings.Repeat(`{"payload":`+text(1<<20-100)+"}\n", n>>20)
		return b + `{"payload":` + text(n-len(b)-13) + "}\n"
	}
	var many []string
	for i := range 65 {
		many = append(many, fmt.Sprintf("Sluice-Header-H%d: v", i))
	}
	for _, c := range []struct {
		name, body string
		headers    []string
		status     int
		code       string
	}{
		{"payload 1 MiB", text(1 << 20), nil, 201, ""},
		{"payload 1 MiB + 1", text(1<<20 + 1), nil, 413, "payload_too_large"},
		{"bytes 1 MiB", strings.Repeat("\xff", 1<<20), []string{"Content-Type: a/b"}, 201, ""},
		{"bytes 1 MiB + 1", strings.Repeat("\xff", 1<<20+1), []string{"Content-Type: a/b"}, 413, "payload_too_large"},
		{"body of 20 MiB", text(20 << 20), nil, 413, "payload_too_large"},
		{"batch 1,000", strings.Repeat(line, 1000), []string{"Content-Type: application/x-ndjson"}, 200, ""},
		{"batch 1,001", strings.Repeat(line, 1001), []string{"Content-Type: application/x-ndjson"}, 413, "payload_too_large"},
		{"batch 8 MiB", big(8 << 20), []string{"Content-Type: application/x-ndjson"}, 200, ""},
		{"batch 9 MiB", big(9 << 20), []string{"Content-Type: application/x-ndjson"}, 413, "payload_too_large"},
		{"key 513", "1", []string{"Sluice-Key: " + strings.Repeat("k", 513)}, 400, "bad_request"},
		{"id 129", "1", []string{"Sluice-Id: " + strings.Repeat("k", 129)}, 400, "bad_request"},
		{"ts", "1", []string{"Sluice-Ts: soon"}, 400, "bad_request"},
		{"65 headers", "1", many, 413, "payload_too_large"},
		{"64 headers", "1", many[1:], 201, ""},
		{"17 KiB of headers", "1", []string{"Sluice-Header-A: " + strings.Repeat("k", 17<<10)}, 413, "payload_too_large"},
	} {
		a := s.post(t, "one.bodies", c.body, c.headers...)
		if a.Status != c.status || c.code != "" && (a.JSON(t)["code"] != c.code || a.JSON(t).Text("error") == "") {
			t.Errorf("%s: want %d %s, got %d %.300s", c.name, c.status, c.code, a.Status, a.Body)
		}
	}
}

// "batch 1,000 events": over WebSocket too, "refused with one error".
func TestBatchLimitOverWebSocket(t *testing.T) {
	t.Parallel()
	k := shared(t).dial(t)
	events := strings.Repeat(`,{"payload":1}`, 1001)[1:]
	if r := k.ok(`{"op":"PUBLISH","topic":"one.batches","events":[%s]}`, events[len(`{"payload":1},`):]); len(r.List("results")) != 1000 {
		t.Errorf("%d results", len(r.List("results")))
	}
	k.refused("payload_too_large", `{"op":"PUBLISH","topic":"one.batches","events":[%s]}`, events)
	one := `,{"payload":` + text(1<<20-50) + `}`
	k.refused("payload_too_large", `{"op":"PUBLISH","topic":"one.batches","events":[%s]}`, strings.Repeat(one, 9)[1:])
	k.refused("bad_request", `{"op":"PUBLISH","topic":"one.batches","events":[]}`)
	k.refused("bad_request", `{"op":"PUBLISH","topic":"one.batches","events":{}}`)
	k.usable()
}

// "An error never closes a WebSocket, except protocol violations of RFC 6455 (text that is not
// UTF-8: 1007), a message over the frame limit (1009)". "A binary frame is bad_request."
func TestWhatClosesAWebSocket(t *testing.T) {
	t.Parallel()
	s := shared(t)
	k := s.dial(t)
	frame := `{"op":"PING","corr":"edge","x":""}`
	k.raw(strings.Replace(frame, `""`, text(16<<20-len(frame)+2), 1))
	k.reply("edge")
	ctx := context.Background()
	require.NoError(t, k.conn.Write(ctx, websocket.MessageBinary, []byte(`{"op":"PING"}`)))
	k.await("bad_request", func(f object) bool { return f["op"] == "ERR" && f["code"] == "bad_request" })
	k.usable()

	for status, send := range map[websocket.StatusCode]string{
		websocket.StatusInvalidFramePayloadData: "{\"op\":\"PING\",\"x\":\"\xff\"}",
		websocket.StatusMessageTooBig:           strings.Replace(frame, `""`, text(16<<20-len(frame)+3), 1),
	} {
		k := s.dial(t)
		k.conn.Write(ctx, websocket.MessageText, []byte(send)) // fails if the server closes before it has read all
		k.within(testkit.Patience, func(object) bool { return false })
		if got := websocket.CloseStatus(k.closing); got != status {
			t.Errorf("closed with %v (%v), want %v", got, k.closing, status)
		}
	}
}

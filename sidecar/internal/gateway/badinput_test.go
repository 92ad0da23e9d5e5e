package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/gateway/gatewaytest"
	"github.com/sluice-bus/sluice/sidecar/internal/session"
	"github.com/sluice-bus/sluice/test/require"
)

// badFrames is every kind of frame that the contract refuses, with the code and the words that the
// sentence must have.
var badFrames = []struct{ name, frame, code, names string }{
	{"not JSON", `{"op":`, "bad_json", ""},
	{"empty", ``, "bad_json", ""},
	{"text behind", `{"op":"PING"} x`, "bad_json", ""},
	{"not an object", `[1]`, "bad_request", "object"},
	{"no op", `{}`, "bad_request", "op"},
	{"op no string", `{"op":1}`, "bad_request", "op"},
	{"unknown op", `{"op":"FLY"}`, "unknown_op", "FLY"},
	{"op in lower case", `{"op":"ping"}`, "unknown_op", "ping"},
	{"corr no string", `{"op":"PING","corr":1}`, "bad_request", "corr"},
	{"token no string", `{"op":"AUTH","token":1}`, "bad_request", "token"},

	{"publish without topic", `{"op":"PUBLISH","payload":1}`, "bad_request", "topic"},
	{"topic with a slash", `{"op":"PUBLISH","topic":"a/b","payload":1}`, "bad_request", "topic"},
	{"topic too long", `{"op":"PUBLISH","topic":"` + strings.Repeat("t", 256) + `","payload":1}`, "bad_request", "topic"},
	{"reserved topic", `{"op":"PUBLISH","topic":"_x","payload":1}`, "bad_request", "reserved"},
	{"no payload", `{"op":"PUBLISH","topic":"t"}`, "bad_request", "payload"},
	{"two payloads", `{"op":"PUBLISH","topic":"t","payload":1,"payload_base64":""}`, "bad_request", "payload_base64"},
	{"bad base64", `{"op":"PUBLISH","topic":"t","payload_base64":"*"}`, "bad_request", "payload_base64"},
	{"payload too large", `{"op":"PUBLISH","topic":"t","payload":"` + strings.Repeat("x", 100) + `"}`, "payload_too_large", "payload"},
	{"payload too deep", `{"op":"PUBLISH","topic":"t","payload":` + strings.Repeat("[", 9) + strings.Repeat("]", 9) + `}`, "bad_request",
		"nest"},
	{"opts no object", `{"op":"PUBLISH","topic":"t","payload":1,"opts":1}`, "bad_request", "opts"},
	{"id too long", `{"op":"PUBLISH","topic":"t","payload":1,"opts":{"id":"` + strings.Repeat("i", 129) + `"}}`, "bad_request", "id"},
	{"id with a space", `{"op":"PUBLISH","topic":"t","payload":1,"opts":{"id":"a b"}}`, "bad_request", "id"},
	{"id empty", `{"op":"PUBLISH","topic":"t","payload":1,"opts":{"id":""}}`, "bad_request", "id"},
	{"ts a fraction", `{"op":"PUBLISH","topic":"t","payload":1,"opts":{"ts":1.5}}`, "bad_request", "ts"},
	{"ts negative", `{"op":"PUBLISH","topic":"t","payload":1,"opts":{"ts":-1}}`, "bad_request", "ts"},
	{"key too long", `{"op":"PUBLISH","topic":"t","payload":1,"opts":{"key":"01234567890"}}`, "bad_request", "key"},
	{"header no string", `{"op":"PUBLISH","topic":"t","payload":1,"opts":{"headers":{"a":1}}}`, "bad_request", "headers"},
	{"too many headers", `{"op":"PUBLISH","topic":"t","payload":1,"opts":{"headers":{"a":"","b":"","c":"","d":"","e":""}}}`,
		"payload_too_large", "headers"},
	{"headers too large", `{"op":"PUBLISH","topic":"t","payload":1,"opts":{"headers":{"a":"` + strings.Repeat("h", 200) + `"}}}`,
		"payload_too_large", "headers"},
	{"tags no strings", `{"op":"PUBLISH","topic":"t","payload":1,"opts":{"tags":[1]}}`, "bad_request", "tags"},
	{"batch empty", `{"op":"PUBLISH","topic":"t","events":[]}`, "bad_request", "empty"},
	{"batch no array", `{"op":"PUBLISH","topic":"t","events":1}`, "bad_request", "events"},
	{"batch too many", `{"op":"PUBLISH","topic":"t","events":[{"payload":1},{"payload":1},{"payload":1},{"payload":1}]}`, "payload_too_large",
		"batch"},
	{"batch too large", `{"op":"PUBLISH","topic":"t","events":[{"payload":1,"x":"` + strings.Repeat("x", 1000) + `"}]}`, "payload_too_large",
		"batch"},
	{"batch and payload", `{"op":"PUBLISH","topic":"t","payload":1,"events":[{"payload":1}]}`, "bad_request", "payload"},

	{"subscribe without topic", `{"op":"SUBSCRIBE"}`, "bad_request", "topic"},
	{"subscribe to no topic", `{"op":"SUBSCRIBE","topic":"a b"}`, "bad_request", "topic"},
	{"group with a slash", `{"op":"SUBSCRIBE","topic":"t","group":"a/b"}`, "bad_request", "group"},
	{"unknown from", `{"op":"SUBSCRIBE","topic":"t","opts":{"from":"now"}}`, "bad_request", "from"},
	{"from ts without ts", `{"op":"SUBSCRIBE","topic":"t","opts":{"from":"ts"}}`, "bad_request", "ts"},
	{"from afterId without afterId", `{"op":"SUBSCRIBE","topic":"t","opts":{"from":"afterId"}}`, "bad_request", "afterId"},
	{"unknown afterId", `{"op":"SUBSCRIBE","topic":"t","opts":{"from":"afterId","afterId":"x"}}`, "not_found", "afterId"},
	{"maxInflight 0", `{"op":"SUBSCRIBE","topic":"t","opts":{"maxInflight":0}}`, "bad_request", "maxInflight"},
	{"ackTimeoutMs 0", `{"op":"SUBSCRIBE","topic":"t","opts":{"ackTimeoutMs":0}}`, "bad_request", "ackTimeoutMs"},
	{"maxAttempts a string", `{"op":"SUBSCRIBE","topic":"t","opts":{"maxAttempts":"5"}}`, "bad_request", "maxAttempts"},
	{"maxBatch too large", `{"op":"SUBSCRIBE","topic":"t","opts":{"maxBatch":1000000}}`, "bad_request", "maxBatch"},
	{"ordered no boolean", `{"op":"SUBSCRIBE","topic":"t","opts":{"ordered":1}}`, "bad_request", "ordered"},
	{"exactlyOnce no boolean", `{"op":"SUBSCRIBE","topic":"t","opts":{"exactlyOnce":"yes"}}`, "bad_request", "exactlyOnce"},
	{"dedupeTtlMs 0", `{"op":"SUBSCRIBE","topic":"t","opts":{"dedupeTtlMs":0}}`, "bad_request", "dedupeTtlMs"},
	{"filter no object", `{"op":"SUBSCRIBE","topic":"t","opts":{"filter":"k"}}`, "bad_request", "filter"},

	{"unsubscribe from nothing", `{"op":"UNSUBSCRIBE","topic":"t"}`, "not_subscribed", "t"},
	{"pause nothing", `{"op":"PAUSE","topic":"t","group":"g"}`, "not_subscribed", "g"},
	{"resume nothing", `{"op":"RESUME","topic":"t","group":"g"}`, "not_subscribed", "g"},
	{"ack nothing", `{"op":"ACK","topic":"t","group":"g","id":"x"}`, "not_subscribed", "g"},
	{"nack nothing", `{"op":"NACK","topic":"t","group":"g","id":"x"}`, "not_subscribed", "g"},
	{"modack nothing", `{"op":"MODACK","topic":"t","group":"g","id":"x","extend_ms":1}`, "not_subscribed", "g"},
	{"ack without group", `{"op":"ACK","topic":"t","id":"x"}`, "bad_request", "group"},
	{"ack without id", `{"op":"ACK","topic":"t","group":"g"}`, "bad_request", "id"},
	{"ack of no ids", `{"op":"ACK","topic":"t","group":"g","ids":[]}`, "bad_request", "id"},
	{"nack with a bad delay", `{"op":"NACK","topic":"t","group":"g","id":"x","delay_ms":-1}`, "bad_request", "delay_ms"},
	{"modack without extend_ms", `{"op":"MODACK","topic":"t","group":"g","id":"x"}`, "bad_request", "extend_ms"},
}

func TestBadFrames(t *testing.T) {
	limits := gatewaytest.SmallLimits()
	s := gatewaytest.Start(t, gatewaytest.Setup{Limits: &limits})
	c := s.Dial(t) // one connection takes them all
	for _, tc := range badFrames {
		c.T = t
		t.Run(tc.name, func(t *testing.T) {
			c.T = t
			c.Send("%s", tc.frame)
			if f := c.Want("ERR/" + tc.code); !strings.Contains(f.Msg, tc.names) {
				t.Errorf("%q does not name %s", f.Msg, tc.names)
			}
			c.Alive()
		})
	}
	c.T = t
	require.NoError(t, c.Write(websocket.MessageBinary, []byte(`{"op":"PING"}`)))
	c.Want("ERR/bad_request")
	c.Send(`{"op":"FLY","corr":"c1"}`)
	if f := c.Want("ERR/unknown_op"); f.Corr != "c1" {
		t.Errorf("corr: %q", f.Corr)
	}
	c.Ask(`{"op":"AUTH","token":"anything"}`)
	c.Ask(`{"op":"AUTH"}`)
	c.Ask(`{"op":"PUBLISH","topic":"t","payload":1}`)
}

func TestRefusedByPolicy(t *testing.T) {
	s := gatewaytest.Start(t, gatewaytest.Setup{Policies: `[
		{"name":"*","connection":{"rate":1,"burst":2},"publish":{"rate":0}},
		{"name":"paused","paused":true},
		{"name":"slow","publish":{"rate":0.001,"burst":1}}]`})
	c := s.Dial(t)
	c.Send(`{"op":"PUBLISH","topic":"paused","payload":1}`)
	c.Want("ERR/topic_paused")
	c.Send(`{"op":"PUBLISH","topic":"t","events":[{"payload":1},{"payload":2},{"payload":3}]}`)
	if f := c.Want("ERR/bad_request"); !strings.Contains(f.Msg, "2") {
		t.Errorf("%q does not name the burst", f.Msg)
	}
	c.Ask(`{"op":"PUBLISH","topic":"slow","payload":1}`)
	c.Send(`{"op":"PUBLISH","topic":"slow","payload":1}`)
	if f := c.Want("ERR/rate_limited"); f.RetryAfterMS == nil || *f.RetryAfterMS < 1000 {
		t.Errorf("retry_after_ms: %v", f.RetryAfterMS)
	}
	c.Alive()
}

func TestStoreUnavailable(t *testing.T) {
	s := gatewaytest.Start(t, gatewaytest.Setup{})
	c := s.Dial(t)
	c.Ask(`{"op":"SUBSCRIBE","topic":"t","group":"g","opts":{"maxInflight":1}}`)
	s.Publish(t, "t", "e", "")
	c.WantEvent("e")
	s.Log.FailWith(fmt.Errorf("disk on fire: %w", eventlog.ErrUnavailable))
	for _, op := range []string{`{"op":"PUBLISH","topic":"t","payload":1,"corr":"c"}`,
		`{"op":"ACK","topic":"t","group":"g","id":"e","corr":"c"}`} {
		c.Send("%s", op)
		f := c.Want("ERR/store_unavailable")
		if f.RetryAfterMS == nil || f.Corr != "c" || strings.Contains(f.Msg, "fire") {
			t.Errorf("refusal: %+v", f)
		}
	}
	res, body := s.Do(t, "POST", "/v1/topics/t/events", "1")
	if res.StatusCode != 503 || res.Header.Get("Retry-After") != "1" || !strings.Contains(body, "store_unavailable") {
		t.Errorf("HTTP: %s %s", res.Status, body)
	}
	s.Log.FailWith(nil)
	c.Ask(`{"op":"ACK","topic":"t","group":"g","id":"e"}`)
	c.Ask(`{"op":"UNSUBSCRIBE","topic":"t","group":"g"}`)
	c.Ask(`{"op":"PUBLISH","topic":"t","payload":1}`)
}

// TestProtocolViolations: only these end a connection.
func TestProtocolViolations(t *testing.T) {
	limits := gatewaytest.SmallLimits()
	s := gatewaytest.Start(t, gatewaytest.Setup{Limits: &limits})
	for _, tc := range []struct {
		name string
		text string
		code websocket.StatusCode
	}{
		{"not UTF-8", "{\"op\":\"PING\",\"corr\":\"\xff\"}", websocket.StatusInvalidFramePayloadData},
		{"over the frame limit", strings.Repeat(" ", limits.FrameBytes+1), websocket.StatusMessageTooBig},
		{"far over the frame limit", strings.Repeat(" ", 2<<20), websocket.StatusMessageTooBig},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := s.Dial(t)
			c.Send("%s", `{"op":"PING"}`+strings.Repeat(" ", limits.FrameBytes-len(`{"op":"PING"}`)))
			c.Want("OK")
			require.NoError(t, c.Write(websocket.MessageText, []byte(tc.text)))
			var closed websocket.CloseError
			if _, err := c.Read(); !errors.As(err, &closed) || closed.Code != tc.code {
				t.Errorf("got %v, want %v", err, tc.code)
			}
		})
	}
	gatewaytest.Eventually(t, "all connections gone", func() bool { return s.Gateway.Stats().Connections == 0 })
}

func TestTooManySubscriptions(t *testing.T) {
	b := session.DefaultBounds()
	b.Subscriptions = 2
	c := gatewaytest.Start(t, gatewaytest.Setup{Bounds: &b}).Dial(t)
	c.Ask(`{"op":"SUBSCRIBE","topic":"a"}`)
	c.Ask(`{"op":"SUBSCRIBE","topic":"b"}`)
	c.Send(`{"op":"SUBSCRIBE","topic":"c"}`)
	c.Want("ERR/bad_request")
	c.Ask(`{"op":"UNSUBSCRIBE","topic":"a"}`)
	c.Ask(`{"op":"SUBSCRIBE","topic":"c"}`)
}

// badRequests is every kind of HTTP request that the contract refuses.
var badRequests = []struct {
	name, method, path, body string
	headers                  []string
	status                   int
	code, names              string
}{
	{"no such route", "GET", "/v2", "", nil, 404, "not_found", "/v2"},
	{"what Dapr has", "GET", "/v1.0/state/store/key", "", nil, 404, "not_found", "Sluice has of Dapr's API what publishes"},
	{"no such method", "DELETE", "/v1/topics/t/events", "", nil, 405, "not_found", "POST"},
	{"no such method of ws", "POST", "/ws", "", nil, 405, "not_found", "GET"},
	{"ws without upgrade", "GET", "/ws", "", nil, 400, "bad_request", "WebSocket"},
	{"bad topic", "POST", "/v1/topics/a%20b/events", "1", nil, 400, "bad_request", "topic"},
	{"topic with a slash", "POST", "/v1/topics/a%2Fb/events", "1", nil, 400, "bad_request", "topic"},
	{"topic too long", "POST", "/v1/topics/" + strings.Repeat("t", 256) + "/events", "1", nil, 400, "bad_request", "topic"},
	{"reserved topic", "POST", "/v1/topics/_x/events", "1", nil, 400, "bad_request", "topic"},
	{"empty body", "POST", "/v1/topics/t/events", "", nil, 400, "bad_json", ""},
	{"not JSON", "POST", "/v1/topics/t/events", "{", []string{"Content-Type: application/json"}, 400, "bad_json", ""},
	{"not UTF-8", "POST", "/v1/topics/t/events", "\"\xff\"", nil, 400, "bad_json", ""},
	{"too deep", "POST", "/v1/topics/t/events", strings.Repeat("[", 9) + strings.Repeat("]", 9), nil, 400, "bad_request", "nest"},
	{"too large", "POST", "/v1/topics/t/events", `"` + strings.Repeat("x", 120) + `"`, nil, 413, "payload_too_large", ""},
	{"far too large", "POST", "/v1/topics/t/events", strings.Repeat("x", 1<<20), nil, 413, "payload_too_large", ""},
	{"bytes too large", "POST", "/v1/topics/t/events", strings.Repeat("x", 101), []string{"Content-Type: text/plain"}, 413,
		"payload_too_large", ""},
	{"ids differ", "POST", "/v1/topics/t/events", "1", []string{"Sluice-Id: a", "Idempotency-Key: b"}, 400, "bad_request", "Sluice-Id"},
	{"id twice", "POST", "/v1/topics/t/events", "1", []string{"Sluice-Id: a", "Sluice-Id: a"}, 400, "bad_request", "Sluice-Id"},
	{"id empty", "POST", "/v1/topics/t/events", "1", []string{"Idempotency-Key: "}, 400, "bad_request", "Idempotency-Key"},
	{"id with a space", "POST", "/v1/topics/t/events", "1", []string{"Sluice-Id: a b"}, 400, "bad_request", "Sluice-Id"},
	{"key twice", "POST", "/v1/topics/t/events", "1", []string{"Sluice-Key: a", "Sluice-Key: b"}, 400, "bad_request", "Sluice-Key"},
	{"key too long", "POST", "/v1/topics/t/events", "1", []string{"Sluice-Key: 01234567890"}, 400, "bad_request", "key"},
	{"key not UTF-8", "POST", "/v1/topics/t/events", "1", []string{"Sluice-Key: \xff"}, 400, "bad_request", "Sluice-Key"},
	{"ts no number", "POST", "/v1/topics/t/events", "1", []string{"Sluice-Ts: soon"}, 400, "bad_request", "Sluice-Ts"},
	{"ts negative", "POST", "/v1/topics/t/events", "1", []string{"Sluice-Ts: -1"}, 400, "bad_request", "Sluice-Ts"},
	{"ts empty", "POST", "/v1/topics/t/events", "1", []string{"Sluice-Ts: "}, 400, "bad_request", "Sluice-Ts"},
	{"header twice", "POST", "/v1/topics/t/events", "1", []string{"Sluice-Header-A: 1", "Sluice-Header-A: 2"}, 400, "bad_request",
		"Sluice-Header-A"},
	{"header without a name", "POST", "/v1/topics/t/events", "1", []string{"Sluice-Header-: 1"}, 400, "bad_request", "name"},
	{"header not UTF-8", "POST", "/v1/topics/t/events", "1", []string{"Sluice-Header-A: \xff"}, 400, "bad_request", "Sluice-Header-A"},
	{"a header of the sidecar's own", "POST", "/v1/topics/t/events", "1", []string{"Sluice-Header-Sluice-Dlq-Id: 1"}, 400, "bad_request",
		"sluice-dlq-id"},
	{"dead letters", "POST", "/v1/topics/t.dlq/events", "1", nil, 400, "bad_request", ".dlq"},
	{"too many headers", "POST", "/v1/topics/t/events", "1",
		[]string{"Sluice-Header-A: 1", "Sluice-Header-B: 1", "Sluice-Header-C: 1", "Sluice-Header-D: 1", "Sluice-Header-E: 1"}, 413,
		"payload_too_large", "headers"},
	{"a ttl of all lines", "POST", "/v1/topics/t/events", `{"payload":1}`,
		[]string{"Content-Type: application/x-ndjson", "Sluice-Ttl-Ms: 5"}, 400, "bad_request", "Sluice-Ttl-Ms"},
	{"compressed otherwise", "POST", "/v1/topics/t/events", "1", []string{"Content-Encoding: br"}, 415, "bad_request", "Content-Encoding"},
	{"compressed twice", "POST", "/v1/topics/t/events", "1", []string{"Content-Encoding: gzip, zstd"}, 415, "bad_request", "Content-Encoding"},
	{"not compressed", "POST", "/v1/topics/t/events", "1", []string{"Content-Encoding: gzip"}, 400, "bad_request", "not gzip"},
	{"encoded key", "POST", "/v1/topics/t/events", "1", []string{"Sluice-Key*: k"}, 400, "bad_request", "Sluice-Key*"},
	{"encoded otherwise", "POST", "/v1/topics/t/events", "1", []string{"Sluice-Key*: ISO-8859-1''k"}, 400, "bad_request", "UTF-8''"},
	{"two keys", "POST", "/v1/topics/t/events", "1", []string{"Sluice-Key: a", "Sluice-Key*: UTF-8''b"}, 400, "bad_request", "differ"},
	{"encoded misspelt", "POST", "/v1/topics/t/events", "1", []string{"Sluice-Kee*: UTF-8''b"}, 400, "bad_request", "Sluice-Key"},
	{"empty batch", "POST", "/v1/topics/t/events", "\n \n", []string{"Content-Type: application/x-ndjson"}, 400, "bad_request", "empty"},
	{"batch too many", "POST", "/v1/topics/t/events", strings.Repeat("{\"payload\":1}\n", 4), []string{"Content-Type: application/x-ndjson"},
		413, "payload_too_large", "batch"},
	{"batch too large", "POST", "/v1/topics/t/events", strings.Repeat(" ", 1001), []string{"Content-Type: application/x-ndjson"}, 413,
		"payload_too_large", ""},
	{"batch with an id", "POST", "/v1/topics/t/events", "{}", []string{"Content-Type: application/x-ndjson", "Sluice-Id: a"}, 400,
		"bad_request", "Sluice-Id"},
	{"batch with a header", "POST", "/v1/topics/t/events", "{}", []string{"Content-Type: application/x-ndjson", "Sluice-Header-Shop: a"}, 400,
		"bad_request", "Sluice-Header-Shop"},

	{"group of no topic", "GET", "/v1/topics/nobody/groups/g", "", nil, 404, "not_found", ""},
	{"unknown group", "GET", "/v1/topics/t/groups/nobody", "", nil, 404, "not_found", ""},
	{"groups of no topic", "GET", "/v1/topics/nobody/groups", "", nil, 404, "not_found", ""},
	{"bad topic of a group", "GET", "/v1/topics/a%20b/groups/g", "", nil, 400, "bad_request", "topic"},
	{"bad group", "GET", "/v1/topics/t/groups/a%2Fb", "", nil, 400, "bad_request", "group"},
	{"cursor of an unknown group", "PUT", "/v1/topics/t/groups/nobody/cursor", `{"from":"earliest"}`, nil, 404, "not_found", ""},
	{"cursor not JSON", "PUT", "/v1/topics/t/groups/g/cursor", `{"from"`, nil, 400, "bad_json", ""},
	{"cursor without body", "PUT", "/v1/topics/t/groups/g/cursor", ``, nil, 400, "bad_json", ""},
	{"cursor no object", "PUT", "/v1/topics/t/groups/g/cursor", `["earliest"]`, nil, 400, "bad_request", "object"},
	{"cursor without from", "PUT", "/v1/topics/t/groups/g/cursor", `{}`, nil, 400, "bad_request", "from"},
	{"cursor from nowhere", "PUT", "/v1/topics/t/groups/g/cursor", `{"from":"now"}`, nil, 400, "bad_request", "from"},
	{"cursor from no string", "PUT", "/v1/topics/t/groups/g/cursor", `{"from":1}`, nil, 400, "bad_request", "from"},
	{"cursor without ts", "PUT", "/v1/topics/t/groups/g/cursor", `{"from":"ts"}`, nil, 400, "bad_request", "ts"},
	{"cursor with a bad ts", "PUT", "/v1/topics/t/groups/g/cursor", `{"from":"ts","ts":-1}`, nil, 400, "bad_request", "ts"},
	{"cursor with a fraction", "PUT", "/v1/topics/t/groups/g/cursor", `{"from":"ts","ts":1.5}`, nil, 400, "bad_request", "ts"},
	{"cursor without afterId", "PUT", "/v1/topics/t/groups/g/cursor", `{"from":"afterId"}`, nil, 400, "bad_request", "afterId"},
	{"cursor with a bad afterId", "PUT", "/v1/topics/t/groups/g/cursor", `{"from":"afterId","afterId":"a b"}`, nil, 400, "bad_request",
		"afterId"},
	{"cursor after nobody", "PUT", "/v1/topics/t/groups/g/cursor", `{"from":"afterId","afterId":"nobody"}`, nil, 404, "not_found", "afterId"},
	{"cursor too long", "PUT", "/v1/topics/t/groups/g/cursor", strings.Repeat(" ", 70_000), nil, 413, "payload_too_large", ""},

	{"foreign origin", "GET", "/v1/topics", "", []string{"Origin: https://evil.example"}, 403, "forbidden", "Origin"},
	{"foreign host", "GET", "/v1/topics", "", []string{"Host: evil.example"}, 403, "forbidden", "Host"},
}

func TestBadRequests(t *testing.T) {
	limits := gatewaytest.SmallLimits()
	s := gatewaytest.Start(t, gatewaytest.Setup{Limits: &limits})
	c := s.Dial(t)
	c.Ask(`{"op":"SUBSCRIBE","topic":"t","group":"g"}`)
	for _, tc := range badRequests {
		t.Run(tc.name, func(t *testing.T) {
			res, body := s.Do(t, tc.method, tc.path, tc.body, tc.headers...)
			var e struct{ Error, Code string }
			if err := json.Unmarshal([]byte(body), &e); err != nil {
				t.Fatalf("%s: %v", body, err)
			}
			if res.StatusCode != tc.status || e.Code != tc.code || e.Error == "" || !strings.Contains(e.Error, tc.names) {
				t.Errorf("got %s %s; want %d %s naming %q", res.Status, body, tc.status, tc.code, tc.names)
			}
			if res.Header.Get("Content-Type") != "application/json" {
				t.Errorf("content type %q", res.Header.Get("Content-Type"))
			}
		})
	}
	s.Publish(t, "t", "ok", "")
	c.WantEvent("ok")
	c.Alive()
}

func TestOrigin(t *testing.T) {
	s := gatewaytest.Start(t, gatewaytest.Setup{Origins: []string{"https://good.example"}})
	for origin, allowed := range map[string]bool{"https://good.example": true, "https://evil.example": false, "http://" + s.Addr: false} {
		ctx, cancel := context.WithTimeout(context.Background(), gatewaytest.Patience)
		ws, res, err := websocket.Dial(ctx, "ws://"+s.Addr+"/ws", &websocket.DialOptions{HTTPHeader: http.Header{"Origin": {origin}}})
		cancel()
		if (err == nil) != allowed {
			t.Errorf("origin %s: %v", origin, err)
		}
		if err == nil {
			ws.CloseNow()
		} else if res.StatusCode != http.StatusForbidden {
			t.Errorf("origin %s: %s", origin, res.Status)
		}
	}
}

package contract

import (
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/test/testkit"
)

// TestWebSocketErrors sends bad input of every kind, and checks its code and the words that the
// sentence must have; "an error never closes a WebSocket".
func TestWebSocketErrors(t *testing.T) {
	t.Parallel()
	k := shared(t).dial(t)
	k.ok(`{"op":"SUBSCRIBE","topic":"errors.t","group":"g"}`)
	k.ok(`{"op":"SUBSCRIBE","topic":"errors.t"}`)
	for _, c := range []struct{ frame, code, names string }{
		{`{"op":"JUMP"}`, "unknown_op", "JUMP"},
		{`{"op":"publish","topic":"t","payload":1}`, "unknown_op", ""},
		{`{"op":7}`, "bad_request", "op"},
		{`{"topic":"t"}`, "bad_request", "op"},
		{`{"op":"EVENT"}`, "unknown_op", ""},
		{`{"op":"SUBSCRIBE"}`, "bad_request", "topic"},
		{`{"op":"SUBSCRIBE","topic":"a b"}`, "bad_request", "topic"},
		{`{"op":"SUBSCRIBE","topic":"errors.t","group":"g"}`, "already_subscribed", ""},
		{`{"op":"SUBSCRIBE","topic":"errors.t"}`, "already_subscribed", ""},
		{`{"op":"SUBSCRIBE","topic":"errors.u","group":7}`, "bad_request", "group"},
		{`{"op":"SUBSCRIBE","topic":"errors.u","opts":{"from":"middle"}}`, "bad_request", "from"},
		{`{"op":"SUBSCRIBE","topic":"errors.u","opts":{"from":"ts"}}`, "bad_request", "ts"},
		{`{"op":"SUBSCRIBE","topic":"errors.u","opts":{"from":"ts","ts":"now"}}`, "bad_request", "ts"},
		{`{"op":"SUBSCRIBE","topic":"errors.u","opts":{"from":"afterId"}}`, "bad_request", "afterId"},
		{`{"op":"SUBSCRIBE","topic":"errors.u","opts":{"from":"afterId","afterId":"none"}}`, "not_found", "none"},
		{`{"op":"SUBSCRIBE","topic":"errors.u","group":"h","opts":{"from":"afterId","afterId":"none"}}`, "not_found", "none"},
		{`{"op":"SUBSCRIBE","topic":"errors.u","opts":{"maxInflight":0}}`, "bad_request", "maxInflight"},
		{`{"op":"SUBSCRIBE","topic":"errors.u","opts":{"maxInflight":-1}}`, "bad_request", "maxInflight"},
		{`{"op":"SUBSCRIBE","topic":"errors.u","opts":{"ackTimeoutMs":-1}}`, "bad_request", "ackTimeoutMs"},
		{`{"op":"SUBSCRIBE","topic":"errors.u","opts":{"ackTimeoutMs":1.5}}`, "bad_request", "ackTimeoutMs"},
		{`{"op":"SUBSCRIBE","topic":"errors.u","opts":{"maxAttempts":-1}}`, "bad_request", "maxAttempts"},
		{`{"op":"SUBSCRIBE","topic":"errors.u","opts":{"maxBatch":-2}}`, "bad_request", "maxBatch"},
		{`{"op":"SUBSCRIBE","topic":"errors.u","opts":{"ordered":"yes"}}`, "bad_request", "ordered"},
		{`{"op":"SUBSCRIBE","topic":"errors.u","opts":{"exactlyOnce":1}}`, "bad_request", "exactlyOnce"},
		{`{"op":"SUBSCRIBE","topic":"errors.u","opts":{"dedupeTtlMs":-5}}`, "bad_request", "dedupeTtlMs"},
		{`{"op":"SUBSCRIBE","topic":"errors.u","opts":{"filter":"eu"}}`, "bad_request", "filter"},
		{`{"op":"SUBSCRIBE","topic":"errors.u","opts":{"filter":{"header":"eu"}}}`, "bad_request", "header"},
		{`{"op":"UNSUBSCRIBE","topic":"errors.none"}`, "not_subscribed", ""},
		{`{"op":"UNSUBSCRIBE","topic":"errors.t","group":"other"}`, "not_subscribed", ""},
		{`{"op":"UNSUBSCRIBE"}`, "bad_request", "topic"},
		{`{"op":"ACK","topic":"errors.t","group":"other","id":"x"}`, "not_subscribed", ""},
		{`{"op":"ACK","topic":"errors.t","group":"g"}`, "bad_request", "id"},
		{`{"op":"ACK","topic":"errors.t","group":"g","ids":"x"}`, "bad_request", "ids"},
		{`{"op":"ACK","group":"g","id":"x"}`, "bad_request", "topic"},
		{`{"op":"NACK","topic":"errors.t","group":"other","id":"x"}`, "not_subscribed", ""},
		{`{"op":"NACK","topic":"errors.t","group":"g"}`, "bad_request", "id"},
		{`{"op":"NACK","topic":"errors.t","group":"g","id":"x","delay_ms":-1}`, "bad_request", "delay_ms"},
		{`{"op":"NACK","topic":"errors.t","group":"g","id":"x","delay_ms":"1"}`, "bad_request", "delay_ms"},
		{`{"op":"MODACK","topic":"errors.t","group":"g","id":"x","extend_ms":1000}`, "unknown_id", ""},
		{`{"op":"MODACK","topic":"errors.t","group":"g","id":"x"}`, "bad_request", "extend_ms"},
		{`{"op":"MODACK","topic":"errors.t","group":"g","id":"x","extend_ms":-1}`, "bad_request", "extend_ms"},
		{`{"op":"MODACK","topic":"errors.t","group":"g","extend_ms":1}`, "bad_request", "id"},
		{`{"op":"MODACK","topic":"errors.t","group":"other","id":"x","extend_ms":1}`, "not_subscribed", ""},
		{`{"op":"PAUSE","topic":"errors.none"}`, "not_subscribed", ""},
		{`{"op":"RESUME","topic":"errors.t","group":"other"}`, "not_subscribed", ""},
		{`{"op":"PAUSE"}`, "bad_request", "topic"},
		{`{"op":"PUBLISH","topic":"paused.t","payload":1}`, "topic_paused", "paused.t"},
		{`{"op":"PUBLISH","topic":"errors.t","payload":1,"events":[{"payload":1}]}`, "bad_request", ""},
	} {
		r := k.ask("%s", c.frame)
		if r["op"] != "ERR" || r["code"] != c.code || !strings.Contains(r.Text("msg"), c.names) || r.Text("msg") == "" {
			t.Errorf("%s\nwant %s naming %q, got %v", c.frame, c.code, c.names, r)
		}
		if _, has := r["retry_after_ms"]; has {
			t.Errorf("%s: retry_after_ms on %v", c.frame, r)
		}
	}
	k.ok(`{"op":"AUTH","token":"anything"}`) // "without configured auth always OK"
	k.ok(`{"op":"ACK","topic":"errors.t","group":"g","id":"never"}`)
	k.usable()
}

// Frames that are not JSON at all have no corr to echo.
func TestFramesThatAreNotJSON(t *testing.T) {
	t.Parallel()
	k := shared(t).dial(t)
	for frame, code := range map[string]string{
		``: "bad_json", `{`: "bad_json", `nope`: "bad_json", `{"op":"PING"} {}`: "bad_json", `{"op":"PING",}`: "bad_json",
		`[]`: "bad_request", `7`: "bad_request", `null`: "bad_request", `"PING"`: "bad_request", `{"op":"PING","corr":7}`: "bad_request",
	} {
		k.raw(frame)
		f := k.await("an ERR", func(f object) bool { return f["op"] == "ERR" })
		if c := f["code"]; c != code && !(code == "bad_request" && c == "bad_json") {
			t.Errorf("%q: want %s, got %v", frame, code, f)
		}
	}
	k.raw(`{"op":"PING"}`) // "may carry corr"
	if f := k.await("OK", func(f object) bool { return f["op"] == "OK" }); f["corr"] != nil {
		t.Errorf("%v", f)
	}
}

// HTTP: "the status below, body {error, code}".
func TestHTTPErrors(t *testing.T) {
	t.Parallel()
	s := shared(t)
	s.put(t, "errors.http", "x", "1")
	for _, c := range []struct {
		method, path, body string
		status             int
		code               string
	}{
		{"GET", "/v1/nothing", "", 404, "not_found"},
		{"GET", "/v1/topics/errors.http/groups/none", "", 404, "not_found"},
		{"GET", "/v1/topics/errors.none/groups/none", "", 404, "not_found"},
		{"POST", "/v1/topics/paused.http/events", "1", 503, "topic_paused"},
		{"POST", "/v1/topics/errors.http/events", "{", 400, "bad_json"},
		{"POST", "/v1/topics//events", "1", 400, "bad_request"},
	} {
		a := testkit.Call(t, c.method, s.URL()+c.path, c.body)
		if c.path == "/v1/topics//events" && a.Status == 404 {
			continue // an empty name may also be no route at all
		}
		if a.Status != c.status || !strings.HasPrefix(a.Header.Get("Content-Type"), "application/json") {
			t.Errorf("%s %s: %d %s %s", c.method, c.path, a.Status, a.Header, a.Body)
			continue
		}
		if o := a.JSON(t); o["code"] != c.code || o.Text("error") == "" {
			t.Errorf("%s %s: want %s, got %s", c.method, c.path, c.code, a.Body)
		}
	}
	if a := testkit.Call(t, "DELETE", s.URL()+"/v1/topics/errors.http/events", ""); a.Status != 405 && a.Status != 404 {
		t.Errorf("DELETE: %d %s", a.Status, a.Body)
	}
	if a := testkit.Call(t, "GET", s.ReplayURL()+"/nothing", ""); a.Status != 404 || a.JSON(t)["code"] != "not_found" {
		t.Errorf("replay: %d %s", a.Status, a.Body)
	}
}

// "requests that carry an Origin not in --allowed-origins are refused (403), as are Host values
// other than localhost, a loopback address or the listener's own".
func TestOriginAndHost(t *testing.T) {
	t.Parallel()
	s := own(t, "", "--allowed-origins", "https://good.example")
	port := s.Listen[strings.LastIndex(s.Listen, ":"):]
	for _, url := range []string{
		s.URL() + "/v1/topics/t/groups/g", s.URL() + "/ws", s.ReplayURL() + "/replay?topic=t", s.ReplayURL() + "/export?topic=t",
		s.OpsURL() + "/healthz", s.OpsURL() + "/metrics", s.OpsURL() + "/v1/status",
	} {
		for header, refused := range map[string]bool{
			"Origin: https://evil.example": true, "Origin: null": true, "Origin: http://good.example": true,
			"Origin: https://good.example.evil": true, "Origin: http://localhost:1": true,
			"Origin: https://good.example": false,
			"Host: evil.example":           true, "Host: evil.example" + port: true, "Host: localhost.evil.example": true, "Host: 10.0.0.1": true,
			"Host: localhost": false, "Host: localhost:9": false, "Host: 127.0.0.1" + port: false, "Host: 127.0.0.2": false, "Host: [::1]:80": false,
			"Host: LOCALHOST": false,
		} {
			a := testkit.Call(t, "GET", url, "", header)
			if (a.Status == 403) != refused {
				t.Errorf("%s with %s: %d %.200s", url, header, a.Status, a.Body)
			}
			if refused && a.Status == 403 && a.JSON(t)["code"] != "forbidden" {
				t.Errorf("%s with %s: %s", url, header, a.Body)
			}
		}
	}
	a := s.post(t, "t", "1", "Origin: https://evil.example")
	b := s.post(t, "t", "1", "Host: evil.example")
	if a.Status != 403 || b.Status != 403 || s.replay(t, "topic=t").Number(t, "count") != 0 {
		t.Errorf("published from elsewhere: %d %d", a.Status, b.Status)
	}
	if c := s.post(t, "t", "1", "Origin: https://good.example"); c.Status != 201 {
		t.Errorf("an allowed origin: %d", c.Status)
	}
}

package ingest_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/sidecar/internal/gateway/gatewaytest"
)

func TestPublishHTTP(t *testing.T) {
	s := gatewaytest.Start(t, gatewaytest.Setup{})
	c := s.Dial(t)
	c.Ask(`{"op":"SUBSCRIBE","topic":"t"}`)
	post := func(body string, headers ...string) (*http.Response, gatewaytest.Frame) {
		t.Helper()
		res, text := s.Do(t, "POST", "/v1/topics/t/events", body, headers...)
		var f gatewaytest.Frame
		if err := json.Unmarshal([]byte(text), &f); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		return res, f
	}

	res, f := post(` {"a": 1.50} `, "Idempotency-Key: e1", "Sluice-Id: e1", "Sluice-Key: k", "Sluice-Ts: 7", "Sluice-Header-Shop-ID: 9",
		"Traceparent: "+traceA, "Tracestate: x=1", "Tracestate: y=2", "Baggage: b=1", "Content-Type: application/json; charset=utf-8")
	if res.StatusCode != 201 || f.ID != "e1" || f.Seq != 1 || f.Durability != "store" || f.Op != "" {
		t.Errorf("%s %+v", res.Status, f)
	}
	ev := c.WantEvent("e1").Event
	headers := map[string]string{"shop-id": "9", "traceparent": "" + traceA, "tracestate": "x=1,y=2", "baggage": "b=1"}
	if string(ev.Payload) != `{"a":1.50}` || ev.Key != "k" || ev.TS != 7 || !reflect.DeepEqual(ev.Headers, headers) {
		t.Errorf("event: %+v", ev)
	}

	res, f = post(`{"a":1.5}`, "Sluice-Id: e1", "Sluice-Key: k", "Sluice-Header-Shop-ID: 9")
	if res.StatusCode != 200 || !f.Duplicate || f.Seq != 1 {
		t.Errorf("again: %s %+v", res.Status, f)
	}
	res, f = post(`2`, "Sluice-Id: e1")
	if res.StatusCode != 409 || f.Code != "conflict" || f.Seq != 1 {
		t.Errorf("conflict: %s %+v", res.Status, f)
	}
	for _, contentType := range []string{"", "application/vnd.shop+json", "application/x-www-form-urlencoded", "Application/JSON"} {
		if res, f = post(`"x"`, "Content-Type: "+contentType); res.StatusCode != 201 {
			t.Errorf("%q: %s %+v", contentType, res.Status, f)
		}
		if ev = c.WantEvent(f.ID).Event; string(ev.Payload) != `"x"` || ev.Headers != nil {
			t.Errorf("%q: event %+v", contentType, ev)
		}
	}
	_, f = post("\x00\xffbytes", "Content-Type: text/plain; charset=latin1")
	if ev = c.WantEvent(f.ID).Event; ev.PayloadBase64 == nil || *ev.PayloadBase64 != "AP9ieXRlcw==" ||
		ev.Headers["content-type"] != "text/plain; charset=latin1" {
		t.Errorf("bytes: %+v", ev)
	}
	_, f = post("", "Content-Type: application/octet-stream")
	if ev = c.WantEvent(f.ID).Event; ev.PayloadBase64 == nil || *ev.PayloadBase64 != "" {
		t.Errorf("no bytes: %+v", ev)
	}
	if res, f = post(strings.Repeat(" ", 1<<20) + `1` + strings.Repeat(" ", 1000)); res.StatusCode != 201 {
		t.Errorf("much white space: %s %+v", res.Status, f)
	}
	c.WantEvent(f.ID)
	c.Alive()
}

func TestPublishNDJSON(t *testing.T) {
	s := gatewaytest.Start(t, gatewaytest.Setup{})
	lines := `{"payload":1,"opts":{"id":"a"}}` + "\r\n\n" + `{"payload":` + "\n" + `{"payload":1,"opts":{"id":"a"}}` + "\n" +
		`{"payload":2,"opts":{"id":"a"}}` + "\n" + `{"payload_base64":"AA=="}`
	res, text := s.Do(t, "POST", "/v1/topics/t/events", lines, "Content-Type: application/x-ndjson")
	var got struct {
		Results []struct {
			ID, Code, Error string
			Seq             uint64
			Duplicate       bool
		}
	}
	if err := json.Unmarshal([]byte(text), &got); err != nil || res.StatusCode != 200 || len(got.Results) != 5 {
		t.Fatalf("%s %s: %v", res.Status, text, err)
	}
	for i, code := range []string{"", "bad_json", "", "conflict", ""} {
		if r := got.Results[i]; r.Code != code || (r.Error != "") != (code != "") {
			t.Errorf("result %d: %+v", i, r)
		}
	}
	if !got.Results[2].Duplicate {
		t.Errorf("results: %+v", got.Results)
	}
}

// TestConnectionRate: the publishes of one TCP connection share a bucket, and other connections
// have their own.
func TestConnectionRate(t *testing.T) {
	s := gatewaytest.Start(t, gatewaytest.Setup{Policies: `[{"name":"*","connection":{"rate":0.001,"burst":1}}]`})
	if res, body := s.Do(t, "POST", "/v1/topics/t/events", "1"); res.StatusCode != 201 {
		t.Fatal(body)
	}
	res, body := s.Do(t, "POST", "/v1/topics/t/events", "1")
	if res.StatusCode != 429 || res.Header.Get("Retry-After") == "" || !strings.Contains(body, `"scope":"connection"`) ||
		!strings.Contains(body, "retry_after_ms") {
		t.Errorf("second publish: %s %s", res.Status, body)
	}
	t.Run("other", func(t *testing.T) { // has connections of its own
		if res, body := s.Do(t, "POST", "/v1/topics/t/events", "1"); res.StatusCode != 201 {
			t.Error(body)
		}
	})
	c := s.Dial(t)
	c.Ask(`{"op":"PUBLISH","topic":"t","payload":1}`)
	c.Send(`{"op":"PUBLISH","topic":"t","payload":1}`)
	c.Want("ERR/rate_limited")
}

func TestTopicsAndGroups(t *testing.T) {
	s := gatewaytest.Start(t, gatewaytest.Setup{Policies: `[{"name":"*","partitions":1}]`})
	get := func(path, want string) {
		t.Helper()
		if res, body := s.Do(t, "GET", path, ""); res.StatusCode != 200 || body != want || res.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %s\n got %s\nwant %s", path, res.Status, body, want)
		}
	}
	get("/v1/topics", `{"topics":[]}`)
	s.Publish(t, "a.b", "e1", "k")
	s.Publish(t, "a.b", "e2", "k")
	s.Want(t, 200, `{"topics":[{"topic":"a.b","partitions":[{"partition":0,"first":1,"head":2}],"events":2,`, "GET", "/v1/topics", "")
	get("/v1/topics/a.b/groups", `{"groups":[]}`)
	c := s.Dial(t)
	c.Ask(`{"op":"SUBSCRIBE","topic":"a.b","group":"grün","opts":{"from":"earliest"}}`)
	c.WantEvent("e1")
	get("/v1/topics/a%2Eb/groups", `{"groups":["grün"]}`)
	s.Want(t, 200, `{"topic":"a.b","group":"grün","lag":2,"inflight":1,`+
		`"partitions":[{"partition":0,"owner":"node","cursor":1,"head":2,"lag":2,"inflight":1}],`+
		`"members":[{"id":"node/1","node_id":"node","address":"127.0.0.1:`, "GET", "/v1/topics/a.b/groups/gr%C3%BCn", "")
	for _, part := range []string{`"inflight":1,"max_inflight":100,"oldest_unacked_ms":`, `"paused":false,"blocked_by":"key_order"}]}`} {
		s.Want(t, 200, part, "GET", "/v1/topics/a.b/groups/gr%C3%BCn", "")
	}
	c.Ask(`{"op":"PAUSE","topic":"a.b","group":"grün"}`)
	if _, body := s.Do(t, "GET", "/v1/topics/a.b/groups/gr%C3%BCn", ""); !strings.Contains(body, `"paused":true,"blocked_by":"paused"`) {
		t.Errorf("paused: %s", body)
	}
}

// TestSeek: a cursor moves at once, also while members are connected. Their leases become stale.
func TestSeek(t *testing.T) {
	s := gatewaytest.Start(t, gatewaytest.Setup{})
	for i := range 3 {
		if res, body := s.Do(t, "POST", "/v1/topics/t/events", "1", fmt.Sprintf("Sluice-Id: e%d", i), fmt.Sprintf("Sluice-Ts: %d", i),
			"Sluice-Key: k"); res.StatusCode != 201 {
			t.Fatal(body)
		}
	}
	c := s.Dial(t)
	c.Ask(`{"op":"SUBSCRIBE","topic":"t","group":"g"}`)
	for _, tc := range []struct{ cursor, first string }{
		{`{"from":"earliest"}`, "e0"},
		{`{"from":"ts","ts":1}`, "e1"},
		{`{"from":"afterId","afterId":"e1"}`, "e2"},
		{`{"from":"latest","ts":null}`, ""},
		{`{"from":"earliest"}`, "e0"},
	} {
		if res, body := s.Do(t, "PUT", "/v1/topics/t/groups/g/cursor", tc.cursor); res.StatusCode != 204 || body != "" {
			t.Fatalf("%s: %s %s", tc.cursor, res.Status, body)
		}
		if tc.first == "" {
			c.Alive()
			continue
		}
		c.WantEvent(tc.first)
	}
	if res, body := s.Do(t, "PUT", "/v1/topics/t/groups/g/cursor", `{"from":"afterId","afterId":"nobody"}`); res.StatusCode != 404 {
		t.Error(body)
	}
}

// TestCloudEventsOverHTTP: the answers are those of a plain publish.
func TestCloudEventsOverHTTP(t *testing.T) {
	s := gatewaytest.Start(t, gatewaytest.Setup{})
	const path = "/v1/topics/t/events"
	binary := []string{"ce-specversion: 1.0", "ce-id: i", "ce-source: /s", "ce-type: t", "Content-Type: application/json"}
	if res, body := s.Do(t, "POST", path, `{"a":1}`, binary...); res.StatusCode != 201 || !strings.Contains(body, `"id":"i"`) {
		t.Errorf("binary: %s %s", res.Status, body)
	}
	structured := `{"specversion":"1.0","id":"i","source":"/s","type":"t","data":{"a":1.0}}`
	if res, body := s.Do(t, "POST", path, structured, "Content-Type: application/cloudevents+json"); res.StatusCode != 200 ||
		!strings.Contains(body, `"duplicate":true`) {
		t.Errorf("the same in structured mode: %s %s", res.Status, body)
	}
	batch := `[` + structured + `,{},` + strings.Replace(structured, `"i"`, `"j"`, 1) + `]`
	res, body := s.Do(t, "POST", path, batch, "Content-Type: application/cloudevents-batch+json")
	var got struct {
		Results []struct{ ID, Code, Error string }
	}
	if err := json.Unmarshal([]byte(body), &got); err != nil || res.StatusCode != 200 || len(got.Results) != 3 {
		t.Fatalf("batch: %s %s", res.Status, body)
	}
	if r := got.Results; r[0].ID != "i" || r[1].Code != "bad_request" || r[2].ID != "j" {
		t.Errorf("batch: %s", body)
	}
	if res, body := s.Do(t, "POST", path, `[]`, "Content-Type: application/cloudevents-batch+json"); res.StatusCode != 200 ||
		body != `{"results":[]}` {
		t.Errorf("empty batch: %s %s", res.Status, body)
	}
	if res, body := s.Do(t, "POST", path, `{}`, "Content-Type: application/cloudevents+json"); res.StatusCode != 400 ||
		!strings.Contains(body, "specversion") {
		t.Errorf("wrong: %s %s", res.Status, body)
	}
}

package ingest_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/sidecar/internal/gateway/gatewaytest"
)

// TestPublishDapr: the answer is 204 and nothing more; errors are as everywhere.
func TestPublishDapr(t *testing.T) {
	s := gatewaytest.Start(t, gatewaytest.Setup{})
	c := s.Dial(t)
	c.Ask(`{"op":"SUBSCRIBE","topic":"t"}`)
	const ce = `{"specversion":"1.0","id":"ce","source":"/s","type":"t","data":{"a":1}}`
	structured, json := "Content-Type: application/cloudevents+json", []string{"Content-Type: application/json"}
	for i, tc := range []struct {
		query, body string
		headers     []string
		id, key     string // of the event
		payload     string // or its base64
		header      string // name=value
	}{
		{"", `{"a": 1}`, nil, "", "", `eyJhIjogMX0=`, "content-type=text/plain"},
		{"", ``, nil, "", "", ``, "content-type=text/plain"},
		{"", ``, []string{"Content-Type: application/json"}, "", "", `null`, "content-type="},
		{"", `{"a": 1}`, []string{"Content-Type: application/json"}, "", "", `{"a":1}`, ""},
		{"", `{"a": 1}`, []string{"Sluice-Id: x", "Content-Type: application/json"}, "x", "", `{"a":1}`, ""},
		{"", `text`, []string{"Content-Type: text/plain"}, "", "", `dGV4dA==`, "content-type=text/plain"},
		{"", "1\n2", []string{"Content-Type: application/x-ndjson"}, "", "", `MQoy`, "content-type=application/x-ndjson"},
		{"", ce, []string{structured}, "ce", "", `{"a":1}`, "ce-type=t"},
		{"?metadata.rawPayload=true", ce, []string{structured}, "", "", ce, ""},
		{"?metadata.rawPayload=false&metadata.partitionKey=k%201", `1`, json, "", "k 1", `1`, ""},
		{"?metadata.priority=9", `1`, json, "", "", `1`, ""},
		{"?metadata.cloudevent.id=m&metadata.cloudevent.type=over&metadata.cloudevent.traceparent=" + traceA,
			`1`, json, "m", "", `1`, "ce-type=over"},
		{"", `1`, []string{"traceparent: " + traceB, "Content-Type: application/json"}, "", "", `1`, "traceparent=" + traceB},
		{"", `[` + ce + `]`, []string{"Content-Type: application/cloudevents-batch+json"}, "", "", `[` + ce + `]`, ""},
	} {
		res, body := s.Do(t, []string{"POST", "PUT"}[i%2], "/v1.0/publish/any%20pubsub/t"+tc.query, tc.body, tc.headers...)
		if res.StatusCode != http.StatusNoContent || body != "" {
			t.Errorf("%s %s: %s %s", tc.query, tc.body, res.Status, body)
			continue
		}
		ev := c.Next().Event
		payload := string(ev.Payload)
		if ev.PayloadBase64 != nil {
			payload = *ev.PayloadBase64
		}
		name, value, _ := strings.Cut(tc.header, "=")
		if payload != tc.payload || ev.Key != tc.key || tc.id != "" && ev.ID != tc.id || ev.Headers[name] != value {
			t.Errorf("%s %s: event %+v", tc.query, tc.body, ev)
		}
	}
	if res, body := s.Do(t, "POST", "/v1.0/publish/p/t", `{"a":1}`, "Sluice-Id: x", json[0]); res.StatusCode != http.StatusNoContent {
		t.Errorf("duplicate: %s %s", res.Status, body)
	}
	for _, tc := range []struct {
		path, body string
		status     int
		names      string
	}{
		{"p/t", `{`, 400, `"errorCode":"BAD_JSON","message":"`},
		{"p/_t", `1`, 400, "topic"},
		{"p/t?metadata.ttlInSeconds=0", `1`, 400, "metadata.ttlInSeconds is \\\"0\\\"; a whole number from 1 to 315360000 is allowed"},
		{"p/t?metadata.rawPayload=perhaps", `1`, 400, "rawPayload"},
		{"p/t?metadata.partitionKey=a&metadata.partitionKey=b", `1`, 400, "partitionKey"},
		{"p/t?metadata.cloudevent.my-ext=a", `1`, 400, "my-ext"},
		{"p/t?metadata.cloudevent.id=a%20b", `1`, 400, "id"},
		{"p/t?metadata.a=%zz", `1`, 400, "metadata.a"},
		{"p/t?metadat.ttlInSeconds=1", `1`, 400, "known are metadata.*"},
		{"p", `1`, 404, `"errorCode":"NOT_FOUND","message":"`},
	} {
		res, body := s.Do(t, "POST", "/v1.0/publish/"+tc.path, tc.body, json[0])
		if res.StatusCode != tc.status || !strings.Contains(body, tc.names) {
			t.Errorf("%s %s: %s %s", tc.path, tc.body, res.Status, body)
		}
	}
	if res, body := s.Do(t, "POST", "/v1.0/publish/p/t", `2`, "Sluice-Id: x"); res.StatusCode != 409 || !strings.Contains(body, "conflict") {
		t.Errorf("conflict: %s %s", res.Status, body)
	}
	if res, body := s.Do(t, "POST", "/v1.0/publish/p/t?metadata.partitionKey=a", `2`, "Sluice-Key: b"); res.StatusCode != 400 {
		t.Errorf("two keys: %s %s", res.Status, body)
	}
}

func TestPublishDaprBulk(t *testing.T) {
	s := gatewaytest.Start(t, gatewaytest.Setup{})
	for _, path := range []string{"/v1.0-alpha1/publish/bulk/p/", "/v1.0/publish/bulk/p/"} {
		res, body := s.Do(t, "POST", path+"t", `[{"entryId":"1","event":{"a":1},"contentType":"application/json"},`+
			`{"entryId":"2","event":"x","contentType":"text/plain"}]`)
		if res.StatusCode != http.StatusNoContent || body != "" {
			t.Errorf("%s: %s %s", path, res.Status, body)
		}
	}
	res, body := s.Do(t, "POST", "/v1.0-alpha1/publish/bulk/p/t",
		`[{"entryId":"1","event":{"a":1}},{"entryId":"2","event":1,"contentType":"text/plain"}]`)
	var got struct {
		FailedEntries []struct{ EntryID, Error, Code string }
	}
	if err := json.Unmarshal([]byte(body), &got); err != nil || res.StatusCode != 500 || len(got.FailedEntries) != 1 {
		t.Fatalf("one of two: %s %s", res.Status, body)
	}
	if failed := got.FailedEntries[0]; failed.EntryID != "2" || failed.Code != "bad_request" || failed.Error == "" {
		t.Errorf("one of two: %+v", failed)
	}
	for _, content := range []string{``, `{}`, `[]`, `[1]`, `[{"event":1}]`, `[{"entryId":"1","event":1},{"entryId":"1","event":1}]`,
		`[{"entryId":"1","event":1,"metadata":{"a":1}}]`} {
		if res, body := s.Do(t, "POST", "/v1.0-alpha1/publish/bulk/p/t", content); res.StatusCode != 400 {
			t.Errorf("%s: %s %s", content, res.Status, body)
		}
	}
}

// TestDaprRoutesAreThePublishersOwn: limits and stopping are those of the plain publish.
func TestDaprRoutesAreThePublishersOwn(t *testing.T) {
	lim := gatewaytest.SmallLimits()
	s := gatewaytest.Start(t, gatewaytest.Setup{Limits: &lim})
	for _, tc := range []struct{ path, body string }{
		{"/v1.0/publish/p/t", `"` + strings.Repeat("x", 100) + `"`},
		{"/v1.0/publish/bulk/p/t", `[` + strings.Join(slices.Repeat([]string{`{}`}, 600), ",") + `]`},
	} {
		if res, body := s.Do(t, "POST", tc.path, tc.body); res.StatusCode != 413 {
			t.Errorf("%s: %s %s", tc.path, res.Status, body)
		}
	}
	s.Stop()
	for _, path := range []string{"/v1.0/publish/p/t", "/v1.0/publish/bulk/p/t"} {
		if res, body := s.Do(t, "POST", path, `1`); res.StatusCode != 503 || res.Header.Get("Retry-After") == "" {
			t.Errorf("%s while stopping: %s %s", path, res.Status, body)
		}
	}
}

// The event of an application whose name is known is a CloudEvent of that name, unless it is one already, or raw.
func TestDaprSource(t *testing.T) {
	s := gatewaytest.Start(t, gatewaytest.Setup{DaprAppID: "shop"})
	c := s.Dial(t)
	c.Ask(`{"op":"SUBSCRIBE","topic":"t"}`)
	const structured = "Content-Type: application/cloudevents+json"
	for _, tc := range []struct{ query, body, contentType, source, kind string }{
		{"", `text`, "Content-Type: text/plain", "shop", "com.dapr.event.sent"},
		{"?metadata.cloudevent.source=me", `1`, "Content-Type: application/json", "me", "com.dapr.event.sent"},
		{"?metadata.rawPayload=true", `1`, "Content-Type: application/json", "", ""},
		{"", `{"specversion":"1.0","id":"i","source":"s","type":"x"}`, structured, "s", "x"},
	} {
		if res, body := s.Do(t, "POST", "/v1.0/publish/p/t"+tc.query, tc.body, tc.contentType); res.StatusCode != 204 {
			t.Fatalf("%s: %s", tc.body, body)
		}
		if h := c.Next().Event.Headers; h["ce-source"] != tc.source || h["ce-type"] != tc.kind {
			t.Errorf("%s: %v", tc.body, h)
		}
	}
	s.Want(t, 200, `"id":"shop"`, "GET", "/v1.0/metadata", "")
}

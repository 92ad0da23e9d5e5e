package daprapp

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/test/require"
)

// stored are the events of a topic of one partition.
func (s *sidecar) stored(t testing.TB, topic string) []*eventlog.Record {
	t.Helper()
	page, err := s.log.Scan(t.Context(), topic, eventlog.ScanQuery{}, eventlog.Bounds{Events: 100, Bytes: 1 << 20})
	if err != nil {
		return nil
	}
	return page
}

// Events go to the route of the first rule that matches. What matches none is dropped; an expression that cannot be
// evaluated fails the delivery.
func TestRules(t *testing.T) {
	s := newSidecar(t, quick)
	app := startApplication(t, "127.0.0.1:0", `[{"pubsubname":"p","topic":"t","deadLetterTopic":"dead","routes":{"rules":[`+
		`{"match":"event.type == 'big' && event.data.amount > 100","path":"/big"},{"match":"has(event.vip)","path":"vip"}]}}]`)
	s.run(t, app.addr)
	eventually(t, "it has subscribed", func() bool { return s.lag(t, "t") == 0 })
	for _, tc := range []struct{ id, headers, payload, path string }{
		{"a", "ce-type=big", `{"amount":100.5}`, "/big"},
		{"b", "ce-type=small ce-vip=1", `{}`, "/vip"},
		{"c", "ce-type=small", `{}`, ""},
		{"d", "ce-type=big ce-vip=1", `{}`, ""},
	} {
		var headers wire.Headers
		for _, h := range strings.Fields(tc.headers) {
			name, value, _ := strings.Cut(h, "=")
			headers = headers.With(name, value)
		}
		s.publishPayload(t, wire.Event{Topic: "t", ID: tc.id, Headers: headers, Payload: []byte(tc.payload)})
		if tc.path != "" {
			c := app.next(t)
			if c.id() != tc.id || c.path != tc.path {
				t.Errorf("%s goes to %s", c.id(), c.path)
			}
			c.ok()
		}
	}
	eventually(t, "all are settled", func() bool { return s.lag(t, "t") == 0 })
	reasons := map[string]string{}
	for _, rec := range s.stored(t, "dead") {
		id, _ := rec.Headers.Get(wire.HeaderDeadID)
		reasons[id], _ = rec.Headers.Get(wire.HeaderDeadReason)
	}
	if len(reasons) != 2 || reasons["c"] != "dropped" || !strings.Contains(reasons["d"], "no such key: amount") {
		t.Errorf("dead letters: %v", reasons)
	}
}

// The topic for dead letters gets what the application drops and what fails for good, once, and the application sees the
// events' own ids there.
func TestDeadLetterTopic(t *testing.T) {
	s := newSidecar(t, quick)
	app := startApplication(t, "127.0.0.1:0", `[{"pubsubname":"p","topic":"t","route":"/t","deadLetterTopic":"dead"},`+
		`{"pubsubname":"p","topic":"dead","route":"/dead"},{"pubsubname":"p","topic":"own","route":"/own","deadLetterTopic":"own.dlq"},`+
		`{"pubsubname":"p","topic":"loop","route":"/","deadLetterTopic":"loop"},`+
		`{"pubsubname":"p","topic":"x","route":"/","deadLetterTopic":"y.dlq"}]`)
	s.run(t, app.addr)
	eventually(t, "it has subscribed", func() bool { return s.lag(t, "t") == 0 && s.lag(t, "dead") == 0 && s.lag(t, "own") == 0 })
	type answer struct {
		status int
		body   string
	}
	for id, answers := range map[string][]answer{
		"dropped":  {{200, `{"status":"DROP"}`}},
		"unknown":  {{404, ``}},
		"failing":  {{500, ``}, {500, ``}, {503, ``}},
		"unwanted": {{200, `{"status":"RETRY"}`}, {500, ``}, {200, `{"status":"DROP"}`}},
	} {
		s.publish(t, "t", id, "k")
		for _, answer := range answers {
			c := app.next(t)
			if c.path != "/t" || c.id() != id {
				t.Fatalf("%s at %s", c.id(), c.path)
			}
			c.say(answer.status, answer.body)
		}
		c := app.next(t)
		if c.path != "/dead" || c.id() != id || c.event["topic"] != "dead" || c.event["data"] != 1.0 {
			t.Errorf("%s: %s %v", id, c.path, c.event)
		}
		c.ok()
		eventually(t, "it is settled", func() bool { return s.lag(t, "t") == 0 && s.lag(t, "dead") == 0 })
	}
	if n := len(s.stored(t, "dead")); n != 4 || len(s.stored(t, "t.dlq")) != 0 {
		t.Errorf("%d dead letters, and %d in t.dlq", n, len(s.stored(t, "t.dlq")))
	}
	s.publish(t, "own", "a", "k")
	app.next(t).say(404, "")
	eventually(t, "it is a dead letter", func() bool { return len(s.stored(t, "own.dlq")) == 1 })
	for _, said := range []string{"for ever", `y.dlq`} {
		if !strings.Contains(s.logged.String(), said) {
			t.Errorf("the log does not say %q: %s", said, s.logged)
		}
	}
}

// In bulk each event has its answer, and those without one come again.
func TestBulk(t *testing.T) {
	s := newSidecar(t, quick)
	app := startApplication(t, "127.0.0.1:0", `[{"pubsubname":"p","topic":"t","route":"/t",`+
		`"bulkSubscribe":{"enabled":true,"maxMessagesCount":3,"maxAwaitDurationMs":10000}},`+
		`{"pubsubname":"p","topic":"raw","route":"/raw","metadata":{"rawPayload":"true"},`+
		`"bulkSubscribe":{"enabled":true,"maxAwaitDurationMs":1}}]`)
	s.run(t, app.addr)
	eventually(t, "it has subscribed", func() bool { return s.lag(t, "t") == 0 && s.lag(t, "raw") == 0 })
	for _, id := range []string{"a", "b", "c"} {
		s.publish(t, "t", id, id)
	}
	c := app.next(t)
	entries := c.event["entries"].([]any)
	if c.path != "/t" || len(entries) != 3 || c.event["topic"] != "t" || c.event["pubsubname"] != "p" || c.event["type"] != bulkType {
		t.Fatalf("%s %v", c.path, c.event)
	}
	for _, e := range entries {
		e := e.(map[string]any)
		event := e["event"].(map[string]any)
		if e["contentType"] != "application/cloudevents+json" || e["entryId"] != event["id"] || event["data"] != 1.0 {
			t.Errorf("%v", e)
		}
	}
	c.say(200, `{"statuses":[{"entryId":"a","status":"SUCCESS"},{"entryId":"b","status":"DROP"}]}`)
	s.publish(t, "t", "d", "d")
	s.publish(t, "t", "e", "e")
	c = app.next(t)
	if text := fmt.Sprint(c.event["entries"]); len(c.event["entries"].([]any)) != 3 || !strings.Contains(text, "entryId:c") {
		t.Errorf("%v", text)
	}
	c.say(404, "")
	eventually(t, "all are settled", func() bool { return s.lag(t, "t") == 0 })

	s.publish(t, "raw", "r", "k")
	c = app.next(t)
	e := c.event["entries"].([]any)[0].(map[string]any)
	if e["event"] != base64.StdEncoding.EncodeToString([]byte("1")) || e["contentType"] != "application/octet-stream" {
		t.Errorf("%v", c.event)
	}
	c.say(200, `{"statuses":[{"entryId":"r","status":"SUCCESS"}]}`)
	eventually(t, "it is settled", func() bool { return s.lag(t, "raw") == 0 })
}

// Two pubsubs at one topic are two groups: each gets every event. Raw payloads are bytes.
func TestTwoPubsubs(t *testing.T) {
	s := newSidecar(t, quick)
	app := startApplication(t, "127.0.0.1:0", `[{"pubsubname":"p","topic":"t","route":"/p"},`+
		`{"pubsubname":"q","topic":"t","route":"/q","metadata":{"rawPayload":"true"}}]`)
	s.runApp(t, "http://"+app.addr, Config{Token: func() string { return "secret" }})
	eventually(t, "it has subscribed", func() bool { return s.lagOf(t, "t", "app.p") == 0 && s.lagOf(t, "t", "app.q") == 0 })
	s.publish(t, "t", "a", "k")
	got := map[string]*call{}
	for range 2 {
		c := app.next(t)
		got[c.path] = c
		c.ok()
	}
	if len(got) != 2 || got["/p"].event["data"] != 1.0 || got["/q"].event["data_base64"] != "MQ==" || got["/q"].event["pubsubname"] != "q" {
		t.Errorf("%v", got)
	}
	if token := got["/p"].header.Get("dapr-api-token"); token != "secret" {
		t.Errorf("the application is shown the token %q", token)
	}
}

// Subscriptions of files are served beside those that the application tells; one that becomes different is asked for.
func TestFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	const head = "apiVersion: dapr.io/v2alpha1\nkind: Subscription\nmetadata: {name: s, namespace: default}\nspec:\n  pubsubname: p\n"
	write("a.yaml", "apiVersion: dapr.io/v1alpha1\nkind: Component\nmetadata: {name: p}\nspec: {type: pubsub.redis, version: v1}\n---\n"+
		head+"  topic: t\n  routes:\n    rules:\n      - {match: event.id == 'x', path: /x}\n    default: /t\n"+
		"  metadata: {rawPayload: true}\nscopes: [other, app]\n"+
		"---\n"+head+"  topic: theirs\n  routes: {default: /}\nscopes: [other]\n")
	write("b.yml", "apiVersion: dapr.io/v1alpha1\nkind: Subscription\nspec: {pubsubname: p, topic: u, route: /u, deadLetterTopic: dead}\n")
	write("c.txt", "no: yaml")
	list, err := ReadFiles(dir, "app", true)
	if err != nil || len(list) != 2 || list[0].Topic != "t" || list[0].Metadata["rawPayload"] != "true" || list[1].DeadLetterTopic != "dead" {
		t.Fatalf("%+v %v", list, err)
	}
	for text, want := range map[string]string{
		head + "  topic: t\n":  "no route",
		head + "  topics: t\n": "line 6: spec.topics is not known",
		head + "  topic: t\n  routes: {default: /, rule: []}\n":                                     "line 7: routes.rule is not known",
		head + "  topic: t\n  routes: {rules: [{match: event.a ==, path: /}]}\n":                    "Syntax error",
		head + "  topic: t\n  routes: {rules: [{match: '1 + 1', path: /}]}\n":                       "must be true or false",
		"apiVersion: dapr.io/v3\nkind: Subscription\nspec: {}\n":                                    "apiVersion",
		head + "  topic: t\n  route: /\n  bulkSubscribe: {enabled: true, maxMessagesCount: 5000}\n": "1 to 1000",
		"a: [\n": "yaml",
	} {
		if _, err := ReadFiles(write("bad.yaml", text), "app", true); err == nil || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), "bad.yaml") {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	s := newSidecar(t, quick)
	app := startApplication(t, "127.0.0.1:0", `[{"pubsubname":"p","topic":"v","route":"/v"},{"pubsubname":"p","topic":"u","route":"/other"}]`)
	s.runApp(t, "http://"+app.addr, Config{Described: list})
	eventually(t, "it has subscribed", func() bool { return s.lag(t, "t") == 0 && s.lag(t, "u") == 0 && s.lag(t, "v") == 0 })
	s.publish(t, "u", "a", "k")
	if c := app.next(t); c.path != "/u" {
		t.Errorf("%s", c.path)
	} else {
		c.say(http.StatusOK, "")
	}
}

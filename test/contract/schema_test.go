package contract

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

const shopSchema = `{type: object, required: [id], properties: {id: {type: integer, maximum: 12345678901234567890}, ` +
	`lines: {items: {required: [sku]}}}}`

// "schema_violation 422: the topic's schema refuses the payload; gives the JSON Pointer", on every
// way in.
func TestSchemaViolation(t *testing.T) {
	t.Parallel()
	s := own(t, `[{name: "shop.*", publish: {rate: 0.001, burst: 3}, schema: {json_schema: `+shopSchema+`}}]`)
	for payload, pointer := range map[string]string{
		`{"id":"x"}`:                      "/id",
		`{"id":12345678901234567891}`:     "/id",
		`{"id":1,"lines":[{"sku":1},{}]}`: "/lines/1",
		`{}`:                              "",
		`[]`:                              "",
	} {
		a := s.post(t, "shop.a", payload)
		e := a.JSON(t)
		if p, given := e["pointer"]; a.Status != 422 || e.Text("code") != "schema_violation" || !given || p != pointer || e.Text("error") == "" {
			t.Errorf("%s: %d %s, want the pointer %q", payload, a.Status, a.Body, pointer)
		}
	}
	a := s.post(t, "shop.a", `{"id":1}`, "Content-Type: application/octet-stream")
	if a.Status != 422 || a.JSON(t)["pointer"] != "" {
		t.Errorf("bytes: %d %s", a.Status, a.Body)
	}
	k := s.dial(t)
	if e := k.refused("schema_violation", `{"op":"PUBLISH","topic":"shop.a","payload":{"id":null}}`); e["pointer"] != "/id" {
		t.Errorf("%v", e)
	}
	// The refused event took no token: three are left.
	a = s.post(t, "shop.a", `{"payload":{"id":1}}`+"\n"+`{"payload":{"id":"x"}}`+"\n"+`{"payload":{"id":12345678901234567890}}`,
		"Content-Type: application/x-ndjson")
	results := a.JSON(t).List("results")
	if a.Status != 200 || len(results) != 3 {
		t.Fatalf("batch: %d %s", a.Status, a.Body)
	}
	refused := results[1].Text("code") == "schema_violation" && results[1]["pointer"] == "/id"
	if results[0].Text("durability") != "store" || !refused || results[2].Text("durability") != "store" {
		t.Errorf("batch: %s", a.Body)
	}
	if a := testkit.Call(t, "POST", s.URL()+"/v1.0/publish/p/shop.a", `{"id":"x"}`); a.Status != 422 {
		t.Errorf("dapr: %d %s", a.Status, a.Body)
	}
	if a := s.post(t, "shop.a", `{"specversion":"1.0","id":"i","source":"/s","type":"t","data":{"id":1}}`,
		"Content-Type: application/cloudevents+json"); a.Status != 201 {
		t.Errorf("the schema is of the data: %d %s", a.Status, a.Body)
	}
	if a := s.post(t, "elsewhere", `[]`); a.Status != 201 {
		t.Errorf("another topic: %d %s", a.Status, a.Body)
	}
	// Those before the topic existed are counted under another label.
	metrics := string(testkit.Call(t, "GET", s.OpsURL()+"/metrics", "").Body)
	refusals := 0
	line := regexp.MustCompile(`sluice_events_rejected_total\{code="schema_violation",topic=.*\} (\d+)`)
	for _, count := range line.FindAllStringSubmatch(metrics, -1) {
		n, err := strconv.Atoi(count[1])
		require.NoError(t, err)
		refusals += n
	}
	if refusals != 9 {
		t.Errorf("%d refusals are counted, not nine", refusals)
	}
}

// A changed schema acts within 3 s. One that does not compile is an invalid policy whose error
// names the field: the policy in force stays.
func TestSchemaChanges(t *testing.T) {
	t.Parallel()
	file := testkit.Write(t, t.TempDir()+"/p.yaml", `[{name: a, publish: {rate: 0}, schema: {json_schema: {type: number}}}]`)
	s := own(t, "", "--policies", file)
	becomes := func(payload string, status int) {
		t.Helper()
		testkit.Eventually(t, payload, func() bool { return s.post(t, "a", payload).Status == status })
	}
	becomes(`"x"`, 422)
	testkit.Write(t, file, `[{name: a, publish: {rate: 0}, schema: {json_schema: {type: string}}}]`)
	becomes(`"x"`, 201)
	becomes(`1`, 422)
	testkit.Write(t, file, `[{name: a, schema: {json_schema: {$ref: "https://example.com/s.json"}}}, {name: b, paused: true}]`)
	testkit.Eventually(t, "the log names the field and the reference", func() bool {
		log := s.Log()
		return strings.Contains(log, "schema.json_schema") && strings.Contains(log, "https://example.com/s.json")
	})
	becomes(`1`, 422)
	becomes(`"x"`, 201)
}

// "Events carry headers["sluice-schema-version"]", "GET /v1/topics/{topic}/schema → the one in
// force, 404 without", and "headers sluice-* aside" of a conflict.
func TestSchemaVersion(t *testing.T) {
	t.Parallel()
	file := testkit.Write(t, t.TempDir()+"/p.yaml", `[{name: "shop.*", schema: {json_schema: {type: object}, compatibility: full}}]`)
	s := own(t, "", "--policies", file)
	header := func(topic, id string) any {
		events := testkit.Call(t, "GET", s.ReplayURL()+"/replay?topic="+topic, "").JSON(t).List("events")
		for _, e := range events {
			if e.Text("id") == id {
				return e.At("headers.sluice-schema-version")
			}
		}
		t.Fatalf("%s has no %s: %v", topic, id, events)
		return nil
	}
	for _, topic := range []string{"shop.a", "free"} {
		for id, claims := range map[string]string{"plain": "", "claims": "Sluice-Header-sluice-schema-version: 7"} {
			headers := []string{"Sluice-Id: " + id}
			if claims != "" {
				headers = append(headers, claims)
			}
			if a := s.post(t, topic, `{"a":1}`, headers...); a.Status != 201 {
				t.Fatalf("%s: %d %s", topic, a.Status, a.Body)
			}
			want := map[string]any{"shop.a": "1", "free": nil}[topic]
			if got := header(topic, id); got != want {
				t.Errorf("%s %s: version %v, want %v", topic, id, got, want)
			}
		}
	}
	link := s.URL() + "/v1/topics/shop.a/schema"
	a := testkit.Call(t, "GET", link, "")
	if want := `{"topic":"shop.a","version":1,"json_schema":{"type":"object"},"compatibility":"full"}`; a.Status != 200 ||
		strings.TrimSpace(string(a.Body)) != want {
		t.Errorf("%d %s, want %s", a.Status, a.Body, want)
	}
	if b := testkit.Call(t, "GET", link, "", "If-None-Match: "+a.Header.Get("ETag")); b.Status != 304 || len(b.Body) > 0 {
		t.Errorf("not modified: %d %s", b.Status, b.Body)
	}
	if b := testkit.Call(t, "GET", link, "", "Accept: application/schema+json"); string(b.Body) != `{"type":"object"}` ||
		b.Header.Get("Content-Type") != "application/schema+json" {
		t.Errorf("the schema alone: %d %s %s", b.Status, b.Header.Get("Content-Type"), b.Body)
	}
	if b := testkit.Call(t, "GET", s.URL()+"/v1/topics/free/schema", ""); b.Status != 404 || b.JSON(t).Text("code") != "not_found" {
		t.Errorf("without one: %d %s", b.Status, b.Body)
	}
	// An event that comes again after the schema is gone is the same event.
	testkit.Write(t, file, `[]`)
	testkit.Eventually(t, "no schema", func() bool { return testkit.Call(t, "GET", link, "").Status == 404 })
	if b := s.post(t, "shop.a", `{"a":1}`, "Sluice-Id: plain"); b.Status != 200 || b.JSON(t)["duplicate"] != true {
		t.Errorf("again: %d %s", b.Status, b.Body)
	}
}

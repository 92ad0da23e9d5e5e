package controlplane

import (
	"encoding/json"
	"fmt"
	"net/url"
	"reflect"
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/test/testkit"
)

// section7 is the policy of the contract's section 7, in JSON, with its comments' other values
// where alternative is true.
func section7(alternative bool) string {
	document := `{
	"publish": {"rate": 1000, "burst": 1000, "bytes_per_second": 0, "scope": "sidecar", "on_limit": "reject", "max_wait": "0s"},
	"connection": {"rate": 200, "burst": 200},
	"delivery": {"rate": 0, "max_inflight": 100, "ack_timeout": "30s", "max_attempts": 25, "backoff": {"min": "100ms", "max": "5m"}},
	"partitions": 8,
	"dedupe": {"window": "168h", "by": "id"},
	"retention": {"ttl": "0s", "compact": false, "dead_letters": "720h"},
	"durability": {"write_concern": "majority", "on_store_unavailable": "spool", "spool_max_bytes": 1073741824},
	"schema": {"json_schema": null, "compatibility": "backward"},
	"tracing": {"sample_ratio": 1.0},
	"paused": false}`
	if !alternative {
		return document
	}
	return strings.NewReplacer(`"sidecar"`, `"fleet"`, `"reject"`, `"wait"`, `"0s"`, `"1.5s"`, `"majority"`, `"w:1"`, `"spool"`, `"reject"`,
		`null`, `{"type":"object","properties":{"n":{"maximum":12345678901234567890,"multipleOf":0.10}},"required":["n"]}`,
		`1.0`, `0.25`, `false`, `true`).Replace(document)
}

// section7YAML is the same policy as section 7 spells it, for a file.
const section7YAML = `
- name: orders.*
  publish:   {rate: 1000, burst: 1000, bytes_per_second: 0, scope: sidecar, on_limit: reject, max_wait: 0s}
  # scope: sidecar | fleet; on_limit: reject | wait
  connection: {rate: 200, burst: 200}
  delivery:  {rate: 0, max_inflight: 100, ack_timeout: 30s, max_attempts: 25, backoff: {min: 100ms, max: 5m}}
  partitions: 8
  dedupe:    {window: 168h, by: id}
  retention: {ttl: 0s, compact: false, dead_letters: 720h}   # 0 = for ever; compact keeps the latest per key
  durability: {write_concern: majority, on_store_unavailable: spool, spool_max_bytes: 1073741824}   # or w:1; or reject
  schema:    {json_schema: null, compatibility: backward}
  tracing:   {sample_ratio: 1.0}
  paused: false
`

// content is a policy without the fields that the control plane adds. Numbers are compared as
// numbers: 1 is 1.0.
func content(t testing.TB, text []byte) map[string]any {
	t.Helper()
	var o map[string]any
	if err := json.Unmarshal(text, &o); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	for _, added := range []string{"name", "version", "updated_at", "updated_by"} {
		delete(o, added)
	}
	return o
}

// "each the policy as above in JSON": GET answers the document that was PUT, field by field, and
// nothing else.
func TestDocuments(t *testing.T) {
	t.Parallel()
	p := start(t)
	for i, document := range []string{
		section7(false), section7(true), `{}`, `{"name":"t"}`,
		`{"publish":{"rate":0.5}}`, `{"publish":{"rate":2.5e3,"burst":1e3}}`, `{"publish":{"rate":1000000000}}`,
		`{"delivery":{"backoff":{"max":"1m30s"}}}`, `{"delivery":{"backoff":{"min":"5ms"}},"paused":true}`,
		`{"retention":{"ttl":"24h","compact":true}}`, `{"schema":{"json_schema":{}}}`, `{"durability":{"write_concern":"w:3"}}`,
		`{"connection":{"rate":0}}`, `{"tracing":{"sample_ratio":0}}`, `{"paused":false}`,
		`{"schema":{"json_schema":{"b":1,"a":{"z":"\u00e9\n","y":[null,true,1e400]}}}}`,
	} {
		p.put(t, "t", document)
		a := p.call(t, "GET", "/v1/policies/t", "")
		if strings.Contains(document, "1e400") { // too large for a number of Go's
			if !strings.Contains(string(a.Body), `{"b":1,"a":{"z":"é\n","y":[null,true,1e400]}}`) {
				t.Errorf("%s: GET %s", document, a.Body)
			}
			continue
		}
		if got, want := content(t, a.Body), content(t, []byte(document)); !reflect.DeepEqual(got, want) {
			t.Errorf("%d: PUT %v\nGET %v", i, want, got)
		}
		if strings.Contains(document, "multipleOf") && !strings.Contains(string(a.Body), `{"maximum":12345678901234567890,"multipleOf":0.10}`) {
			t.Errorf("the schema's numbers are others: %s", a.Body)
		}
	}
	// Durations mean what Go says, however they are spelled.
	p.put(t, "t", `{"delivery":{"ack_timeout":"90s"},"publish":{"max_wait":"0"}}`)
	if o := p.get(t, "/v1/policies/t"); o.Text("delivery.ack_timeout") != "1m30s" || o.Text("publish.max_wait") != "0s" {
		t.Errorf("%v", o)
	}
}

// "A policy names a topic or a glob (orders.*, *)": in a path as it is, or escaped.
func TestNames(t *testing.T) {
	t.Parallel()
	p := start(t)
	long := strings.Repeat("n", 255)
	for _, name := range []string{"*", "orders.*", "orders.created", "a*", "A-b_c.0", "_x", long, strings.Repeat("n", 200) + "*"} {
		for i, spelled := range []string{name, strings.ReplaceAll(name, "*", "%2A"), url.PathEscape(name)} {
			path := "/v1/policies/" + spelled
			a := p.call(t, "PUT", path, fmt.Sprintf(`{"name":%q,"partitions":%d}`, name, i+1))
			if o := a.JSON(t); a.Status != map[bool]int{true: 201, false: 200}[i == 0] || o["name"] != name {
				t.Errorf("PUT %.30s: %d %.300s", path, a.Status, a.Body)
			}
			if o := p.get(t, path); o["name"] != name || o.Text("partitions") != fmt.Sprint(i+1) {
				t.Errorf("GET %.30s: %v", path, o)
			}
			if h := p.get(t, path+"/history").List("versions"); len(h) != i+1 {
				t.Errorf("history of %.30s: %v", path, h)
			}
		}
		if a := p.call(t, "POST", "/v1/policies/"+name+"/rollback", `{"version":1}`); a.Status != 200 || a.JSON(t)["name"] != name {
			t.Errorf("rollback of %.30s: %d %s", name, a.Status, a.Body)
		}
		if a := p.call(t, "DELETE", "/v1/policies/"+name, ""); a.Status != 204 {
			t.Errorf("DELETE %.30s: %d %s", name, a.Status, a.Body)
		}
	}
	for _, name := range []string{"a%20b", "a*b", "**", "a%2Fb", "%C3%A9", long + "n", "a%00", "%25"} {
		hasField(t, name, p.call(t, "PUT", "/v1/policies/"+name, `{}`), "name")
	}
	hasField(t, "another name", p.call(t, "PUT", "/v1/policies/a", `{"name":"b"}`), "name")
}

// hasField checks that a refusal has `"fields":[{"field","message"}…]`, with every bad field and no
// other.
func hasField(t testing.TB, what string, a testkit.Answer, fields ...string) {
	t.Helper()
	o := refused(t, what, a, 422, "invalid_policy")
	got := map[string]bool{}
	for _, f := range o.List("fields") {
		got[f.Text("field")] = true
		if f.Text("message") == "" {
			t.Errorf("%s: no message: %v", what, f)
		}
	}
	for _, f := range fields {
		if !got[f] {
			t.Errorf("%.100s: %s is not named: %.300s", what, f, a.Body)
		}
	}
	if len(got) != len(fields) {
		t.Errorf("%.100s: more is named than %v: %.300s", what, fields, a.Body)
	}
}

// "An invalid policy is refused whole (invalid_policy), and what was in force stays in force."
func TestInvalidChangesNothing(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.put(t, "*", `{"publish":{"burst":50}}`)
	p.put(t, "t", `{"publish":{"rate":7}}`)
	before := string(p.call(t, "GET", "/v1/policies", "").Body)
	for _, c := range []struct {
		document string
		fields   []string
	}{
		{`{"publish":{"rate":-1,"burst":-1,"scope":"galaxy","on_limit":"drop","max_wait":"soon","bytes_per_second":1.5}}`,
			[]string{"publish.rate", "publish.burst", "publish.scope", "publish.on_limit", "publish.max_wait", "publish.bytes_per_second"}},
		{`{"delivery":{"ack_timeout":30,"max_inflight":0,"max_attempts":0,"backoff":{"min":"-1s"}}}`,
			[]string{"delivery.ack_timeout", "delivery.max_inflight", "delivery.max_attempts", "delivery.backoff.min"}},
		{`{"partitions":0,"paused":"no","dedupe":{"window":"1 week"},"retention":{"compact":1},"durability":{"write_concern":"most"}}`,
			[]string{"partitions", "paused", "dedupe.window", "retention.compact", "durability.write_concern"}},
		{`{"schema":{"json_schema":"{"},"tracing":{"sample_ratio":1.1},"connection":[]}`,
			[]string{"schema.json_schema", "tracing.sample_ratio", "connection"}},
		{`{"colour":"red","publish":{"brust":1}}`, []string{"colour", "publish.brust"}},
		{`{"publish":{"rate":5,"burst":0}}`, []string{"publish.burst"}},
		{`{"delivery":{"backoff":{"min":"2s","max":"1s"}}}`, []string{"delivery.backoff.min"}},
		{`{"publish":{"rate":null}}`, []string{"publish.rate"}},
		{`{"paused":true,"paused":false}`, []string{"paused"}},
	} {
		hasField(t, c.document, p.call(t, "PUT", "/v1/policies/t", c.document), c.fields...)
	}
	// A policy that is bad for another one: t has a rate and takes its burst from *.
	o := refused(t, "bad for another", p.call(t, "PUT", "/v1/policies/*", `{"publish":{"rate":0,"burst":0}}`), 422, "invalid_policy")
	if fields := o.List("fields"); len(fields) == 0 || !strings.Contains(fields[0].Text("field")+fields[0].Text("message"), "t") {
		t.Errorf("%v", o)
	}
	for _, body := range []string{``, `{`, `{}{}`, "{\"name\":\"\xff\"}"} {
		refused(t, body, p.call(t, "PUT", "/v1/policies/t", body), 400, "bad_json")
	}
	for _, body := range []string{`[]`, `null`, `1`, `"t"`} {
		refused(t, body, p.call(t, "PUT", "/v1/policies/t", body), 422, "invalid_policy")
	}
	refused(t, "17 MiB", p.call(t, "PUT", "/v1/policies/t", `{"name":"`+strings.Repeat("x", 17<<20)+`"}`), 413, "payload_too_large")
	if after := string(p.call(t, "GET", "/v1/policies", "").Body); after != before {
		t.Errorf("before %s\nafter %s", before, after)
	}
	if h := p.get(t, "/v1/policies/t/history").List("versions"); len(h) != 1 {
		t.Errorf("history: %v", h)
	}
}

package controlplane

import (
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/test/testkit"
)

// "invalid_policy 422: every bad field": a schema that does not compile is one.
func TestSchemaThatDoesNotCompile(t *testing.T) {
	t.Parallel()
	p := start(t)
	for schema, names := range map[string]string{
		`{"type":"strnig"}`: "/type",
		`{"properties":{"a":{"$ref":"https://example.com/s.json"}}}`: "https://example.com/s.json",
		`{"$schema":"https://example.com/meta"}`:                     "https://example.com/meta",
		`{"pattern":"("}`:                                            "/pattern",
		`"{\"required\":1}"`:                                         "/required",
	} {
		answer := p.call(t, "PUT", "/v1/policies/t", `{"paused":true,"schema":{"json_schema":`+schema+`}}`)
		hasField(t, schema, answer, "schema.json_schema")
		if !strings.Contains(string(answer.Body), names) {
			t.Errorf("%s: %s does not name %s", schema, answer.Body, names)
		}
	}
	p.put(t, "t", `{"schema":{"json_schema":{"$schema":"http://json-schema.org/draft-07/schema#",`+
		`"properties":{"a":{"$ref":"#/definitions/n"}},"definitions":{"n":{"type":"number"}}}}}`)
}

// "a policy change that breaks compatibility is invalid_policy for the field schema.json_schema,
// with each reason"; "Events carry headers["sluice-schema-version"]", which the control plane
// counts.
func TestSchemasEvolve(t *testing.T) {
	t.Parallel()
	p := start(t)
	closed := func(members string) string {
		return `{"type":"object","properties":{` + members + `},"additionalProperties":false}`
	}
	first, second := closed(`"id":{"type":"string"}`), closed(`"id":{"type":"string"},"n":{"type":"integer"}`)
	p.put(t, "shop.*", `{"schema":{"json_schema":`+first+`}}`)
	s := p.sidecar(t, "s")
	publish := func(topic, payload, want string) func() bool {
		return func() bool {
			a := testkit.Call(t, "POST", s.URL()+"/v1/topics/"+topic+"/events", payload)
			if a.Status != 201 {
				return want == a.JSON(t).Text("code")
			}
			events := testkit.Call(t, "GET", s.ReplayURL()+"/replay?order=desc&limit=1&topic="+topic, "").JSON(t).List("events")
			return len(events) == 1 && want == events[0].At("headers.sluice-schema-version")
		}
	}
	enforced(t, "the first schema", publish("shop.a", `{"id":"a"}`, "1"))
	if !publish("shop.a", `{"n":1}`, "schema_violation")() {
		t.Error("the first schema lets a number in")
	}

	answer := p.call(t, "PUT", "/v1/policies/shop.*", `{"schema":{"json_schema":`+closed(``)+`}}`)
	hasField(t, "closed", answer, "schema.json_schema")
	if !strings.Contains(string(answer.Body), `/properties/id`) {
		t.Errorf("%s does not say what is refused", answer.Body)
	}
	p.put(t, "shop.*", `{"schema":{"json_schema":`+second+`}}`)
	enforced(t, "the second schema", publish("shop.a", `{"n":1}`, "2"))
	schema := testkit.Call(t, "GET", s.URL()+"/v1/topics/shop.a/schema", "").JSON(t)
	if schema.Number(t, "version") != 2 {
		t.Errorf("in force: %v", schema)
	}
	versions := p.call(t, "GET", "/v1/policies/shop.*/schemas", "").JSON(t).List("versions")
	if len(versions) != 2 {
		t.Fatalf("versions: %v", versions)
	}
	newest, oldest := versions[0], versions[1]
	whole := oldest.Has(testkit.Members{"version": "1", "json_schema.type": "object"}) && oldest.Text("by") != "" && oldest.Text("at") != ""
	if newest.Number(t, "version") != 2 || !whole {
		t.Errorf("versions: %v", versions)
	}
	for body, want := range map[string]string{
		`{"json_schema":` + first + `}`: `{"compatible":false,"reasons":["at \"/properties/n\", ` +
			`the new schema allows no value here, and version 2 does"]}`,
		`{"json_schema":` + first + `,"compatibility":"forward"}`: `{"compatible":true,"reasons":[]}`,
	} {
		if a := p.call(t, "POST", "/v1/policies/shop.*/schemas/check", body); a.Status != 200 || strings.TrimSpace(string(a.Body)) != want {
			t.Errorf("%s: %d %s", body, a.Status, a.Body)
		}
	}
}

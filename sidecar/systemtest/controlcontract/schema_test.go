package controlcontract_test

import (
	"strings"
	"testing"
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
	p.put(t, "t", `{"schema":{"json_schema":{"$schema":"http://json-schema.org/draft-07/schema#","properties":{"a":{"$ref":"#/definitions/n"}},"definitions":{"n":{"type":"number"}}}}}`)
}

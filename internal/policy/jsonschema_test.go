package policy_test

import (
	"encoding/json"
	"testing"

	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"

	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/internal/schema"
)

// takes compiles the schema of policies, and returns whether it takes a document.
func takes(t *testing.T) func(document string) bool {
	t.Helper()
	text, err := json.Marshal(policy.JSONSchema())
	if err != nil {
		t.Fatal(err)
	}
	compiled, err := schema.Compile(string(text))
	if err != nil {
		t.Fatal(err)
	}
	return func(document string) bool { return compiled.Check([]byte(document)) == nil }
}

func TestJSONSchemaTakesEveryPolicy(t *testing.T) {
	takes := takes(t)
	rapid.Check(t, func(t *rapid.T) {
		if document := drawn(t); !takes("[" + document + "]") {
			t.Errorf("the schema refuses %s", document)
		}
	})
	for _, document := range []string{contract, everything} {
		var value any
		if err := yaml.Unmarshal([]byte(document), &value); err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		if !takes(string(text)) {
			t.Errorf("the schema refuses %s", text)
		}
	}
}

func TestJSONSchemaRefusesMistakes(t *testing.T) {
	takes := takes(t)
	for _, document := range []string{
		`[{"publish":{"rate":1}}]`, `[{"name":"a b"}]`, `[{"name":"a","publish":{"rat":1}}]`, `[{"name":"a","publish":{"rate":2e9}}]`,
		`[{"name":"a","partitions":1.5}]`, `[{"name":"a","delivery":{"ack_timeout":"soon"}}]`, `[{"name":"a","delivery":{"ack_timeout":30}}]`,
		`[{"name":"a","groups":{"g":{"pause":true}}}]`, `[{"name":"a","durability":{"write_concern":"w"}}]`, `{"policy":[]}`, `"a"`,
	} {
		if takes(document) {
			t.Errorf("the schema takes %s", document)
		}
	}
}

package main

import (
	"os"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// wantAsyncAPI fails where a document is not what AsyncAPI's published schema allows.
func wantAsyncAPI(t *testing.T, document string) {
	t.Helper()
	const name = "testdata/asyncapi-3.0.0.json"
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	text, err := jsonschema.UnmarshalJSON(file)
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource(name, text); err != nil {
		t.Fatal(err)
	}
	published, err := compiler.Compile(name)
	if err != nil {
		t.Fatal(err)
	}
	check := func(document string) error {
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(document))
		if err != nil {
			t.Fatal(err)
		}
		return published.Validate(v)
	}
	if err := check(document); err != nil {
		t.Errorf("%s: %v", document, err)
	}
	for is, wrong := range map[string]string{
		`"title"`: `"name"`, `"protocol"`: `"scheme"`, `"action": "send"`: `"action": "publish"`, `"address": "orders"`: `"address": 1`,
		`"type": "number"`: `"type": "float"`,
	} {
		if check(strings.Replace(document, is, wrong, 1)) == nil {
			t.Errorf("%s in place of %s is allowed", wrong, is)
		}
	}
}

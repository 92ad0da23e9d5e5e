package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/internal/schema"
	"github.com/sluice-bus/sluice/sdk/admin"
	"github.com/sluice-bus/sluice/test/sluicetest"
)

func schemaFile(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "order.json")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestSchemaCheckAgainstFiles(t *testing.T) {
	p := startPlane(t, sluicetest.ControlPlaneOptions{})
	before := schemaFile(t, `{"type": "object", "properties": {"n": {"type": "integer"}}}`)
	wide, narrow := schemaFile(t, `{"type":"object","properties":{"n":{"type":"number"}}}`), schemaFile(t,
		`{"type":"object","required":["n"]}`)
	why := "incompatible:\n  the new schema requires the property \"n\", and " + before + " does not\n"
	for _, tc := range []struct {
		args   []string
		status int
		stdout string
	}{
		{[]string{wide, "--against", before}, 0, "compatible\n"},
		{[]string{narrow, "--against", before}, 1, why},
		{[]string{narrow, "--against", wide, "--against", before, "-o", "json"}, 1, ""},
		{[]string{narrow, "--against", before, "--compatibility", "none"}, 0, "compatible\n"},
		{[]string{wide, "--against", before, "--compatibility", "full"}, 1,
			"incompatible:\n  at \"/properties/n\", " + before + " allows no fraction here, and the new schema does\n"},
		{[]string{wide, "--against", before, "-o", "json"}, 0, `{"compatible":true,"reasons":[]}` + "\n"},
	} {
		got := p.run("", append([]string{"schema", "check"}, tc.args...)...)
		if got.status != tc.status || got.stderr != "" || tc.stdout != "" && got.stdout != tc.stdout {
			t.Errorf("%q: %+v", tc.args, got)
		}
	}
	got := p.run(`{"type":"object"}`, "schema", "check", narrow, "--against", "-")
	if got.status != 1 || !strings.Contains(got.stdout, "standard input") {
		t.Errorf("from standard input: %+v", got)
	}
	for want, args := range map[string][]string{
		"--topic, --policy and --against": {wide},
		"sideways":                        {wide, "--against", before, "--compatibility", "sideways"},
		"no such file":                    {wide, "--against", before + ".not"},
		"is no JSON Schema":               {schemaFile(t, `{"type":"strnig"}`), "--against", before},
		"is not JSON":                     {schemaFile(t, `{`), "--against", before},
		"--topic":                         {wide, "--against", before, "--topic", "a"},
	} {
		if got := p.run("", append([]string{"schema", "check"}, args...)...); got.status != 2 || !strings.Contains(got.stderr, want) {
			t.Errorf("%q: %+v", args, got)
		}
	}
}

func TestSchemaCheckAgainstPolicies(t *testing.T) {
	var asked []string
	var stores []admin.FleetStore
	check := func(name string, text json.RawMessage, how string) []string {
		asked = append(asked, name+" "+string(text)+" "+how)
		if strings.Contains(string(text), "number") {
			return []string{"one\x1b", "two"}
		}
		return nil
	}
	p := startPlane(t, sluicetest.ControlPlaneOptions{CheckSchema: check, Stores: func() []admin.FleetStore { return stores }})
	p.ok("policy", "set", "*", "paused=false")
	p.ok("policy", "set", "orders.*", `schema.json_schema={"type":"object"}`)
	p.ok("policy", "set", "orders.created", "publish.rate=1")
	p.ok("policy", "set", "orders.free", "schema.json_schema=null")
	p.ok("policy", "set", "orders.*", `schema.json_schema={"type":["object","null"]}`)
	object, number := schemaFile(t, `{ "type": "object" }`), schemaFile(t, `{"type":"number"}`)
	want(t, p.ok("schema", "check", object, "--topic", "orders.created"), "compatible\n")
	got := p.run("", "schema", "check", number, "--policy", "orders.created", "--compatibility", "full")
	if got.status != 1 || got.stdout != "incompatible:\n  \"one\\x1b\"\n  two\n" {
		t.Errorf("%+v", got)
	}
	stores = []admin.FleetStore{{Store: "s-1"}}
	for args, want := range map[string]string{"": "orders.created of s-1", "s-2": "orders.created of s-2"} {
		flags := []string{"schema", "check", number, "--policy", "orders.*", "--events", "orders.created"}
		if args != "" {
			flags = append(flags, "--store", args)
		}
		got := p.run("", flags...)
		end := "  two\nof the latest 3 events it refuses 1\n  e-1: at \"/n\" " + want + "\n"
		if got.status != 1 || !strings.HasSuffix(got.stdout, end) {
			t.Errorf("with --store %q: %+v", args, got)
		}
	}
	asked = asked[:2]
	want(t, strings.Join(asked, "\n"), `orders.* {"type":"object"} `+"\n"+`orders.created {"type":"number"} full`)
	stores = append(stores, admin.FleetStore{Store: "s-2"})
	for want, args := range map[string][]string{
		"topic other has no schema":       {"--topic", "other"},
		"topic orders.free has no schema": {"--topic", "orders.free"},
		"not_found":                       {"--policy", "never"},
		"does not go with --against":      {"--against", object, "--events", "a"},
		"the sidecars have 2 stores":      {"--policy", "orders.*", "--events", "a"},
	} {
		if got := p.run("", append([]string{"schema", "check", object}, args...)...); got.status != 2 || !strings.Contains(got.stderr, want) {
			t.Errorf("%q: %+v", args, got)
		}
	}
	want(t, p.ok("schema", "list", "orders.*"), `VERSION  SINCE     BY                    BYTES
2        DAYS ago  alice (not verified)  26
1        DAYS ago  alice (not verified)  17
`)
	want(t, p.ok("schema", "show", "orders.*", "--schema-version", "1"), "{\n  \"type\": \"object\"\n}\n")
	want(t, p.ok("schema", "show", "orders.*", "--schema-version", "2", "-o", "json"), `{"type":["object","null"]}`+"\n")
	p.run("", "schema", "show", "orders.*", "--schema-version", "3").wantFailure(t, 3, "no version 3")
}

func TestSchemaShowAndAsyncAPI(t *testing.T) {
	s := sluicetest.Start(sluicetest.Options{Policies: `
- {name: orders, schema: {json_schema: {type: object, properties: {line: {$ref: "#/$defs/line"}, "$defs": {const: {$ref: "#/x"}}},
	$defs: {line: {type: object, required: [sku]}}}}}
- {name: old, schema: {json_schema: {$schema: "http://json-schema.org/draft-07/schema#", type: number}}}
- {name: own, schema: {json_schema: {$id: "https://example.com/own", $ref: "#/$defs/a", $defs: {a: {type: string}}}}}
`})
	defer s.Close()
	want(t, run(t, s, "", "schema", "show", "old", "-o", "json").wantOK(t).stdout,
		`{"$schema":"http://json-schema.org/draft-07/schema#","type":"number"}`+"\n")
	run(t, s, "", "schema", "show", "free").wantFailure(t, 3, "has no schema")

	text := run(t, s, "", "schema", "asyncapi", "orders", "old", "own", "free.topic", "--title", "Shop").wantOK(t).stdout
	var document any
	if err := json.Unmarshal([]byte(text), &document); err != nil {
		t.Fatal(err)
	}
	wantAsyncAPI(t, text)
	// The command promises these. https://www.asyncapi.com/docs/reference/specification/v3.0.0
	for path, want := range map[string]any{
		"/asyncapi": "3.0.0", "/info/title": "Shop", "/info/version": "1.0.0", "/servers/sidecar/protocol": "ws",
		"/servers/sidecar/pathname": "/ws",
		"/servers/sidecar/host":     strings.TrimPrefix(s.URL, "http://"),
		"/channels/orders/address":  "orders", "/channels/orders/messages/orders/$ref": "#/components/messages/orders",
		"/operations/send-orders/action": "send", "/operations/receive-orders/action": "receive",
		"/operations/send-orders/channel/$ref":                          "#/channels/orders",
		"/components/messages/orders/payload/$ref":                      "#/components/schemas/orders",
		"/components/schemas/orders/schemaFormat":                       "application/schema+json;version=draft-2020-12",
		"/components/schemas/old/schemaFormat":                          "application/schema+json;version=draft-07",
		"/components/schemas/own/schema/$ref":                           "#/$defs/a",
		"/components/schemas/orders/schema/properties/$defs/const/$ref": "#/x",
		"/components/messages/free.topic/payload":                       nil,
		"/components/messages/free.topic/name":                          "free.topic",
		"/channels/free.topic/address":                                  "free.topic",
	} {
		if got := at(document, path); got != want {
			t.Errorf("%s: %v, want %v", path, got, want)
		}
	}
	var refs func(v any)
	refs = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, one := range v {
				refs(one)
			}
		case map[string]any:
			if ref, ok := v["$ref"].(string); ok && v["$defs"] == nil && ref != "#/x" && at(document, strings.TrimPrefix(ref, "#")) == nil {
				t.Errorf("%s leads nowhere", ref)
			}
			for _, one := range v {
				refs(one)
			}
		}
	}
	refs(document)
	// The schema says the same inside of the document.
	inside, err := schema.Compile(`{"$ref":"#/components/schemas/orders/schema",` + strings.TrimPrefix(strings.TrimSpace(text), "{"))
	if err != nil {
		t.Fatal(err)
	}
	if inside.Check([]byte(`{"line":{"sku":"x"}}`)) != nil || inside.Check([]byte(`{"line":{}}`)) == nil {
		t.Error("the schema is another one inside of the document")
	}
	run(t, s, "", "schema", "asyncapi", "a b").wantFailure(t, 2, "topic")
}

// at follows a JSON Pointer; nil: there is nothing.
func at(v any, pointer string) any {
	for token := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		m, _ := v.(map[string]any)
		v = m[token]
	}
	return v
}

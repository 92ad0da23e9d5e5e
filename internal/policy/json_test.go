package policy_test

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/test/require"
)

func TestMarshalJSON(t *testing.T) {
	for document, want := range map[string]string{
		`[{name: 'orders.*'}]`: `{"name":"orders.*"}`,
		`[{name: a, paused: false, publish: {rate: 1e6}}]`: `{"name":"a",` +
			`"publish":{"rate":1000000},"paused":false}`,
		`[{name: a, schema: {json_schema: null}}]`: `{"name":"a","schema":{"json_schema":null}}`,
		`[{name: a, dedupe: {window: 168h}, delivery: {backoff: {max: 1500ms}}}]`: `{"name":"a",` +
			`"delivery":{"backoff":{"max":"1.5s"}},"dedupe":{"window":"168h"}}`,
		`[{name: a, publish: {rate: 1e9, burst: 1}, tracing: {sample_ratio: 1e-9}}]`: `{"name":"a",` +
			`"publish":{"rate":1000000000,"burst":1},"tracing":{"sample_ratio":1e-09}}`,
		`[{name: a, schema: {json_schema: '{"pattern": "<\u0041>", "maximum": 1.50}'}}]`: `{"name":"a",` +
			`"schema":{"json_schema":{"pattern":"\u003cA\u003e","maximum":1.50}}}`,
		strings.TrimPrefix(everything, "\npolicies:"): `{"name":"*","publish":{"rate":2.5,"burst":3,` +
			`"bytes_per_second":1000000,"scope":"fleet","on_limit":"wait","max_wait":"1.5s","per":"header:tenant"},` +
			`"connection":{"rate":7,"burst":8},"delivery":{"rate":9,"max_inflight":10,"ack_timeout":"11s","max_attempts":12,` +
			`"backoff":{"min":"13ms","max":"14ms"},"fairness":{"by":"key_prefix","weights":{"a":0.5,"b":2}}},` +
			`"partitions":15,"dedupe":{"window":"16h","by":"source_id"},` +
			`"retention":{"ttl":"17h","compact":true,"max_bytes":19,"expired":"dead_letter","dead_letters":"20h"},` +
			`"durability":{"write_concern":"w:2","on_store_unavailable":"reject","spool_max_bytes":18},` +
			`"schema":{"json_schema":{"type":"object","required":["a","b"],"maximum":1.50},"compatibility":"full"},` +
			`"tracing":{"sample_ratio":0.5},"groups":{"audit":{"paused":true,"max_inflight":21},"z":{"paused":false,` +
			`"rate":20}},"auto_create":false,"paused":true}`,
	} {
		policies, err := policy.ParseYAML([]byte(document))
		require.NoError(t, err)
		text, err := json.Marshal(policies)
		require.NoError(t, err)
		if string(text) != "["+want+"]" {
			t.Errorf("%s\n got %s\nwant [%s]", document, text, want)
		}
	}
}

// drawn is a document of one policy that sets some fields to anything that is allowed.
func drawn(t *rapid.T) string {
	duration := rapid.Map(rapid.Int64Range(0, math.MaxInt64), func(n int64) any { return time.Duration(n).String() })
	schema := rapid.Map(rapid.MapOf(rapid.String(), rapid.String()), func(m map[string]string) any {
		text, err := json.Marshal(m)
		require.NoError(t, err)
		return string(text)
	})
	rate := rapid.OneOf(rapid.Float64Range(0, 1e9).AsAny(), rapid.Int64Range(0, 1e9).AsAny(), rapid.Just(0).AsAny())
	allowed := map[string]*rapid.Generator[any]{
		"publish/rate":              rate,
		"publish/burst":             rapid.IntRange(0, 1e9).AsAny(),
		"publish/bytes_per_second":  rapid.Int64Range(0, math.MaxInt64).AsAny(),
		"publish/scope":             rapid.SampledFrom([]any{"sidecar", "fleet"}),
		"publish/max_wait":          duration,
		"publish/per":               rapid.SampledFrom([]any{"", "header:Tenant", nil}),
		"delivery/fairness/by":      rapid.SampledFrom([]any{"", "header:x-Tenant", "key_prefix", "key_prefix:/", nil}),
		"delivery/fairness/weights": rapid.MapOf(rapid.String(), rapid.Float64Range(0.001, 1000)).AsAny(),
		"groups": rapid.MapOf(rapid.StringMatching(`\.{0,2}[a-zé"<][a-zé"<.]?`),
			rapid.MapOf(rapid.Just("rate"), rate)).AsAny(),
		"connection/rate":          rate,
		"delivery/ack_timeout":     rapid.Just[any]("1h0m0.000000001s"),
		"delivery/backoff/min":     duration,
		"delivery/backoff/max":     duration,
		"partitions":               rapid.IntRange(1, 1024).AsAny(),
		"dedupe/by":                rapid.SampledFrom([]any{"id", "source_id"}),
		"retention/compact":        rapid.Bool().AsAny(),
		"retention/expired":        rapid.SampledFrom([]any{"drop", "dead_letter"}),
		"durability/write_concern": rapid.SampledFrom([]any{"majority", "w:1", 3}),
		"schema/json_schema": rapid.OneOf(schema, rapid.Just[any](nil),
			rapid.Just[any](json.RawMessage(`{"a":[1e400,"\ud800",{"<":null}]}`))),
		"tracing/sample_ratio":            rapid.Float64Range(0, 1).AsAny(),
		"paused":                          rapid.Bool().AsAny(),
		"durability/on_store_unavailable": rapid.SampledFrom([]any{"spool", "reject"}),
	}
	document := map[string]any{"name": rapid.StringMatching(`\.?[a-z][a-z.]{0,3}\*?|\*`).Draw(t, "name")}
	for _, path := range rapid.SliceOfDistinct(rapid.SampledFrom(keys(allowed)), rapid.ID).Draw(t, "fields") {
		at, key := document, path
		for section, rest, nested := strings.Cut(key, "/"); nested; section, rest, nested = strings.Cut(key, "/") {
			if at[section] == nil {
				at[section] = map[string]any{}
			}
			at, key = at[section].(map[string]any), rest
		}
		at[key] = allowed[path].Draw(t, path)
	}
	text, err := json.Marshal(document)
	require.NoError(t, err)
	return string(text)
}

func keys[V any](m map[string]V) []string {
	var names []string
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func TestJSONRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		document := drawn(t)
		p, err := policy.ParsePolicy([]byte(document))
		require.NoError(t, err)
		text, err := json.Marshal(p)
		require.NoError(t, err)
		var again policy.Policy
		if err := json.Unmarshal(text, &again); err != nil {
			t.Fatalf("%s does not read %s: %v", document, text, err)
		}
		if !again.Equal(&p) || again.Version() != p.Version() {
			t.Fatalf("%s reads back as another policy", text)
		}
		second, err := json.Marshal(again)
		if err != nil || string(second) != string(text) {
			t.Fatalf("first %s\nthen %s, %v", text, second, err)
		}
		one, errOne := policy.ParseJSON([]byte("[" + document + "]"))
		two, errTwo := policy.ParseJSON([]byte(`{"policies":[` + string(text) + "]}"))
		if fmt.Sprint(errOne) != fmt.Sprint(errTwo) || errOne == nil && !one[0].Equal(&two[0]) {
			t.Fatalf("as a list: %v, %v", errOne, errTwo)
		}
	})
}

func TestParsePolicy(t *testing.T) {
	p, err := policy.ParsePolicy([]byte(`{"version":3,"updated_at":{},"delivery":{"backoff":{"min":"1h"}}}`), "version", "updated_at")
	if err != nil || p.Name != "" {
		t.Errorf("got %q, %v", p.Name, err)
	}
	for document, want := range map[string]string{
		`{"version":3}`: "version: unknown key; allowed here: name, publish,",
		`{"publish":{"rate":-1,"colour":2},"name":"a b"}`: "publish.rate: must be a number from 0 (no limit) to 1000000000, not " +
			"-1; publish.colour: unknown key",
		`[]`:                     "policy: must be an object such as",
		`{} {}`:                  "policy: not JSON: more text",
		``:                       "policy: not JSON: unexpected EOF",
		`{"name":""}`:            "name: must be a topic",
		strings.Repeat("[", 1e6): "policy: not JSON: nested more than 512 deep",
		`{"schema":{"json_schema":` + strings.Repeat(`{"a":`, 300) + "1" +
			strings.Repeat("}", 302): "schema.json_schema: must be null, a JSON Schema object",
	} {
		_, err := policy.ParsePolicy([]byte(document))
		if e := wire.AsError(err); err == nil || e.Code != wire.InvalidPolicy || !strings.HasPrefix(e.Msg, want) {
			t.Errorf("%.60s: %v", document, err)
		}
	}
	var named policy.Policy
	if err := json.Unmarshal([]byte("{}"), &named); wire.AsError(err).Code != wire.InvalidPolicy {
		t.Errorf("a policy without a name: %v", err)
	}
}

func TestParseList(t *testing.T) {
	const alone = `[{"name":"a.b","version":1,"delivery":{"backoff":{"min":"1m"}}},{"name":"a.b*"}]`
	policies, err := policy.ParseList([]byte(alone), "version")
	if err != nil || len(policies) != 2 || policies[0].Name != "a.b" {
		t.Errorf("got %v, %v", policies, err)
	}
	for document, field := range map[string]string{
		`[{"name":"a"},{"name":"a"}]`:     "policies[1].name",
		`{"policies":[{"partitions":0}]}`: "policies[0].partitions",
		`{"version":1,"policies":[]}`:     "version",
		`[`:                               "policies",
		`{}`:                              "policies",
	} {
		policies, err := policy.ParseList([]byte(document), "version")
		if e := wire.AsError(err); policies != nil || err == nil || len(e.Fields) == 0 || e.Fields[0].Field != field {
			t.Errorf("%s: %v, %v", document, policies, err)
		}
	}
}

func TestMatch(t *testing.T) {
	s := snapshotOf(t, "[{name: 'a.*'}, {name: a.b}, {name: 'a.b*'}]")
	all := snapshotOf(t, "[{name: 'a.*'}, {name: '*'}]")
	for topic, want := range map[string]string{"a": "", "a.": "a.*", "a.b": "a.b", "a.bc": "a.b*", "b": ""} {
		if got := s.Match(topic); got != want {
			t.Errorf("%s matches %q, want %q", topic, got, want)
		}
	}
	if got := all.Match("b") + " " + all.Match("a.b"); got != "* a.*" {
		t.Errorf("got %q", got)
	}
}

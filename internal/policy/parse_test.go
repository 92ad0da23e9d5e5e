package policy_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/test/require"
)

// contract is the document of the contract's section 7, whose values are the defaults.
const contract = `
- name: orders.*
  publish:   {rate: 1000, burst: 1000, bytes_per_second: 0, scope: sidecar, on_limit: reject, max_wait: 0s, per: ""}   # scope: sidecar | fleet; on_limit: reject | wait
  connection: {rate: 200, burst: 200}
  delivery:  {rate: 0, max_inflight: 100, ack_timeout: 30s, max_attempts: 25, backoff: {min: 100ms, max: 5m}, fairness: {by: "", weights: {}}}
  partitions: 8
  dedupe:    {window: 168h, by: id}
  retention: {ttl: 0s, compact: false, max_bytes: 0, expired: drop, dead_letters: 720h}  # 0 = for ever; compact keeps the latest per key
  durability: {write_concern: majority, on_store_unavailable: spool, spool_max_bytes: 1073741824}   # or w:1; or reject
  schema:    {json_schema: null, compatibility: backward}
  tracing:   {sample_ratio: 1.0}
  groups:    {}
  auto_create: true
  paused: false
`

// everything sets every field to something that is not its default.
const everything = `
policies:
- name: '*'
  publish: {rate: 2.5, burst: 3, bytes_per_second: 1e6, scope: fleet, on_limit: wait, max_wait: 1.5s, per: 'header:Tenant'}
  connection: {rate: 7, burst: 8}
  delivery: {rate: 9, max_inflight: 10, ack_timeout: 11s, max_attempts: 12, backoff: {min: 13ms, max: 14ms}, fairness: {by: key_prefix, weights: {b: 2, a: 0.5}}}
  partitions: 15
  dedupe: {window: 16h, by: source_id}
  retention: {ttl: 17h, compact: true, max_bytes: 19, expired: dead_letter, dead_letters: 20h}
  durability: {write_concern: w:2, on_store_unavailable: reject, spool_max_bytes: 18}
  schema: {json_schema: {type: object, required: [a, "b"], maximum: 1.50}, compatibility: full}
  tracing: {sample_ratio: 0.5}
  groups: {z: {paused: false, rate: 20}, audit: {max_inflight: 21, paused: true}}
  auto_create: false
  paused: true
`

var everythingEffective = policy.Effective{
	Publish: policy.Publish{Rate: 2.5, Burst: 3, BytesPerSecond: 1e6, Scope: policy.ScopeFleet, OnLimit: policy.LimitWait,
		MaxWait: 1500 * time.Millisecond, Per: "header:tenant"},
	Connection: policy.Rate{Rate: 7, Burst: 8},
	Delivery: policy.Delivery{Rate: 9, MaxInflight: 10, AckTimeout: 11 * time.Second, MaxAttempts: 12,
		Backoff:  policy.Backoff{Min: 13 * time.Millisecond, Max: 14 * time.Millisecond},
		Fairness: policy.Fairness{By: "key_prefix", Weights: `{"a":0.5,"b":2}`}},
	Partitions: 15,
	Dedupe:     policy.Dedupe{Window: 16 * time.Hour, By: policy.DedupeBySourceID},
	Retention: policy.Retention{TTL: 17 * time.Hour, Compact: true, MaxBytes: 19, Expired: policy.ExpiredDeadLetter,
		DeadLetters: 20 * time.Hour},
	Durability: policy.Durability{WriteConcern: "w:2", OnStoreUnavailable: policy.StoreReject, SpoolMaxBytes: 18},
	Schema: policy.Schema{JSONSchema: `{"type":"object","required":["a","b"],"maximum":1.50}`,
		Compatibility: policy.CompatibilityFull, Version: 1},
	Tracing: policy.Tracing{SampleRatio: 0.5},
	Groups:  `{"audit":{"paused":true,"max_inflight":21},"z":{"paused":false,"rate":20}}`,
	Paused:  true,
}

func snapshotOf(t *testing.T, document string) *policy.Snapshot {
	t.Helper()
	policies, err := policy.ParseYAML([]byte(document))
	require.NoError(t, err)
	s, err := policy.NewSnapshot(policies, "test")
	require.NoError(t, err)
	return s
}

func TestContractShowsTheDefaults(t *testing.T) {
	s := snapshotOf(t, contract)
	if got := *s.Topic("orders.created"); got != policy.Defaults() {
		t.Errorf("got %+v, want the defaults", got)
	}
}

func TestEveryField(t *testing.T) {
	if got := *snapshotOf(t, everything).Topic("any"); got != everythingEffective {
		t.Errorf("got %+v\nwant %+v", got, everythingEffective)
	}
	// No field is left at its default, so none can be forgotten above.
	differ(t, "", reflect.ValueOf(everythingEffective), reflect.ValueOf(policy.Defaults()))
}

func differ(t *testing.T, path string, a, b reflect.Value) {
	if a.Kind() == reflect.Struct {
		for i := range a.NumField() {
			differ(t, path+"."+a.Type().Field(i).Name, a.Field(i), b.Field(i))
		}
	} else if a.Equal(b) {
		t.Errorf("%s is its default in the document that sets every field", path)
	}
}

func TestJSONSaysTheSame(t *testing.T) {
	for _, document := range []string{contract, everything} {
		var value any
		require.NoError(t, yaml.Unmarshal([]byte(document), &value))
		text, err := json.Marshal(value)
		require.NoError(t, err)
		policies, err := policy.ParseJSON(text)
		require.NoError(t, err)
		s, err := policy.NewSnapshot(policies, "test")
		require.NoError(t, err)
		got, want := *s.Topic("orders.created"), *snapshotOf(t, document).Topic("orders.created")
		got.Schema.JSONSchema, want.Schema.JSONSchema = "", "" // the test sorted its members
		if got != want {
			t.Errorf("as JSON: %+v\nas YAML: %+v", got, want)
		}
	}
}

func TestSpellings(t *testing.T) {
	for document, ok := range map[string]func(*policy.Effective) bool{
		`[{name: '*', durability: {write_concern: 3}}]`: func(e *policy.Effective) bool { return e.Durability.WriteConcern == "w:3" },
		`[{name: '*', publish: {max_wait: 0}}]`:         func(e *policy.Effective) bool { return e.Publish.MaxWait == 0 },
		`[{name: '*', publish: {rate: 0, burst: 0}}]`: func(e *policy.Effective) bool {
			return e.Publish.Rate == 0 && e.Publish.Burst == 0
		},
		`[{name: '*', publish: {bytes_per_second: 9223372036854775807}}]`: func(e *policy.Effective) bool {
			return e.Publish.BytesPerSecond == 1<<63-1
		},
		`[{name: '*', schema: {json_schema: '{"type": "string"}'}}]`: func(e *policy.Effective) bool {
			return e.Schema.JSONSchema == `{"type":"string"}`
		},
		`[{name: '*', schema: {json_schema: {enum: [.5, 0x10, ~, true]}}}]`: func(e *policy.Effective) bool {
			return e.Schema.JSONSchema == `{"enum":[0.5,16,null,true]}`
		},
		`[{name: '*', publish: }, {name: a.*, delivery: {backoff: }}]`: func(e *policy.Effective) bool { return *e == policy.Defaults() },
		`[]`: func(e *policy.Effective) bool { return *e == policy.Defaults() },
	} {
		if e := snapshotOf(t, document).Topic("a"); !ok(e) {
			t.Errorf("%s: got %+v", document, e)
		}
	}
}

// badFields parses a document that must be refused and returns what was said, by field.
func badFields(t *testing.T, parse func([]byte) ([]policy.Policy, error), document string) map[string]string {
	t.Helper()
	policies, err := parse([]byte(document))
	var e *wire.Error
	if !errors.As(err, &e) || e.Code != wire.InvalidPolicy || policies != nil {
		t.Fatalf("%s: got %v and %v, want nothing and invalid_policy", document, policies, err)
	}
	said := map[string]string{}
	for _, f := range e.Fields {
		said[f.Field] = f.Message
	}
	return said
}

func TestEveryBadFieldIsNamed(t *testing.T) {
	const document = `
- name: fine
- name: 'or*ders'
  publish: {rate: -1, burst: 1.5, bytes_per_second: -1, scope: galaxy, on_limit: drop, max_wait: soon}
  connection: {rate: .inf, burst: "200"}
  delivery:
    rate: fast
    max_inflight: 0
    ack_timeout: 25h
    max_attempts: 1000001
    backoff: {min: -1s, max: 10}
  partitions: 1025
  dedupe: {window: [168h]}
  retention: {ttl: forever, compact: 1}
  durability: {write_concern: w:0, on_store_unavailable: panic, spool_max_bytes: 99999999999999999999}
  schema: {json_schema: 'not JSON', compatibility: sideways}
  tracing: {sample_ratio: 1.01}
  paused: "no"
  colour: blue
- delivery: {ack_timout: 1s}
  publish: 5
- fine
- name: fine
`
	got := badFields(t, policy.ParseYAML, document)
	want := map[string]string{
		"policies[1].name":                            "line 3:",
		"policies[1].publish.rate":                    "line 4: must be a number from 0 (no limit) to 1000000000, not -1",
		"policies[1].publish.burst":                   "line 4: must be a whole number from 0 to 1000000000, not 1.5",
		"policies[1].publish.bytes_per_second":        "line 4: must be a whole number of at least 0, not -1",
		"policies[1].publish.scope":                   `line 4: must be one of [sidecar fleet], not "galaxy"`,
		"policies[1].publish.on_limit":                "line 4:",
		"policies[1].publish.max_wait":                `line 4: must be a duration such as "1.5s" of at least 0s, not "soon"`,
		"policies[1].connection.rate":                 "line 5:",
		"policies[1].connection.burst":                `line 5: must be a whole number from 0 to 1000000000, not "200"`,
		"policies[1].delivery.rate":                   "line 7:",
		"policies[1].delivery.max_inflight":           "line 8: must be a whole number from 1 to 100000, not 0",
		"policies[1].delivery.ack_timeout":            `line 9: must be a duration such as "1.5s" from 1ms to 24h0m0s, not "25h"`,
		"policies[1].delivery.max_attempts":           "line 10:",
		"policies[1].delivery.backoff.min":            "line 11:",
		"policies[1].delivery.backoff.max":            "line 11:",
		"policies[1].partitions":                      "line 12:",
		"policies[1].dedupe.window":                   "line 13:",
		"policies[1].retention.ttl":                   "line 14:",
		"policies[1].retention.compact":               "line 14: must be true or false, not 1",
		"policies[1].durability.write_concern":        "line 15:",
		"policies[1].durability.on_store_unavailable": "line 15:",
		"policies[1].durability.spool_max_bytes":      "line 15:",
		"policies[1].schema.json_schema":              "line 16:",
		"policies[1].schema.compatibility":            "line 16:",
		"policies[1].tracing.sample_ratio":            "line 17: must be a number from 0 to 1, not 1.01",
		"policies[1].paused":                          "line 18:",
		"policies[1].colour":                          "line 19: unknown key; allowed here: name, publish, connection, delivery",
		"policies[2].name":                            "line 20: is missing",
		"policies[2].delivery.ack_timout": "line 20: unknown key; allowed here: rate, max_inflight, ack_timeout, " +
			"max_attempts, backoff",
		"policies[2].publish": "line 21: must be an object with rate, burst",
		"policies[3]":         "line 22:",
		"policies[4].name":    `line 23: "fine" is the name of policies[0] already`,
	}
	for field, message := range want {
		if !strings.HasPrefix(got[field], message) {
			t.Errorf("%s: said %q, want %q", field, got[field], message)
		}
		delete(got, field)
	}
	for field, message := range got {
		t.Errorf("also said about %s: %q", field, message)
	}
}

func TestRefusedDocuments(t *testing.T) {
	for _, c := range []struct{ document, field, message string }{
		{"", "policies", "must be a list of policies ([] for none), not null"},
		{"# nothing\n", "policies", "must be a list"},
		{"a: [", "policies", "not YAML: line 1"},
		{"[]\n---\n[]\n", "policies", "the file has more than one YAML document"},
		{"{}", "policies", "line 1: is missing"},
		{"{policy: []}", "policy", "line 1: unknown key"},
		{"policies: []\npolicies: []", "policies", "line 2: the key occurs twice"},
		{"[{name: a, name: b}]", "policies[0].name", "line 1: the key occurs twice"},
		{"[{name: a, ? [x] : 1}]", "policies[0]", "line 1: a key must be a string"},
		{"[{name: a, publish: &p {rate: 1}}, {name: b, publish: *p}]", "policies[1].publish",
			"line 1: must be an object with rate, burst, bytes_per_second, scope, on_limit, max_wait, per, not an alias"},
		{"[{name: a, schema: {json_schema: &s {a: *s}}}]", "policies[0].schema.json_schema", "line 1: must be null"},
		{"[{name: a, schema: {json_schema: {a: .nan}}}]", "policies[0].schema.json_schema", "line 1: must be null"},
		{"[{name: a, schema: {json_schema: {type: strnig}}}]", "policies[0].schema.json_schema", `line 1: is no JSON Schema: at "/type"`},
		{"[{name: a, schema: {json_schema: {$ref: 'https://example.com/s'}}}]", "policies[0].schema.json_schema",
			`line 1: refers to "https://example.com/s"`},
		{"[{name: **}]", "policies", "not YAML"},
		{"[{name: '**'}]", "policies[0].name", "line 1: must be a topic"},
		{"[{name: a b}]", "policies[0].name", "line 1: must be a topic"},
		{"[{name: " + strings.Repeat("a", 256) + "}]", "policies[0].name", "line 1: must be a topic"},
		{"[{name: a, partitions: null}]", "policies[0].partitions", "line 1: must be a whole number from 1 to 1024, not null"},
		{"[{name: a, publish.rate: 5}]", "policies[0].publish.rate", "line 1: unknown key"},
	} {
		got := badFields(t, policy.ParseYAML, c.document)
		if !strings.HasPrefix(got[c.field], c.message) {
			t.Errorf("%s: said %q, want %s: %q", c.document, got, c.field, c.message)
		}
	}
	for _, document := range []string{"", "[", "[] []", `[{"name":"a"`, "nil", "null", `{"policies":{}}`, `[{"name":"a","name":"b"}]`} {
		badFields(t, policy.ParseJSON, document)
	}
}

// A document that would take much memory is refused before it is parsed: nodes are counted, and so
// are aliases, which are not followed.
func TestNodesAreCounted(t *testing.T) {
	const n = policy.MaxDocumentNodes
	for _, c := range []struct {
		parse    func([]byte) ([]policy.Policy, error)
		document string
	}{
		{policy.ParseJSON, "[" + strings.Repeat("[],", n) + "[]]"},
		{policy.ParseJSON, `{"policies":[{"name":"a","schema":{"json_schema":{"enum":[` + strings.Repeat("1,", n) + `1]}}}]}`},
		{policy.ParseYAML, "[" + strings.Repeat("[],", n) + "[]]"},
		{policy.ParseYAML, "- &a [x]\n" + strings.Repeat("- *a\n", n)},
		{policy.ParseYAML, strings.Repeat("- a\n", n+1)},
	} {
		if got := badFields(t, c.parse, c.document); !strings.Contains(got["policies"], "more than 1000000 values and names") {
			t.Errorf("%.40s…: %q", c.document, got)
		}
	}
}

func TestFieldsThatDoNotFitTogether(t *testing.T) {
	for _, c := range []struct{ document, field, message string }{
		{"[{name: a, publish: {burst: 0}}]", "policies[0].publish.burst", "line 1: with a rate of 1000 the burst must be at least 1"},
		{"[{name: '*', publish: {rate: 0, burst: 0}}, {name: a, publish: {rate: 5}}]", "policies[1].publish.rate",
			"line 1: with a rate of 5 the burst"},
		{"[{name: a.b, delivery: {backoff: {min: 1m}}}, {name: a.*, delivery: {backoff: {max: 2m}}}, {name: a.c, delivery: " +
			"{backoff: {min: 3m}}}]",
			"policies[2].delivery.backoff.min", "line 1: min 3m0s is more than max 2m0s"},
		{"[{name: '*', connection: {burst: 0}}]", "policies[0].connection.burst", "line 1: with a rate of 200"},
		{"[{name: a, publish: {rate: 9223372036854775807}}]", "policies[0].publish.rate",
			"line 1: must be a number from 0 (no limit) to 1000000000"},
		{"[{name: a, groups: {b: {rate: 1000000001}}}]", "policies[0].groups.b.rate", "line 1: must be a number from 0 (no limit) to 1000000000"},
	} {
		got := badFields(t, policy.ParseYAML, c.document)
		if len(got) != 1 || !strings.HasPrefix(got[c.field], c.message) {
			t.Errorf("%s: said %q, want %s: %q alone", c.document, got, c.field, c.message)
		}
	}
}

func TestIneffective(t *testing.T) {
	policies, err := policy.ParseYAML([]byte(everything))
	require.NoError(t, err)
	want := []string{"publish.scope"}
	if got := policies[0].Ineffective(); !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	policies, err = policy.ParseYAML([]byte("[{name: a, connection: {rate: 1}, publish: {scope: sidecar, rate: 1}}]"))
	require.NoError(t, err)
	if got, want := policies[0].Ineffective(), []string{"connection.rate"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{contract, everything, "", "[]", "policies: []", "[{name: a, publish: {rate: 1e309}}]",
		"&a [*a]", "<<: {a: b}", "[{name: !!int x}]", `{"policies":[{"name":"*","paused":true}]}`, "[{name: a, partitions: !!int 3.5}]",
		"[{name: a, schema: {json_schema: {1: 2, a: !!binary eA==, b: 2001-01-01}}}]", "[{name: a, publish: {burst: 0x1_0}}]"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, parse := range []func([]byte) ([]policy.Policy, error){policy.ParseYAML, policy.ParseJSON} {
			policies, err := parse(data)
			if err != nil {
				if e := wire.AsError(err); policies != nil || e.Code != wire.InvalidPolicy || len(e.Fields) == 0 {
					t.Fatalf("refused with %v, %d reasons and %d policies", err, len(e.Fields), len(policies))
				}
				continue
			}
			s, err := policy.NewSnapshot(policies, "fuzz")
			if err != nil {
				t.Fatalf("parsed, but not a snapshot: %v", err)
			}
			for _, p := range policies {
				e := s.Topic(p.Name)
				badLimits := e.Delivery.Backoff.Min > e.Delivery.Backoff.Max || e.Publish.Rate > 0 && e.Publish.Burst < 1
				badSchema := e.Schema.JSONSchema != "" && !json.Valid([]byte(e.Schema.JSONSchema))
				if badLimits || badSchema || e.Partitions < 1 {
					t.Fatalf("%s has got invalid values: %+v", p.Name, e)
				}
			}
		}
	})
}

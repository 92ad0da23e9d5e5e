package policy_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sdk/wire"
)

func TestGroupsFallThroughFieldByField(t *testing.T) {
	s := snapshotOf(t, `
- {name: '*', groups: {audit: {rate: 5, paused: true}, mail: {max_inflight: 3}}, delivery: {fairness: {weights: {a: 2, b: 3}}}}
- {name: 'orders.*', groups: {audit: {paused: false}, bill: {rate: 7}}, delivery: {fairness: {weights: {a: 4}}}}
- {name: orders.eu, groups: {audit: {max_inflight: 9}, bill: {rate: 0}}}
`)
	for at, want := range map[string]policy.GroupLimits{
		"x audit":          {Rate: 5, Paused: true},
		"x mail":           {MaxInflight: 3},
		"x bill":           {},
		"orders.us audit":  {Rate: 5},
		"orders.us bill":   {Rate: 7},
		"orders.eu audit":  {Rate: 5, MaxInflight: 9},
		"orders.eu bill":   {},
		"orders.eu mail":   {MaxInflight: 3},
		"orders.eu nobody": {},
	} {
		topic, group, _ := strings.Cut(at, " ")
		if got := s.Topic(topic).Groups.Of(group); got != want {
			t.Errorf("%s: got %+v, want %+v", at, got, want)
		}
	}
	if w := s.Topic("orders.eu").Delivery.Fairness.Weights.All(); len(w) != 2 || w["a"] != 4 || w["b"] != 3 {
		t.Errorf("the weights are %v", w)
	}
}

func TestEveryBadMemberIsNamed(t *testing.T) {
	for document, want := range map[string][]string{
		`{"groups":{"a":{"rate":-1,"colour":2,"paused":1},"b":{"max_inflight":1.5}}}`: {"groups.a.rate", "groups.a.colour",
			"groups.a.paused", "groups.b.max_inflight"},
		`{"groups":{"a b":{},"c":7}}`: {"groups.a b", "groups.c"},
		`{"groups":[1]}`:              {"groups"},
		`{"groups":"x"}`:              {"groups"},
		`{"delivery":{"fairness":{"weights":{"a":0,"b":"2","c":1001}}}}`: {"delivery.fairness.weights.a",
			"delivery.fairness.weights.b", "delivery.fairness.weights.c"},
		`{"delivery":{"fairness":{"by":"tenant"}}}`:                                     {"delivery.fairness.by"},
		`{"delivery":{"fairness":{"by":"header:"}}}`:                                    {"delivery.fairness.by"},
		`{"publish":{"per":"key_prefix"}}`:                                              {"publish.per"},
		`{"publish":{"per":true}}`:                                                      {"publish.per"},
		`{"groups":{` + strings.TrimSuffix(strings.Repeat(`"a":{},`, 1001), ",") + `}}`: {"groups"},
	} {
		_, err := policy.ParsePolicy([]byte(document))
		var got []string
		for _, f := range wire.AsError(err).Fields {
			got = append(got, f.Field)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%.80s: %v, want %v", document, err, want)
		}
	}
	_, err := policy.ParseYAML([]byte("- name: a\n  groups:\n    audit:\n      rate: fast\n"))
	if f := wire.AsError(err).Fields; len(f) != 1 || f[0].Field != "policies[0].groups.audit.rate" ||
		!strings.HasPrefix(f[0].Message, "line 4: must be a number") {
		t.Errorf("got %v", f)
	}
}

func TestTenant(t *testing.T) {
	headers := wire.Headers{{Name: "Tenant", Value: "acme"}, {Name: "region", Value: "eu"}}
	for _, c := range []struct {
		by        policy.Grouping
		key, want string
	}{
		{"header:tenant", "", "acme"},
		{"header:other", "acme/1", ""},
		{"key_prefix", "acme/1", "acme"},
		{"key_prefix", "acme-eu_2:1/2", "acme-eu_2"},
		{"key_prefix", "acme", "acme"},
		{"key_prefix", "", ""},
		{"key_prefix", "bürger.7", "bürger"},
		{"key_prefix:-", "acme/1-2", "acme/1"},
		{"key_prefix:::", "a:b::c", "a:b"},
	} {
		if got := c.by.Tenant(c.key, headers); got != c.want {
			t.Errorf("%s, key %q: got %q, want %q", c.by, c.key, got, c.want)
		}
	}
}

// The groups that many policies inherit are bounded, since each policy has all of them.
func TestMergedGroupsAreBounded(t *testing.T) {
	var many strings.Builder
	for i := range policy.MaxGroups {
		fmt.Fprintf(&many, `"%s-%d":{"paused":true},`, strings.Repeat("g", 200), i)
	}
	document := `[{"name":"*","groups":{` + strings.TrimSuffix(many.String(), ",") + `}}`
	for i := range 200 {
		document += fmt.Sprintf(`,{"name":"t%d","groups":{"own":{"rate":1}}}`, i)
	}
	_, err := policy.ParseJSON([]byte(document + "]"))
	if f := wire.AsError(err).Fields; err == nil || len(f) != 1 || !strings.HasSuffix(f[0].Field, ".groups") ||
		!strings.Contains(f[0].Message, "with inherited ones") {
		t.Errorf("%.300v", err)
	}
	shared := strings.ReplaceAll(document, `,"groups":{"own":{"rate":1}}`, "")
	if _, err := policy.ParseJSON([]byte(shared + "]")); err != nil {
		t.Errorf("groups that are shared: %.300v", err)
	}
}

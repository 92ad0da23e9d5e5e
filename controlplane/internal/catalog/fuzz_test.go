package catalog

import (
	"testing"

	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// After a change of any bytes the policies are those before or those with all of the change, and a
// refusal has its reasons.
func FuzzChanges(f *testing.F) {
	for _, seed := range []string{`{"name":"a","publish":{"rate":5,"burst":0}}`, `{"name":"a*"}`,
		`{"name":"*","delivery":{"backoff":{"max":"1ms"}}}`,
		`[{"name":"a*"},{"name":"b","paused":true}]`, `[]`, `{`, `[{"name":"a","schema":{"json_schema":{"a":[1e999,"\ud800"]}}}]`,
		`{"name":"a","tracing":{"sample_ratio":5e-324}}`} {
		f.Add([]byte(seed), true)
	}
	f.Fuzz(func(t *testing.T, data []byte, prune bool) {
		s := newFake()
		c := catalogOn(t, s)
		mustPut(t, c, `{"name":"a*","delivery":{"backoff":{"max":"2m"}}}`)
		mustPut(t, c, `{"name":"ab","delivery":{"backoff":{"min":"1m"}}}`)
		var policies []policy.Policy
		if p, err := policy.ParsePolicy(data); err == nil {
			before := c.State()
			_, err := c.Put(t.Context(), Author{}, p, nil, false)
			judgeFuzzed(t, c, before, []policy.Policy{p}, err)
			policies = append(policies, p)
		} else if len(wire.AsError(err).Fields) == 0 {
			t.Fatalf("refused without a reason: %v", err)
		}
		if list, err := policy.ParseList(data); err == nil {
			policies = list
		}
		before := c.State()
		_, err := c.Apply(t.Context(), Author{}, policies, prune, false)
		judgeFuzzed(t, c, before, policies, err)
		again := catalogOn(t, s) // all of it can be read back
		if got, want := again.State(), c.State(); got.Revision != want.Revision || len(got.Entries) != len(want.Entries) {
			t.Fatalf("read back as revision %d with %d policies, want %d with %d", got.Revision, len(got.Entries), want.Revision, len(want.Entries))
		}
	})
}

func judgeFuzzed(t *testing.T, c *Catalog, before *State, asked []policy.Policy, err error) {
	t.Helper()
	now := c.State()
	if err != nil {
		if e := wire.AsError(err); e.Code != wire.InvalidPolicy || len(e.Fields) == 0 || now != before {
			t.Fatalf("refused with %v; changed: %v", err, now != before)
		}
		return
	}
	all := make([]policy.Policy, len(now.Entries))
	for i, e := range now.Entries {
		all[i] = e.Policy
	}
	if _, err := policy.NewSnapshot(all, source); err != nil {
		t.Fatalf("policies in force that do not go together: %v", err)
	}
	for i := range asked {
		if e := now.Find(asked[i].Name); e == nil || !e.Policy.Equal(&asked[i]) {
			t.Fatalf("%s is not as it was asked for", asked[i].Name)
		}
	}
}

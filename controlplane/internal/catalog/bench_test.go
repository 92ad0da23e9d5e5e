package catalog

import (
	"fmt"
	"testing"

	"github.com/sluice-bus/sluice/controlplane/internal/store/boltstore"
	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/test/require"
)

// manyPolicies are of topics of a hundred teams, with a policy for all of them.
func manyPolicies(tb testing.TB, count int) []policy.Policy {
	policies := []policy.Policy{pol(tb, `{"name":"*","connection":{"rate":50}}`)}
	for i := range count - 1 {
		policies = append(policies, pol(tb, fmt.Sprintf(
			`{"name":"team%d.topic%d","publish":{"rate":%d,"burst":100},"delivery":{"max_inflight":7,"backoff":{"min":"1s"}},`+
				`"paused":false}`, i%100, i, i+1)))
	}
	return policies
}

// BenchmarkTenThousandPolicies is what changes and a start cost, in memory and on a disk that is
// synced.
func BenchmarkTenThousandPolicies(b *testing.B) {
	policies := manyPolicies(b, 10_000)
	synced, err := boltstore.Open(b.TempDir())
	require.NoError(b, err)
	defer synced.Close()
	for _, kind := range []struct {
		name    string
		catalog *Catalog
	}{{"memory", catalogOn(b, newFake())}, {"synced", catalogOn(b, synced)}} {
		c := kind.catalog
		if _, err := c.Seed(b.Context(), policies); err != nil {
			b.Fatal(err)
		}
		n := 0
		put := func(b *testing.B, format string) {
			for b.Loop() {
				n++
				if _, err := c.Put(b.Context(), Author{Name: "bench"}, pol(b, fmt.Sprintf(format, n)), nil, false); err != nil {
					b.Fatal(err)
				}
			}
		}
		b.Run(kind.name+"/put a topic", func(b *testing.B) { put(b, `{"name":"team7.topic7","publish":{"rate":%d}}`) })
		b.Run(kind.name+"/put the globs", func(b *testing.B) { put(b, `{"name":"*","connection":{"rate":%d}}`) })
		b.Run(kind.name+"/open", func(b *testing.B) {
			for b.Loop() {
				catalogOn(b, c.cfg.Store)
			}
		})
	}
}

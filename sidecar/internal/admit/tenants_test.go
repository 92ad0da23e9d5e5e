package admit_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/admit"
	"github.com/sluice-bus/sluice/sidecar/internal/limit"
	"github.com/sluice-bus/sluice/sidecar/internal/writer"
)

// perTenant has buckets of five for each tenant of the topics t…, which hardly refill.
const perTenant = `[
  {name: "*", connection: {rate: 0}, publish: {rate: 0}},
  {name: "t*", publish: {rate: 0.000001, burst: 5, per: "header:Tenant"}},
]`

// of gives an item a tenant.
func of(tenant string, it wire.PublishItem) wire.PublishItem {
	it.Event.Headers = wire.Headers{{Name: "tenant", Value: tenant}}
	return it
}

func TestEachTenantHasABucket(t *testing.T) {
	f := open(t, perTenant)
	for _, tenant := range []string{"a", "b"} {
		for range 5 {
			if got := f.publish(t, of(tenant, item("t", ""))); got[0] != "ok" {
				t.Fatalf("tenant %s: %v", tenant, got)
			}
		}
		a := f.start(t.Context(), of(tenant, item("t", "")))
		if a.err == nil || a.err.Code != wire.RateLimited || a.err.Scope != "tenant" || a.err.RetryAfter <= 0 ||
			!strings.Contains(a.err.Msg, fmt.Sprintf("tenant %q (header tenant)", tenant)) {
			t.Errorf("tenant %s: %+v", tenant, a.err)
		}
	}
	// Those without the header share one, which has nothing to do with the others'.
	for range 5 {
		if got := f.publish(t, item("t", "")); got[0] != "ok" {
			t.Fatal(got)
		}
	}
	if a := f.start(t.Context(), item("t", "")); a.err == nil || a.err.Scope != "tenant" ||
		!strings.Contains(a.err.Msg, "without header tenant") {
		t.Errorf("without the header: %+v", a.err)
	}
	if got := f.publish(t, of("a", item("t2", ""))); got[0] != "ok" {
		t.Errorf("another topic: %v", got)
	}
	if got := f.publish(t, of("a", item("free", ""))); got[0] != "ok" {
		t.Errorf("a topic without tenants: %v", got)
	}
}

// A batch takes the tokens of all of its tenants, or none. An event that is refused later gives its
// token back to its tenant.
func TestBatchesOfTenants(t *testing.T) {
	f := open(t, perTenant)
	batch := func(tenants string) (items []wire.PublishItem) {
		for _, tenant := range strings.Split(tenants, "") {
			items = append(items, of(tenant, item("t", "")))
		}
		return items
	}
	f.publish(t, batch("aaaab")...)                                                            // a has 1 left, b 4
	if a := f.start(t.Context(), batch("babab")...); a.err == nil || a.err.Scope != "tenant" { // two of a
		t.Errorf("got %+v", a.err)
	}
	if a := f.start(t.Context(), batch("cccccc")...); a.err == nil || a.err.Code != wire.BadRequest ||
		!strings.Contains(a.err.Msg, "which is 5") {
		t.Errorf("more than the burst: %+v", a.err)
	}
	if got := f.publish(t, of("a", item("t", "conflict-1")), of("b", item("t", "duplicate-1")),
		item("free", "")); !slices.Equal(got, []string{"conflict", "duplicate", "ok"}) {
		t.Errorf("got %v", got)
	}
	if got := f.publish(t, batch("abbb")...); slices.Contains(got, "all rate_limited") {
		t.Errorf("the tokens that are left: %v", got)
	}
	for _, tenant := range []string{"a", "b"} {
		if got := f.publish(t, batch(tenant)...); got[0] != "all rate_limited" {
			t.Errorf("tenant %s: %v", tenant, got)
		}
	}
}

func TestTenantsPastTheBound(t *testing.T) {
	f := open(t, perTenant)
	for i := range limit.MaxTenants {
		if got := f.publish(t, of(fmt.Sprint(i), item("t", ""))); got[0] != "ok" {
			t.Fatal(got)
		}
	}
	var ok int
	for i := range 20 {
		if got := f.publish(t, of(fmt.Sprint("late-", i), item("t", ""))); got[0] == "ok" {
			ok++
		}
	}
	if ok != 5 {
		t.Errorf("tenants past the bound published %d events from the bucket that they share, want 5", ok)
	}
	if got := f.publish(t, of("7", item("t", ""))); got[0] != "ok" {
		t.Errorf("one of the others: %v", got)
	}
	long := strings.Repeat("x", 16<<10)
	if a := f.start(t.Context(), of(long, item("t", ""))); a.err == nil || len(a.err.Msg) > 400 {
		t.Errorf("got %v", a.err)
	}
}

// Tenants of fleet-wide topics have shares of their own.
func TestFleetWideTenants(t *testing.T) {
	q := &shares{rate: limit.Rate{PerSecond: 1, Burst: 2}, buckets: map[string]*limit.Bucket{}}
	f := newFixture(t, `[{name: '*', connection: {rate: 1, burst: 20}}, {name: f, publish: {scope: fleet, rate: 100, burst: 100, `+
		`per: 'header:tenant'}}]`,
		&fakeLog{}, writer.DefaultBounds(), func(_ *fixture, c *admit.Config) { c.Quota = q })
	f.publish(t, of("a", item("f", "")), of("b", item("f", "")), of("a", item("f", "")))
	if a := f.start(t.Context(), of("a", item("f", "")), item("f", ""), item("own", "")); a.err == nil || a.err.Scope != "tenant" ||
		!strings.Contains(a.err.Msg, "over all sidecars") {
		t.Errorf("beyond the share: %+v", a.err)
	}
	f.publish(t, item("f", ""))
	want := []string{"f/a 2 0", "f/b 1 0", "f/a 0 1", "f 1 0"}
	if !slices.Equal(q.counted, want) {
		t.Errorf("counted %q, want %q", q.counted, want)
	}
	if len(q.buckets) != 3 {
		t.Errorf("there are %d shares", len(q.buckets))
	}
}

// Tenants of topics that are not fleet-wide are counted as well. A batch is refused as a whole, by whichever bucket.
func TestTenantsOfOneSidecarAreCounted(t *testing.T) {
	q := &shares{buckets: map[string]*limit.Bucket{}}
	f := newFixture(t, `[{name: '*', connection: {rate: 0.000001, burst: 8}}, {name: s, publish: {rate: 0.000001, burst: 2, `+
		`per: 'header:tenant'}}]`, &fakeLog{}, writer.DefaultBounds(), func(_ *fixture, c *admit.Config) { c.Quota = q })
	f.publish(t, of("a", item("s", "")), of("b", item("s", "")), of("a", item("s", "")), item("s", ""))
	f.publish(t, of("a", item("s", "")), of("b", item("s", "")), item("s", "")) // a has none left
	f.publish(t, of("b", item("s", "")), item("own", ""))
	f.publish(t, of("c", item("s", "")), of("c", item("s", "")), item("own", "")) // beyond the connection's
	want := []string{"s 1 0", "s/a 2 0", "s/b 1 0", "s 0 1", "s/a 0 1", "s/b 0 1", "own 1 0", "s/b 1 0", "own 0 1", "s/c 0 2"}
	if !slices.Equal(q.counted, want) || len(q.buckets) > 0 {
		t.Errorf("counted %q, want %q; %d shares", q.counted, want, len(q.buckets))
	}
}

// Only a tenant's events that were answered OK cost its tokens.
func TestTokensGoneAreEventsAcceptedOfEachTenant(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		bounds := writer.DefaultBounds()
		bounds.PartitionEvents = rapid.IntRange(1, 20).Draw(rt, "partition")
		const burst = 30
		f := newFixture(t, fmt.Sprintf(`[{name: "*", partitions: 2, connection: {rate: 0}, publish: {rate: 0.000001, burst: %d}},
			{name: a, publish: {per: "header:tenant"}}, {name: b, publish: {per: "header:tenant"}}, {name: lost, publish: {per: "header:tenant"}}, {name: paused, paused: true}]`, burst),
			&fakeLog{}, bounds)
		left := map[string]int{}
		whose := func(it *wire.PublishItem) string {
			v, _ := it.Event.Headers.Get("tenant")
			if it.Event.Topic == "c" {
				v = ""
			}
			return it.Event.Topic + "/" + v
		}
		for range rapid.IntRange(1, 8).Draw(rt, "calls") {
			batch := make([]wire.PublishItem, rapid.IntRange(1, 25).Draw(rt, "events"))
			asks := map[string]int{}
			for i := range batch {
				batch[i] = someItem(rt, i)
				if tenant := rapid.SampledFrom([]string{"", "x", "y", "z"}).Draw(rt, "tenant"); tenant != "" {
					batch[i] = of(tenant, batch[i])
				}
				name := whose(&batch[i])
				if _, known := left[name]; !known {
					left[name] = burst
				}
				if batch[i].Err == nil && batch[i].Event.Topic != "paused" {
					asks[name]++
				}
			}
			fits := true
			for name, n := range asks {
				fits = fits && n <= left[name]
			}
			a := f.start(t.Context(), batch...)
			if (a.err == nil) != fits {
				rt.Fatalf("%v, asked for %v of %v", a.err, asks, left)
			}
			if a.err != nil {
				continue
			}
			for i, r := range <-a.results {
				if r.Err == nil {
					left[whose(&batch[i])]--
				}
			}
		}
		f.writer.Stop(t.Context())
		for name, n := range left {
			topic, tenant, _ := strings.Cut(name, "/")
			if topic == "paused" {
				continue
			}
			if got := f.TenantTokens(topic, tenant); got != n {
				rt.Fatalf("%s has %d tokens, want %d", name, got, n)
			}
		}
	})
}

// BenchmarkPublishPerTenant is what tenants cost a publish: none, one of a thousand, and a batch of
// a hundred tenants.
func BenchmarkPublishPerTenant(b *testing.B) {
	const policies = `[{name: "*", connection: {rate: 0}, publish: {rate: 1e9, burst: 1000000000}}, ` +
		`{name: t, publish: {per: "header:tenant"}}]`
	for _, bench := range []struct {
		name, topic  string
		events, vary int
	}{{"unused", "a", 1, 1}, {"single", "t", 1, 1000}, {"batch-1000-unused", "a", 1000, 1}, {"batch-1000", "t", 1000, 100}} {
		b.Run(bench.name, func(b *testing.B) {
			f := newFixture(b, policies, &fakeLog{forget: true}, writer.DefaultBounds())
			batch := items(bench.topic, bench.events)
			answered := make(chan struct{}, 1)
			done := func([]wire.ResultItem) { answered <- struct{}{} }
			tenants := make([]wire.Headers, bench.vary)
			for i := range tenants {
				tenants[i] = wire.Headers{{Name: "tenant", Value: fmt.Sprint("tenant-", i)}}
			}
			n := 0
			b.ReportAllocs()
			for ; b.Loop(); n++ {
				for i := range batch {
					batch[i].Event.Headers = tenants[(n+i)%len(tenants)]
				}
				if err := f.Publish(b.Context(), f.conn, batch, done); err != nil {
					b.Fatal(err)
				}
				<-answered
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*bench.events), "ns/event")
		})
	}
}

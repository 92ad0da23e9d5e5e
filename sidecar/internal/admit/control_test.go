package admit_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/admit"
	"github.com/sluice-bus/sluice/sidecar/internal/limit"
	"github.com/sluice-bus/sluice/sidecar/internal/writer"
)

// shares is a Quota with a bucket for each topic that is asked for.
type shares struct {
	rate limit.Rate

	mu      sync.Mutex
	buckets map[string]*limit.Bucket
	counted []string
}

func (q *shares) Bucket(_ context.Context, topic string, _ int, _ policy.Publish, now time.Time) *limit.Bucket {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.buckets[topic] == nil {
		q.buckets[topic] = limit.NewBucket(q.rate, now)
	}
	return q.buckets[topic]
}

func (q *shares) Count(topic string, allowed, denied int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.counted = append(q.counted, fmt.Sprintf("%s %d %d", topic, allowed, denied))
}

func (q *shares) Tenants(ctx context.Context, topic string, tenants []string, charges []limit.Charge, p policy.Publish, now time.Time) {
	for i, tenant := range tenants {
		charges[i].Bucket = q.Bucket(ctx, topic+"/"+tenant, charges[i].N, p, now)
	}
}

func (q *shares) CountTenant(topic, tenant string, allowed, denied int) {
	q.Count(topic+"/"+tenant, allowed, denied)
}

func TestFleetWideRate(t *testing.T) {
	q := &shares{rate: limit.Rate{PerSecond: 1, Burst: 2}, buckets: map[string]*limit.Bucket{}}
	f := newFixture(t, `[{name: '*', connection: {rate: 1, burst: 12}}, {name: 'f*', publish: {scope: fleet, rate: 100, burst: 100}}]`,
		&fakeLog{}, writer.DefaultBounds(), func(_ *fixture, c *admit.Config) { c.Quota = q })
	if got := f.publish(t, item("f", ""), item("own", "")); !slices.Equal(got, []string{"ok", "ok"}) {
		t.Errorf("got %v", got)
	}
	f.publish(t, item("f", ""))
	a := f.start(t.Context(), item("f", ""), item("own", ""))
	if a.err == nil || a.err.Code != wire.RateLimited || a.err.Scope != "fleet" || a.err.RetryAfter > time.Second {
		t.Errorf("beyond the share: %+v", a.err)
	}
	if a := f.start(t.Context(), append(items("f", 1), items("own", 11)...)...); a.err == nil || a.err.Scope != "connection" {
		t.Errorf("beyond the connection's: %+v", a.err)
	}
	if len(q.buckets) != 1 {
		t.Errorf("%d topics have fleet-wide buckets, want f alone", len(q.buckets))
	}
	want := []string{"f 1 0", "own 1 0", "f 1 0", "f 0 1", "own 0 11"}
	if !slices.Equal(q.counted, want) {
		t.Errorf("counted %q, want %q", q.counted, want)
	}
}

// An event that is refused behind the limits also gives its fleet-wide tokens back.
func TestFleetWideTokensComeBack(t *testing.T) {
	q := &shares{rate: limit.Rate{PerSecond: 1e-9, Burst: 1}, buckets: map[string]*limit.Bucket{}}
	f := newFixture(t, `[{name: '*', publish: {scope: fleet}}]`, &fakeLog{}, writer.DefaultBounds(),
		func(_ *fixture, c *admit.Config) { c.Quota = q })
	for range 3 {
		if got := f.publish(t, item("f", "conflict-1")); got[0] != "conflict" {
			t.Fatalf("got %v", got)
		}
	}
	if got := f.publish(t, item("f", "")); got[0] != "ok" {
		t.Errorf("the token did not come back: %v", got)
	}
}

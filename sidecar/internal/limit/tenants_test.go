package limit_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-bus/sluice/sidecar/internal/limit"
)

var tenantRate = limit.Rate{PerSecond: 1, Burst: 10}

func tenantsOf(topics ...string) *limit.Set {
	s := limit.NewSet(1000)
	for _, topic := range topics {
		s.Topic(topic, limit.TopicRates{}, epoch)
	}
	return s
}

func TestTenantsAreBounded(t *testing.T) {
	s := tenantsOf("a", "b", "c")
	take := func(topic string, from, to int, now time.Time) (own int) {
		for i := from; i < to; i++ {
			if b, ok := s.Tenant(topic, fmt.Sprint(i), tenantRate, now); ok {
				b.Take(1, now)
				own++
			}
		}
		return own
	}
	if n := take("a", 0, limit.MaxTenants+100, epoch); n != limit.MaxTenants {
		t.Errorf("%d tenants of a topic have buckets", n)
	}
	if n := take("a", 0, limit.MaxTenants, epoch); n != limit.MaxTenants {
		t.Errorf("%d of those that have buckets keep them", n)
	}
	take("b", 0, limit.MaxTenants, epoch)
	if n := take("c", 0, 100, epoch); n != 0 {
		t.Errorf("%d tenants more than there may be in all have buckets", n)
	}
	later := epoch.Add(61 * time.Second) // all are idle and full
	if n := take("c", 0, 100, later); n != 100 {
		t.Errorf("%d new tenants have buckets once others are idle", n)
	}
	if n := s.Tenants()["a"]; n != 0 {
		t.Errorf("%d idle tenants are kept", n)
	}
}

func TestTenantsThatAreNotFullStay(t *testing.T) {
	s := tenantsOf("a")
	slow := limit.Rate{PerSecond: 1e-6, Burst: 2}
	b, _ := s.Tenant("a", "used up", slow, epoch)
	b.Take(2, epoch)
	for i := range 10 * limit.MaxTenants {
		s.Tenant("a", fmt.Sprint(i), slow, epoch.Add(time.Duration(i)*10*time.Millisecond))
	}
	if b, own := s.Tenant("a", "used up", slow, epoch.Add(20*time.Minute)); !own || b.Take(1, epoch.Add(20*time.Minute)).OK {
		t.Error("a tenant has tokens again since others came")
	}
	if n := s.Tenants()["a"]; n > limit.MaxTenants {
		t.Errorf("%d tenants are kept", n)
	}
}

// Idle buckets are forgotten, and each tenant still gets what a bucket of its own would give it.
func TestTenantsAreAsBucketsThatStay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := tenantsOf("a")
		kept := map[string]*limit.Bucket{}
		now := epoch
		for range rapid.IntRange(1, 300).Draw(t, "publishes") {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(30*time.Second)).Draw(t, "pause")))
			name := fmt.Sprint(rapid.IntRange(0, 200).Draw(t, "tenant"))
			if kept[name] == nil {
				kept[name] = limit.NewBucket(tenantRate, now)
			}
			n := rapid.IntRange(1, 10).Draw(t, "events")
			b, own := s.Tenant("a", name, tenantRate, now)
			if !own {
				t.Fatal("no bucket")
			}
			if got, want := b.Take(n, now), kept[name].Take(n, now); got != want {
				t.Fatalf("tenant %s: %+v, want %+v", name, got, want)
			}
		}
	})
}

func TestMemoryOfTenants(t *testing.T) {
	s := tenantsOf("a")
	before := heap()
	for i := range limit.MaxTenants {
		s.Tenant("a", fmt.Sprintf("tenant-%06d", i), tenantRate, epoch)
	}
	each := (heap() - before) / limit.MaxTenants
	t.Logf("%d bytes a tenant", each)
	if each > 600 {
		t.Errorf("%d bytes a tenant", each)
	}
	runtime.KeepAlive(s)
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

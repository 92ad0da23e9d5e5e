package quota_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sidecar/internal/limit"
)

// Each tenant of a fleet-wide topic gets the rate and the burst for itself, over all sidecars
// together, and no more; and so does what has no tenant. Tenants with little load get all of it
// beside tenants with much.
func TestTenantsOfAFleet(t *testing.T) {
	const rate, burst, lasts = 100, 20, 20
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(rate, burst, 10*time.Millisecond)
		f.publish.Store(&policy.Publish{Rate: rate, Burst: burst, Scope: policy.ScopeFleet, Per: "header:tenant"})
		for range 3 {
			f.add()
		}
		wants := map[string]float64{"greedy": 1000, "even": 60, "little": 5, "": 200} // at each sidecar
		ctx, stop := context.WithTimeout(t.Context(), lasts*time.Second)
		defer stop()
		var mu sync.Mutex
		accepted := map[string][]acceptance{}
		offered := map[string]int{}
		var publishers sync.WaitGroup
		for _, s := range f.sidecars {
			for tenant, perSecond := range wants {
				publishers.Go(func() {
					for began := f.began; ctx.Err() == nil; time.Sleep(time.Duration(float64(time.Second) / perSecond)) {
						ok := s.publishFor(ctx, tenant, *f.publish.Load())
						mu.Lock()
						if offered[tenant]++; ok {
							accepted[tenant] = append(accepted[tenant], acceptance{at: time.Since(began), n: 1})
						}
						mu.Unlock()
					}
				})
			}
		}
		publishers.Wait()
		f.close()
		for tenant, of := range accepted {
			if most := float64(burst) + slack(rate) + 1; excess(of, rate) > most {
				t.Errorf("tenant %q: %v above the rate, at most %v are allowed", tenant, excess(of, rate), most)
			}
			n := within(of, 5*time.Second, 15*time.Second)
			if least := min(rate, 3*wants[tenant]) * 10 * 0.9; float64(n) < least {
				t.Errorf("tenant %q: %d events in 10 s of %d in %d s, want at least %v", tenant, n, offered[tenant], lasts, least)
			}
		}
	})
}

func (s *sidecar) publishFor(ctx context.Context, tenant string, p policy.Publish) bool {
	count := func(allowed, denied int) {
		if tenant == "" {
			s.client.Count(topic, allowed, denied)
		} else {
			s.client.CountTenant(topic, tenant, allowed, denied)
		}
	}
	charges := []limit.Charge{{N: 1}}
	if tenant == "" {
		charges[0].Bucket = s.client.Bucket(ctx, topic, 1, p, time.Now())
	} else {
		s.client.Tenants(ctx, topic, []string{tenant}, charges, p, time.Now())
	}
	if !limit.TakeAll(charges, time.Now()).OK {
		count(0, 1)
		return false
	}
	count(1, 0)
	return true
}

// Many tenants are asked for at once: a batch of a thousand waits no longer than one of them.
func TestManyTenantsAreAskedForTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(100, 20, 10*time.Millisecond)
		f.publish.Store(&policy.Publish{Rate: 100, Burst: 20, Scope: policy.ScopeFleet, Per: "header:tenant"})
		f.add()
		time.Sleep(5 * time.Second)
		names, charges := make([]string, 1000), make([]limit.Charge, 1000)
		for i := range names {
			names[i], charges[i].N = fmt.Sprint(i), 1
		}
		began := time.Now()
		f.sidecars[0].client.Tenants(t.Context(), topic, names, charges, *f.publish.Load(), began)
		if took := time.Since(began); took > 500*time.Millisecond {
			t.Errorf("it took %v", took)
		}
		if v := limit.TakeAll(charges, time.Now()); !v.OK {
			t.Errorf("got %+v", v)
		}
		time.Sleep(2 * time.Minute)
		if n := f.sidecars[0].client.Shares(); n != 0 {
			t.Errorf("%d shares are kept that nobody uses", n)
		}
		f.close()
	})
}

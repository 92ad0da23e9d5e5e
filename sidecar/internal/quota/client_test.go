package quota_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	rlqs "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/sluice-bus/sluice/controlplane/quotatest"
	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sidecar/internal/quota"
	"github.com/sluice-bus/sluice/test/require"
)

// ledger is a quota sink.
type ledger struct {
	mu      sync.Mutex
	allowed map[string]uint64 // by node and topic
	denied  map[string]uint64
	shares  map[string]float64
}

func newLedger() *ledger {
	return &ledger{allowed: map[string]uint64{}, denied: map[string]uint64{}, shares: map[string]float64{}}
}

func (l *ledger) Tenant(topic, tenant string, allowed, denied uint64, at time.Time) {
	l.Usage("tenants", topic+"/"+tenant, allowed, denied, at)
}

func (l *ledger) Usage(node, topic string, allowed, denied uint64, _ time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.allowed[node+" "+topic] += allowed
	l.denied[node+" "+topic] += denied
}

func (l *ledger) Share(node, topic string, perSecond float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.shares[node+" "+topic] = perSecond
}

func (l *ledger) get(key string) (allowed, denied uint64, share float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.allowed[key], l.denied[key], l.shares[key]
}

// eventually polls, for what happens over a real network.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it does not come about that %s", what)
		}
	}
}

// The whole way over gRPC: counts arrive, shares come back, a sidecar that leaves frees its share,
// and one that is alone goes on.
func TestOverGRPC(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	sink := newLedger()
	p := policy.Publish{Rate: 100, Burst: 10, Scope: policy.ScopeFleet}
	server := quotatest.New(quotatest.Config{
		Policies: func(topic string) (policy.Publish, bool) { return p, topic == "orders" }, Usage: sink,
	})
	ctx, stop := context.WithCancel(context.Background())
	rpc := grpc.NewServer()
	server.Register(rpc)
	var wg sync.WaitGroup
	wg.Go(func() { _ = server.Run(ctx) })
	wg.Go(func() { _ = rpc.Serve(listener) })
	defer wg.Wait()
	defer rpc.Stop()
	defer stop()

	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer conn.Close()
	clients, leave := make([]*quota.Client, 2), make([]func(), 2)
	for i := range clients {
		id := fmt.Sprint("n", i)
		clients[i] = quota.New(quota.Config{Conn: conn, NodeID: id, InstanceSecret: id, Known: func() int { return 2 }})
		running, end := context.WithCancel(ctx)
		var one sync.WaitGroup
		one.Go(func() { _ = clients[i].Run(running) })
		leave[i] = func() { end(); one.Wait() }
		defer leave[i]()
	}
	press := func(c *quota.Client) {
		b := c.Bucket(ctx, "orders", 1, p, time.Now())
		if b.Take(1, time.Now()).OK {
			c.Count("orders", 1, 0)
		} else {
			c.Count("orders", 0, 1)
		}
	}
	clients[0].Count("payments", 3, 4)
	clients[0].CountTenant("payments", "acme", 2, 1)
	eventually(t, "each has half of the rate, and all is counted, tenants too", func() bool {
		press(clients[0])
		press(clients[1])
		_, _, first := sink.get("n0 orders")
		_, _, second := sink.get("n1 orders")
		allowed, denied, _ := sink.get("n0 payments")
		ofTenant, _, _ := sink.get("tenants payments/acme")
		half := func(rate float64) bool { return rate > 45 && rate < 55 }
		return half(first) && half(second) && allowed == 5 && denied == 5 && ofTenant == 2
	})
	leave[1]()
	eventually(t, "the one that stays has all", func() bool {
		press(clients[0])
		_, _, first := sink.get("n0 orders")
		_, _, second := sink.get("n1 orders")
		return first == 100 && second < 0
	})
	rpc.Stop()
	eventually(t, "without a control plane it has its fallback", func() bool {
		press(clients[0])
		return clients[0].Fallen("orders")
	})
}

func TestWhoIsNotUnderstoodIsToldWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(100, 10, time.Millisecond)
		defer f.close()
		for want, c := range map[string]struct {
			ctx context.Context
			id  map[string]string
		}{
			"sluice-": {t.Context(), nil},
			"topic":   {identity(t.Context()), map[string]string{"topic": "no such topic"}},
		} {
			stream, err := rlqs.NewRateLimitQuotaServiceClient(&port{network: f.network}).StreamRateLimitQuotas(c.ctx)
			require.NoError(t, err)
			if c.id != nil {
				_ = stream.Send(&rlqs.RateLimitQuotaUsageReports{Domain: "sluice",
					BucketQuotaUsages: []*rlqs.RateLimitQuotaUsageReports_BucketQuotaUsage{{BucketId: &rlqs.BucketId{Bucket: c.id}}}})
			}
			if _, err = stream.Recv(); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want InvalidArgument that names %q", err, want)
			}
		}
	})
}

// A publish that finds no control plane does not wait, one whose question is not answered waits no
// longer than AwaitShare, and the next not at all.
func TestWaitingForAShareIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(100, 10, time.Millisecond)
		f.add()
		defer f.close()
		s, p := f.sidecars[0], *f.publish.Load()
		s.port.cut(true)
		time.Sleep(time.Second)
		began := time.Now()
		if b := s.client.Bucket(t.Context(), "cut off", 0, p, began); time.Since(began) != 0 || !b.Take(1, began).OK {
			t.Errorf("without a connection the first publish was refused, or waited %v", time.Since(began))
		}
		s.port.cut(false)
		time.Sleep(5 * time.Second)
		s.port.stall(time.Minute)
		for _, want := range []time.Duration{quota.AwaitShare, 0} {
			began = time.Now()
			s.client.Bucket(t.Context(), "stalled", 0, p, began)
			if got := time.Since(began); got != want {
				t.Errorf("waited %v, want %v", got, want)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		began = time.Now()
		s.client.Bucket(ctx, "ended", 0, p, began)
		if got := time.Since(began); got != 100*time.Millisecond {
			t.Errorf("waited %v after the request had ended", got-100*time.Millisecond)
		}
	})
}

// A change of the rate acts within a round, a burst that is no longer allowed at once.
func TestRateChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(100, 50, 5*time.Millisecond)
		for range 3 {
			f.add()
		}
		time.Sleep(3 * time.Second)
		for _, s := range f.sidecars {
			s.load.Store(&load{perSecond: 400, batch: 1})
		}
		time.Sleep(10 * time.Second)
		f.tune(600, 50)
		time.Sleep(10 * time.Second)
		f.tune(30, 5)
		time.Sleep(10 * time.Second)
		f.close()
		f.sort()
		for _, c := range []struct {
			from time.Duration
			rate float64
		}{{4, 100}, {14, 600}, {24, 30}} {
			got := within(f.accepted(0), c.from*time.Second, (c.from+8)*time.Second)
			if most := 8*c.rate + 30; float64(got) > most || float64(got) < 0.9*8*c.rate {
				t.Errorf("%d passed in 8 s at %v a second", got, c.rate)
			}
		}
	})
}

func TestNoLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(100, 10, time.Millisecond)
		f.add()
		defer f.close()
		b := f.sidecars[0].client.Bucket(t.Context(), "free", 0, policy.Publish{Scope: policy.ScopeFleet}, time.Now())
		if !b.Take(1<<30, time.Now()).OK {
			t.Error("a rate of 0 limits")
		}
	})
}

// Without a control plane a sidecar takes its part by how many it knows of, as that changes.
func TestFallbackFollowsTheKnownSidecars(t *testing.T) {
	known := 0
	c := quota.New(quota.Config{Known: func() int { return known }})
	p, now := policy.Publish{Rate: 100, Burst: 20, Scope: policy.ScopeFleet}, time.Now()
	for _, want := range []struct {
		known, burst int
		wait         time.Duration
	}{{0, 20, 10 * time.Millisecond}, {1, 20, 10 * time.Millisecond}, {4, 5, 40 * time.Millisecond}, {50, 1, 500 * time.Millisecond}} {
		known, now = want.known, now.Add(time.Hour)
		taken, v := 0, c.Bucket(t.Context(), "orders", 0, p, now).Take(1, now)
		for ; v.OK; v = c.Bucket(t.Context(), "orders", 0, p, now).Take(1, now) {
			taken++
		}
		if (taken != want.burst && taken != 1) || v.Wait.Round(time.Millisecond) != want.wait {
			t.Errorf("%d known: %d at once and then one in %v, want %d and %v", want.known, taken, v.Wait, want.burst, want.wait)
		}
	}
	if v := c.Bucket(t.Context(), "orders", 0, p, now).Take(21, now); !v.OverBurst || v.Burst != 20 {
		t.Errorf("more than the burst: %+v", v)
	}
}

// Waits that are told are long enough, where nobody else takes the tokens.
func TestWaitsAreHonest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(20, 10, 2*time.Millisecond)
		f.add()
		defer f.close()
		time.Sleep(3 * time.Second)
		var late []time.Duration
		for range 40 {
			began, wait := time.Now(), time.Duration(0)
			for {
				b := f.sidecars[0].client.Bucket(t.Context(), topic, 3, *f.publish.Load(), time.Now())
				v := b.Take(3, time.Now())
				if v.OK {
					break
				}
				if wait > 0 {
					late = append(late, time.Since(began)-wait)
				}
				wait = v.Wait
				time.Sleep(v.Wait)
			}
			f.sidecars[0].client.Count(topic, 3, 0)
		}
		if len(late) > 4 {
			t.Errorf("%d of 40 waits were too short: %v", len(late), slices.Max(late))
		}
	})
}

func BenchmarkCount(b *testing.B) {
	c := quota.New(quota.Config{})
	b.ReportAllocs()
	for b.Loop() {
		c.Count("orders", 1, 0)
	}
}

func BenchmarkBucket(b *testing.B) {
	c := quota.New(quota.Config{})
	p := policy.Publish{Rate: 1e6, Burst: 1e6}
	b.ReportAllocs()
	for b.Loop() {
		c.Bucket(b.Context(), "orders", 0, p, time.Now())
	}
}

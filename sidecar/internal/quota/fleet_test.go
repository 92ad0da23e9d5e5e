package quota_test

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-bus/sluice/controlplane/quotatest"
	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sidecar/internal/quota"
)

const topic = "orders"

// fleet is sidecars and a control plane; it runs inside a synctest bubble.
type fleet struct {
	network *network
	began   time.Time
	known   atomic.Int64
	publish atomic.Pointer[policy.Publish]

	stopServer func()

	mu       sync.Mutex
	outcomes []acceptance
	sidecars []*sidecar
	joined   int
}

// acceptance is what became of a publish.
type acceptance struct {
	at       time.Duration
	n        int
	accepted bool
	fallen   int // 1 + the sidecar that went by its fallback; 0: it had a share
}

// newFleet makes one whose messages take up to slow.
func newFleet(rate float64, burst int, slow time.Duration) *fleet {
	f := &fleet{network: newNetwork(func() time.Duration { return rand.N(slow) }), began: time.Now()}
	f.tune(rate, burst)
	f.startServer()
	return f
}

func (f *fleet) tune(rate float64, burst int) {
	f.publish.Store(&policy.Publish{Rate: rate, Burst: burst, Scope: policy.ScopeFleet})
}

func (f *fleet) startServer() { f.serve(false) }

// serve starts a control plane on the network, one of several if it is shared.
func (f *fleet) serve(shared bool) *quotatest.Server {
	ctx, stop := context.WithCancel(context.Background())
	server := quotatest.New(quotatest.Config{
		Policies: func(string) (policy.Publish, bool) { return *f.publish.Load(), true },
		Shared:   shared,
	})
	var wg sync.WaitGroup
	wg.Go(func() { _ = server.Run(ctx) })
	network := f.network
	network.serve(server)
	f.stopServer = func() { network.serve(nil); stop(); wg.Wait() }
	return server
}

// sidecar is one publisher with its sidecar.
type sidecar struct {
	fleet   *fleet
	index   int
	client  *quota.Client
	port    *port
	load    atomic.Pointer[load]
	stop    func()
	stopped chan struct{}
}

// load is what publishers do: perSecond events, in batches.
type load struct {
	perSecond float64
	batch     int
	poisson   bool
	blind     bool // its size is not known when the bucket is asked for
	waits     bool // a publish waits for its tokens (up to 5 s) instead of being refused
}

// add has another sidecar join, to be found in f.sidecars.
func (f *fleet) add() { f.sidecars = append(f.sidecars, f.join()) }

func (f *fleet) join() *sidecar {
	f.known.Add(1)
	s := &sidecar{fleet: f, index: f.joined, port: &port{network: f.network}, stopped: make(chan struct{})}
	f.joined++
	id := fmt.Sprint("sidecar-", s.index)
	s.client = quota.New(quota.Config{Conn: s.port, NodeID: id, InstanceSecret: id, Known: func() int { return int(f.known.Load()) }})
	s.load.Store(&load{})
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.client.Run(ctx) })
	wg.Go(func() { s.generate(ctx) })
	go func() { wg.Wait(); close(s.stopped) }()
	return s
}

func (s *sidecar) leave() {
	s.stop()
	<-s.stopped
	s.fleet.known.Add(-1)
}

// generate makes the load, until ctx ends.
func (s *sidecar) generate(ctx context.Context) {
	random := rand.New(rand.NewPCG(1, uint64(s.index)))
	var wg sync.WaitGroup
	defer wg.Wait()
	for ctx.Err() == nil {
		l := *s.load.Load()
		if l.perSecond <= 0 {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		pause := float64(l.batch) / l.perSecond
		if l.poisson {
			pause *= random.ExpFloat64()
		}
		for pause > 0.1 && ctx.Err() == nil && *s.load.Load() == l {
			time.Sleep(100 * time.Millisecond)
			pause -= 0.1
		}
		time.Sleep(time.Duration(min(pause, 0.1) * float64(time.Second)))
		if l.waits {
			s.publish(ctx, l)
		} else {
			wg.Go(func() { s.publish(ctx, l) })
		}
	}
}

func (s *sidecar) publish(ctx context.Context, l load) {
	f := s.fleet
	out := acceptance{at: time.Since(f.began), n: l.batch}
	for began := time.Now(); ctx.Err() == nil; {
		p := *f.publish.Load()
		known := l.batch
		if l.blind {
			known = 0
		}
		b := s.client.Bucket(ctx, topic, known, p, time.Now())
		v := b.Take(l.batch, time.Now())
		if v.OK {
			out.at, out.accepted = time.Since(f.began), true
			if s.client.Fallen(topic) {
				out.fallen = 1 + s.index
			}
			break
		}
		if !l.waits || time.Since(began)+v.Wait > 5*time.Second {
			break
		}
		time.Sleep(v.Wait)
	}
	f.mu.Lock()
	f.outcomes = append(f.outcomes, out)
	f.mu.Unlock()
	if out.accepted {
		s.client.Count(topic, l.batch, 0)
	} else {
		s.client.Count(topic, 0, l.batch)
	}
}

func (f *fleet) close() {
	for _, s := range f.sidecars {
		s.stop()
	}
	for _, s := range f.sidecars {
		<-s.stopped
	}
	f.stopServer()
	time.Sleep(time.Second)
}

// sort puts the outcomes in order, once the fleet is closed.
func (f *fleet) sort() {
	slices.SortStableFunc(f.outcomes, func(a, b acceptance) int { return cmp.Compare(a.at, b.at) })
}

// accepted are those of them that count.
func (f *fleet) accepted(fallen int) []acceptance {
	return slices.DeleteFunc(slices.Clone(f.outcomes), func(a acceptance) bool { return !a.accepted || a.fallen != fallen })
}

// ideal is what one token bucket for the whole fleet would have accepted.
func (f *fleet) ideal(rate float64, burst int) []acceptance {
	var out []acceptance
	tokens, last := float64(burst), time.Duration(0)
	for _, a := range f.outcomes {
		tokens = min(float64(burst), tokens+rate*(a.at-last).Seconds())
		last = a.at
		if tokens >= float64(a.n) {
			tokens -= float64(a.n)
			out = append(out, a)
		}
	}
	return out
}

// excess is the most by which what was accepted in any window was above rate × its length: what a
// token bucket of that rate would have to hold.
func excess(accepted []acceptance, rate float64) float64 {
	level, most, last := 0.0, 0.0, time.Duration(0)
	for _, a := range accepted {
		level = max(0, level-rate*(a.at-last).Seconds()) + float64(a.n)
		last, most = a.at, max(most, level)
	}
	return most
}

// within is what was accepted in a window.
func within(accepted []acceptance, from, to time.Duration) (sum int) {
	i, _ := slices.BinarySearchFunc(accepted, from, func(a acceptance, at time.Duration) int { return cmp.Compare(a.at, at) })
	for ; i < len(accepted) && accepted[i].at < to; i++ {
		sum += accepted[i].n
	}
	return sum
}

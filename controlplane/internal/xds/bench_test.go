package xds_test

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/sluice-bus/sluice/controlplane/internal/catalog"
	"github.com/sluice-bus/sluice/controlplane/internal/fleet"
	"github.com/sluice-bus/sluice/controlplane/internal/xds"
	"github.com/sluice-bus/sluice/internal/policy"
)

// A fleet as large as the design's.
const (
	benchSidecars = 1000
	benchPolicies = 10_000
	benchKinds    = 50 // policies that say the same are made once
)

// BenchmarkChange measures how long it takes from a new state of the catalog to the last response
// that it causes, with every sidecar on a connection of its own, and how long until all have
// everything at first. Every sidecar asks for all policies. Memory and time are those of both ends:
// server and clients are one process.
func BenchmarkChange(b *testing.B) {
	f := newBenchFleet(b)
	for _, of := range []struct {
		what string
		n    int
	}{{"one policy", 1}, {"all policies", benchPolicies}} {
		b.Run(of.what, func(b *testing.B) {
			var took []time.Duration
			for i := range b.N {
				b.StopTimer()
				time.Sleep(100 * time.Millisecond) // longer than states are collected: each is sent at once
				b.StartTimer()
				start := time.Now()
				f.change(i*7%benchPolicies, of.n)
				took = append(took, time.Since(start))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
			b.ReportMetric(f.coldStart.Seconds(), "s-cold-start")
			b.ReportMetric(f.perStream/1024, "KiB/stream")
			b.ReportMetric(f.perPolicy/1024, "KiB/policy")
		})
	}
}

type benchFleet struct {
	states               *states
	received             chan int // resources in a response
	names                []string // of the policies, ascending
	perStream, perPolicy float64
	coldStart            time.Duration
	version              int64
}

func newBenchFleet(b *testing.B) *benchFleet {
	f := &benchFleet{states: &states{}, received: make(chan int, benchSidecars)}
	for i := range benchPolicies {
		f.names = append(f.names, fmt.Sprintf("team-%d.service-%d.events", i%100, i))
	}
	slices.Sort(f.names)
	f.put(0, benchPolicies)
	before := memory()
	server := xds.New(xds.Config{States: f.states, Registry: fleet.NewRegistry(fleet.Config{})})
	f.perPolicy = (memory() - before) / benchPolicies
	g := grpc.NewServer(xds.ServerOptions()...)
	server.Register(g)
	listener := bufconn.Listen(4 << 10)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = server.Run(ctx) })
	running.Go(func() { _ = g.Serve(listener) })

	before = memory()
	start := time.Now()
	for i := range benchSidecars {
		running.Go(func() { f.sidecar(ctx, b, listener, i) })
	}
	f.wait(benchSidecars * xds.Packs(f.states.state.Resolved))
	f.coldStart = time.Since(start)
	f.perStream = (memory() - before) / benchSidecars
	b.Cleanup(func() {
		cancel()
		g.Stop()
		running.Wait()
	})
	return f
}

// memory is what is in use after a collection.
func memory() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapInuse + m.StackInuse)
}

// sidecar subscribes and acks until the context ends.
func (f *benchFleet) sidecar(ctx context.Context, b *testing.B, listener *bufconn.Listener, i int) {
	conn, err := grpc.NewClient("passthrough:", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	if err != nil {
		b.Error(err)
		return
	}
	defer func() { _ = conn.Close() }()
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		b.Error(err)
		return
	}
	c := &client{t: b, node: node(fmt.Sprint("n", i), "i"), stream: stream}
	c.subscribe(packs, "*")
	for {
		r, err := stream.Recv()
		if err != nil {
			return
		}
		c.ack(r)
		f.received <- len(r.GetResources())
	}
}

// put makes a state in which n policies from the first on are new.
func (f *benchFleet) put(first, n int) {
	f.version++
	var kinds [benchKinds]*policy.Effective
	for i := range kinds {
		e := policy.Defaults()
		e.Publish.Rate, e.Publish.Burst = float64(f.version), 1000+i
		kinds[i] = &e
	}
	next := &catalog.State{Revision: f.version}
	if f.states.state != nil {
		next.Resolved = slices.Clone(f.states.state.Resolved)
	} else {
		next.Resolved = make([]catalog.Resolved, benchPolicies)
	}
	for i := range n {
		at := (first + i) % benchPolicies
		next.Resolved[at] = catalog.Resolved{Name: f.names[at], Version: f.version, Effective: kinds[at%benchKinds]}
	}
	f.states.put(next)
}

// change makes one policy new, or all, and waits until all sidecars have heard of it.
func (f *benchFleet) change(first, n int) {
	f.put(first, n)
	if n > 1 {
		n = xds.Packs(f.states.state.Resolved)
	}
	f.wait(benchSidecars * n)
}

func (f *benchFleet) wait(resources int) {
	for resources > 0 {
		resources -= <-f.received
	}
}

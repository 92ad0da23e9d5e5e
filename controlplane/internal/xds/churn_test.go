package xds_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// Sidecars come, subscribe, go and come again while policies change; in the end each one has the
// last version of all that it subscribes to.
func TestChurn(t *testing.T) {
	const sidecars, names, rounds = 200, 50, 3
	all := func(version int64) policies {
		p := policies{"*": version}
		for i := range names {
			if (int64(i)+version)%5 > 0 { // some come and go
				p[fmt.Sprint("t", i)] = version
			}
		}
		return p
	}
	f := serve(t, all(1))
	conn, err := grpc.NewClient(f.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	const last = 10
	var fleet sync.WaitGroup
	for i := range sidecars {
		fleet.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(i)))
			for round := range rounds {
				churn(t, conn, fmt.Sprint("n", i), random, names, round == rounds-1, all(last))
			}
		})
	}
	pace := f.connect(t, "pace", "i")
	pace.subscribe(globs, "*")
	pace.expect(globs, policies{"*": 1})
	for version := int64(2); version <= last; version++ {
		f.set(all(version))
		pace.expect(globs, policies{"*": version})
	}
	fleet.Wait()
	pace.close()
	eventually(t, "all have left", func() bool { return f.registry.Known() == 0 })
}

// churn is one stream: it subscribes to some names, drops some again, and stays until it has the
// last version of the rest if it is to see the end.
func churn(t *testing.T, conn *grpc.ClientConn, id string, random *rand.Rand, names int, toTheEnd bool, want policies) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		t.Error(err)
		return
	}
	c := &client{t: t, node: node(id, "i"), stream: stream}
	wanted := policies{}
	for range 8 {
		name := fmt.Sprint("t", random.IntN(names))
		c.subscribe(topics, name)
		wanted[name] = want[name]
		if random.IntN(4) == 0 {
			c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: topics, ResourceNamesUnsubscribe: []string{name}})
			delete(wanted, name)
		}
	}
	c.subscribe(globs, "*")
	wanted["*"] = want["*"]
	has := policies{}
	for missing := len(wanted); missing > 0; {
		r, err := stream.Recv()
		if err != nil {
			t.Errorf("%s: %v", id, err)
			return
		}
		c.ack(r)
		for _, each := range r.GetResources() {
			has[each.GetName()] = version(t, each)
		}
		for _, name := range r.GetRemovedResources() {
			has[name] = 0
		}
		if !toTheEnd {
			return
		}
		missing = 0
		for name, version := range wanted {
			if has[name] != version {
				missing++
			}
		}
	}
}

package xds_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/sluice-bus/sluice/test/require"
)

// Sidecars come, subscribe, go and come again while policies change; in the end each one has the
// last version of all policies.
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
	require.NoError(t, err)
	defer conn.Close()
	const last = 10
	var fleet sync.WaitGroup
	for i := range sidecars {
		fleet.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(i)))
			for round := range rounds {
				churn(t, conn, fmt.Sprint("n", i), random, round == rounds-1, all(last))
			}
		})
	}
	pace := f.connect(t, "pace", "i")
	pace.policies()
	pace.expect(all(1))
	for version := int64(2); version <= last; version++ {
		f.set(all(version))
		pace.expect(all(version))
	}
	fleet.Wait()
	pace.close()
	eventually(t, "all have left", func() bool { return f.registry.Known() == 0 })
}

// churn is one stream: it takes some responses, or all until it has the last version of every policy
// if it is to see the end.
func churn(t *testing.T, conn *grpc.ClientConn, id string, random *rand.Rand, toTheEnd bool, want policies) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		t.Error(err)
		return
	}
	c := &client{t: t, node: node(id, "i"), stream: stream}
	c.policies()
	for responses := 1 + random.IntN(4); !maps.Equal(c.has(), want) && (toTheEnd || responses > 0); responses-- {
		r, err := stream.Recv()
		if err != nil {
			t.Errorf("%s: %v", id, err)
			return
		}
		c.take(r)
		c.ack(r)
	}
}

package xds_test

import (
	"context"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	rpc "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/sluice-bus/sluice/controlplane/internal/catalog"
	"github.com/sluice-bus/sluice/controlplane/internal/fleet"
	"github.com/sluice-bus/sluice/controlplane/internal/xds"
	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/internal/policypb"
	"github.com/sluice-bus/sluice/test/require"
)

const (
	packs = policypb.PolicyPackType
	peers = resource.EndpointType

	patience = 30 * time.Second
)

// states is a catalog that a test writes to.
type states struct {
	mu    sync.Mutex
	state *catalog.State
	ended chan struct{}
}

func (s *states) Watch() (*catalog.State, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state, s.ended
}

// policies is name to version; the version is also the rate.
type policies map[string]int64

func (s *states) set(p policies) {
	next := &catalog.State{}
	for name, version := range p {
		e := policy.Defaults()
		e.Publish.Rate = float64(version)
		next.Resolved = append(next.Resolved, catalog.Resolved{Name: name, Version: version, Effective: &e})
	}
	slices.SortFunc(next.Resolved, func(a, b catalog.Resolved) int { return strings.Compare(a.Name, b.Name) })
	s.put(next)
}

func (s *states) put(next *catalog.State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state != nil {
		next.Revision = s.state.Revision + 1
		close(s.ended)
	}
	s.state, s.ended = next, make(chan struct{})
}

// fixture is a control plane's server.
type fixture struct {
	*states
	registry *fleet.Registry
	address  string
	stop     func()
}

func serve(t testing.TB, p policies) *fixture { return serveSettling(t, p, time.Nanosecond) }

// serveSettling is serve with a time in which sidecars keep their peers.
func serveSettling(t testing.TB, p policies, settle time.Duration) *fixture {
	t.Helper()
	f := &fixture{states: &states{}, registry: fleet.NewRegistry(fleet.Config{ControlPlane: "cp1"})}
	f.set(p)
	server := xds.New(xds.Config{States: f.states, Registry: f.registry, PeersInterval: 20 * time.Millisecond, PeersSettle: settle})
	g := grpc.NewServer(xds.ServerOptions()...)
	server.Register(g)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	f.address = listener.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = server.Run(ctx) })
	running.Go(func() { _ = g.Serve(listener) })
	f.stop = sync.OnceFunc(func() {
		cancel()
		g.GracefulStop() // returns because Run ends the streams
		running.Wait()
	})
	t.Cleanup(f.stop)
	return f
}

// client is a hand-written delta client.
type client struct {
	t      testing.TB
	node   *core.Node
	conn   *grpc.ClientConn
	stream discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
	got    chan *discovery.DeltaDiscoveryResponse // closed at the end
	err    error                                  // of the stream; after the end
	cancel context.CancelFunc
	close  func()
	packs  map[string]policies // that it has
}

func (f *fixture) connect(t testing.TB, id, instance string) *client {
	t.Helper()
	conn, err := grpc.NewClient(f.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	return newClient(t, conn, id, instance)
}

func newClient(t testing.TB, conn *grpc.ClientConn, id, instance string) *client {
	ctx, cancel := context.WithCancel(context.Background())
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	require.NoError(t, err)
	c := &client{t: t, conn: conn, stream: stream, cancel: cancel, got: make(chan *discovery.DeltaDiscoveryResponse, 1000)}
	c.node = node(id, instance)
	var reading sync.WaitGroup
	reading.Go(func() {
		defer close(c.got)
		for {
			r, err := stream.Recv()
			if err != nil {
				c.err = err
				return
			}
			c.got <- r
		}
	})
	c.close = sync.OnceFunc(func() {
		cancel()
		_ = conn.Close()
		reading.Wait()
	})
	t.Cleanup(c.close)
	return c
}

func node(id, instance string) *core.Node {
	return &core.Node{Id: id, Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{
		policypb.InstanceSecret: structpb.NewStringValue(instance),
		"replay":                structpb.NewStringValue("10.0.0.1:8083"),
		"store_id":              structpb.NewStringValue("store-" + id),
		"version":               structpb.NewStringValue("v1"),
	}}}
}

// send adds the node to a client's first request.
func (c *client) send(r *discovery.DeltaDiscoveryRequest) {
	c.t.Helper()
	r.Node, c.node = c.node, nil
	if err := c.stream.Send(r); err != nil && err != io.EOF {
		c.t.Fatal(err)
	}
}

func (c *client) subscribe(typeURL string, names ...string) {
	c.t.Helper()
	c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: typeURL, ResourceNamesSubscribe: names})
}

// next is the next response; it is not acked.
func (c *client) next() *discovery.DeltaDiscoveryResponse {
	c.t.Helper()
	select {
	case r, ok := <-c.got:
		if !ok {
			c.t.Fatalf("the stream ended: %v", c.err)
		}
		return r
	case <-time.After(patience):
		c.t.Fatal("no response")
		return nil
	}
}

func (c *client) ack(r *discovery.DeltaDiscoveryResponse) {
	c.t.Helper()
	c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: r.GetTypeUrl(), ResponseNonce: r.GetNonce()})
}

func (c *client) nack(r *discovery.DeltaDiscoveryResponse, reason string) {
	c.t.Helper()
	c.send(&discovery.DeltaDiscoveryRequest{
		TypeUrl: r.GetTypeUrl(), ResponseNonce: r.GetNonce(), ErrorDetail: &rpc.Status{Code: 3, Message: reason},
	})
}

// end waits for the end of the stream and returns its error.
func (c *client) end() error {
	c.t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case _, ok := <-c.got:
			if !ok {
				return c.err
			}
		case <-deadline:
			c.t.Fatal("the stream goes on")
		}
	}
}

// policies subscribes to all policies.
func (c *client) policies() {
	c.t.Helper()
	c.subscribe(packs, "*")
}

// expect takes the next response, checks that the client has exactly these policies with it, and
// acks it.
func (c *client) expect(want policies) *discovery.DeltaDiscoveryResponse {
	c.t.Helper()
	r := c.next()
	if r.GetTypeUrl() != packs {
		c.t.Fatalf("got %v, want policies", r)
	}
	c.take(r)
	if got := c.has(); !maps.Equal(got, want) {
		c.t.Fatalf("got %v, want %v", got, want)
	}
	c.ack(r)
	return r
}

// take puts a response of policies in force.
func (c *client) take(r *discovery.DeltaDiscoveryResponse) {
	c.t.Helper()
	if c.packs == nil {
		c.packs = map[string]policies{}
	}
	for _, name := range r.GetRemovedResources() {
		delete(c.packs, name)
	}
	for _, each := range r.GetResources() {
		c.packs[each.GetName()] = inPack(c.t, each)
	}
}

// has returns the policies that are in force.
func (c *client) has() policies {
	all := policies{}
	for _, pack := range c.packs {
		maps.Copy(all, pack)
	}
	return all
}

// inPack reads the versions of the policies in a pack.
func inPack(t testing.TB, r *discovery.Resource) policies {
	t.Helper()
	var m policypb.PolicyPack
	require.NoError(t, proto.Unmarshal(r.GetResource().GetValue(), &m))
	versions := policies{}
	for _, p := range m.GetPolicies() {
		var s policypb.Settings
		if err := proto.Unmarshal(m.GetSettings()[p.GetSettings()], &s); err != nil || s.GetPublish().GetRate() != float64(p.GetVersion()) {
			t.Fatalf("%v has %v, %v", p, &s, err)
		}
		versions[p.GetName()] = p.GetVersion()
	}
	return versions
}

// eventually polls until the condition holds.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatal("never: " + what)
		}
		time.Sleep(time.Millisecond)
	}
}

func longString() *structpb.Value_StringValue {
	return &structpb.Value_StringValue{StringValue: strings.Repeat("x", 2000)}
}

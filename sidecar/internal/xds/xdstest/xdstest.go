// Package xdstest is a management server for tests: go-control-plane's, which tests start and stop
// behind one address, and which records its requests and the resources that it sends.
package xdstest

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	cachev3 "github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	deltav3 "github.com/envoyproxy/go-control-plane/pkg/server/delta/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// Server is a management server that does not listen until [Server.Start].
type Server struct {
	// Address is where it listens: unix:/path.
	Address string

	t      testing.TB
	caches map[string]*cachev3.LinearCache

	mu       sync.Mutex
	stop     func() // nil: it is away
	version  string // of what is sent: a revision
	requests []*discoveryv3.DeltaDiscoveryRequest
	sent     []string
}

// New makes a server of resources of some types. It is stopped when the test ends.
func New(t testing.TB, typeURLs ...string) *Server {
	t.Helper()
	dir, err := os.MkdirTemp("", "xds") // the test's own folder may be too long a path for a socket
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{Address: "unix:" + filepath.Join(dir, "s"), t: t, caches: map[string]*cachev3.LinearCache{}, version: "0/0"}
	for _, typeURL := range typeURLs {
		s.caches[typeURL] = cachev3.NewLinearCache(typeURL)
	}
	t.Cleanup(func() {
		s.Stop()
		_ = os.RemoveAll(dir)
	})
	return s
}

// Start serves the resources of Put.
func (s *Server) Start() {
	s.t.Helper()
	mux := &cachev3.MuxCache{
		ClassifyDelta: func(r *cachev3.DeltaRequest) string { return r.GetTypeUrl() },
		Caches:        map[string]cachev3.Cache{},
	}
	for typeURL, cache := range s.caches {
		mux.Caches[typeURL] = cache
	}
	listener, err := net.Listen("unix", s.Address[len("unix:"):])
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	g, done := grpc.NewServer(), make(chan struct{})
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(g, &service{
		delta: deltav3.NewServer(ctx, mux, callbacks{s}, deltav3.DeactivateLegacyWildcard()),
	})
	go func() {
		defer close(done)
		_ = g.Serve(listener) // ends with the listener
	}()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stop = func() {
		cancel()
		g.Stop()
		<-done
	}
}

// Stop ends all streams. The resources stay.
func (s *Server) Stop() {
	s.mu.Lock()
	stop := s.stop
	s.stop = nil
	s.mu.Unlock()
	if stop != nil {
		stop()
	}
}

// Put changes resources of a type, all at once; nil deletes one.
func (s *Server) Put(typeURL string, resources map[string]proto.Message) {
	s.t.Helper()
	update, remove := map[string]types.Resource{}, []string{}
	for name, r := range resources {
		if r == nil {
			remove = append(remove, name)
		} else {
			update[name] = r
		}
	}
	if err := s.caches[typeURL].UpdateResources(update, remove); err != nil {
		s.t.Fatal(err)
	}
}

// Version sets the system_version_info of later responses.
func (s *Server) Version(version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version = version
}

// Requests returns the requests that keep accepts.
func (s *Server) Requests(keep func(*discoveryv3.DeltaDiscoveryRequest) bool) (out []*discoveryv3.DeltaDiscoveryRequest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.requests {
		if keep(r) {
			out = append(out, r)
		}
	}
	return out
}

// Refused is for [Server.Requests]: requests that refuse a response.
func Refused(r *discoveryv3.DeltaDiscoveryRequest) bool { return r.GetErrorDetail() != nil }

// Sent returns the names of the resources that were sent, in their order.
func (s *Server) Sent() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.sent)
}

// Forget empties what Requests and Sent return.
func (s *Server) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests, s.sent = nil, nil
}

// Soon waits until something holds, or fails the test.
func Soon(t testing.TB, what string, holds func() bool) {
	t.Helper()
	enough := time.NewTimer(10 * time.Second)
	defer enough.Stop()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-enough.C:
			t.Fatalf("not in time: %s", what)
		}
	}
}

// service serves one stream with the library's server.
type service struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	delta deltav3.Server
}

func (s *service) DeltaAggregatedResources(stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	return s.delta.DeltaStreamHandler(stream, "")
}

// callbacks are the library's.
type callbacks struct{ *Server }

func (callbacks) OnDeltaStreamOpen(context.Context, int64, string) error { return nil }
func (callbacks) OnDeltaStreamClosed(int64, *corev3.Node)                {}

func (c callbacks) OnStreamDeltaRequest(_ int64, r *discoveryv3.DeltaDiscoveryRequest) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests = append(c.requests, proto.Clone(r).(*discoveryv3.DeltaDiscoveryRequest))
	return nil
}

func (c callbacks) OnStreamDeltaResponse(_ int64, _ *discoveryv3.DeltaDiscoveryRequest, r *discoveryv3.DeltaDiscoveryResponse) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r.SystemVersionInfo = c.version
	for _, resource := range r.GetResources() {
		c.sent = append(c.sent, resource.GetName())
	}
}

// Package xds sends sidecars their policies and replay peers: delta xDS over one ADS stream per
// sidecar, on go-control-plane. It reports to the fleet's registry which sidecars are connected and
// what each one acked or refused.
//
// # Resources
//
//   - PolicyPack: all policies, many in each resource, subscribed to with the wildcard (packs.go).
//   - ClusterLoadAssignment: the replay peers, in peerGroups resources so that a sidecar that joins
//     does not send the whole fleet again, and at most peersPerSecond of them. A sidecar keeps
//     those of an earlier connection while the control plane is young (postponedpeers.go).
//   - Struct: the peer credentials (credentials.go). Each sidecar subscribes to its own.
//
// Each resource's version is a hash of its content, so it is the same on every control plane and
// after a restart: a sidecar that connects again with initial_resource_versions gets only changes.
// A subscription to resources of other types is not answered, and the stream goes on.
//
// A response has all changes of a stream, of any size: a client should allow messages above gRPC's
// 4 MiB.
//
// # Journey of a change
//
// [Server.Run] waits for a new state of the catalog, finds the policies that differ from the last
// one, and updates the caches (policies.go). The caches answer the watches of the streams that
// subscribe to them (subscriptions.go), and the callbacks record the resources of each nonce and their
// acks and rejections (stream.go).
package xds

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/delta/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/mem"

	"github.com/sluice-bus/sluice/controlplane/internal/catalog"
	"github.com/sluice-bus/sluice/controlplane/internal/fleet"
	"github.com/sluice-bus/sluice/internal/access"
	"github.com/sluice-bus/sluice/internal/listen"
	"github.com/sluice-bus/sluice/internal/pause"
	"github.com/sluice-bus/sluice/internal/tunnel"
)

const (
	// coalesce is how long further states of the catalog are collected after one was applied, so
	// that several changes in a row are sent together. The first one after a pause does not wait.
	coalesce = 50 * time.Millisecond
	// peersInterval is the least interval between updates of the replay peers.
	peersInterval = time.Second
	// peersSettle is how long after its start a control plane waits until it expects all sidecars
	// to be connected. Sidecars wait at most 5 s between two attempts, and their connections 7.5 s.
	peersSettle = 15 * time.Second

	// A sidecar that sends nothing for pingAfter is pinged, and treated as dead after another
	// pongWithin.
	pingAfter  = 10 * time.Second
	pongWithin = 5 * time.Second
	// connectTimeout bounds the handshakes of a connection; one without a stream for idleTimeout ends.
	connectTimeout = 10 * time.Second
	idleTimeout    = 2 * time.Minute
	// pingsEvery is the least interval of a sidecar's own pings.
	pingsEvery = 5 * time.Second
	// maxRequestBytes bounds one request: the first one has the names and versions of all that the
	// sidecar has.
	maxRequestBytes = 8 << 20
	// maxStreams bounds the streams of a connection. A sidecar has one of each service, and for a
	// moment those that they replace.
	maxStreams = 100
	// readBuffer is the size of a connection's read buffer; sidecars send little.
	readBuffer = 4 << 10
	// connWindow is how much of all streams of a connection may be on its way.
	connWindow = 1 << 20
)

// States is the source of policies.
type States interface {
	// Watch returns the state in force, and a channel that is closed once another one is.
	Watch() (*catalog.State, <-chan struct{})
}

// Config has the dependencies of a server.
type Config struct {
	States   States
	Registry *fleet.Registry
	// Admit returns whether the caller of the stream with this context may use a node id and be on
	// a store, and the prefix of its credential that covers the node id; the error has a gRPC status. nil: every caller may use any.
	Admit func(ctx context.Context, nodeID, store string) (fleet.Prefix, error)
	// Issuer signs the peer credentials of sidecars; nil: there are none.
	Issuer *access.PeerIssuer
	// Drained records that a sidecar leaves no events behind, in the store; nil: only the registry
	// does. The sidecar gets the error.
	Drained func(fleet.Node) error
	// RESTURL is where the control plane's REST API is, which sidecars tell the command line. One without a host, such as http://:7080,
	// is at the host where sidecars find this server; "" or nil: they are told nothing.
	RESTURL func() string
	Logger  *slog.Logger // nil: none
	// PeersInterval is the least interval between updates of the replay peers; 0: 1 s.
	PeersInterval time.Duration
	// PeersSettle is how long after the start sidecars keep the replay peers of their earlier
	// connection; 0: 15 s.
	PeersSettle time.Duration
}

// Server serves the policies in force. Its streams end when Run does.
type Server struct {
	discovery.UnimplementedAggregatedDiscoveryServiceServer

	cfg Config

	connecting sync.Mutex

	applying sync.Mutex
	applied  *catalog.State // guarded by applying

	policies    *policies
	peers       *peers
	postponed   *postponed
	credentials *credentials
	streams     sync.Map     // the open ones, *stream by the library's number
	open        atomic.Int64 // their number
	delta       delta.Server
	stop        context.CancelFunc // ends the streams
}

// New makes a server with the state in force, so that no sidecar is told that a policy does not
// exist when it was only not loaded yet.
func New(c Config) *Server {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.PeersInterval = cmp.Or(c.PeersInterval, peersInterval)
	c.PeersSettle = cmp.Or(c.PeersSettle, peersSettle)
	if c.Admit == nil {
		c.Admit = func(context.Context, string, string) (fleet.Prefix, error) { return fleet.Prefix{}, nil }
	}
	if c.Drained == nil {
		c.Drained = func(n fleet.Node) error {
			c.Registry.Drained(n)
			return nil
		}
	}
	s := &Server{
		cfg: c, policies: newPolicies(), peers: newPeers(), credentials: newCredentials(c.Issuer),
	}
	s.postponed = newPostponed(s.peers.cache)
	s.apply()
	s.updatePeers()
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	s.delta = delta.NewServer(ctx, newWatcher(s.policies, s.peers, s.postponed, s.credentials), callbacks{s}, delta.DeactivateLegacyWildcard())
	return s
}

// Register adds the service to a gRPC server made with [ServerOptions].
func (s *Server) Register(g *grpc.Server) {
	discovery.RegisterAggregatedDiscoveryServiceServer(g, s)
}

// ServerOptions are the options that the gRPC server needs: it detects dead sidecars within 15 s.
func ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ConnectionTimeout(connectTimeout),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: pingAfter, Timeout: pongWithin, MaxConnectionIdle: idleTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pingsEvery, PermitWithoutStream: true}),
		grpc.MaxHeaderListSize(listen.MaxHeadBytes),
		grpc.MaxRecvMsgSize(maxRequestBytes),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.ReadBufferSize(readBuffer),
		grpc.StaticStreamWindowSize(tunnel.StreamWindow),
		grpc.StaticConnWindowSize(connWindow),
		experimental.BufferPool(messages),
		grpc.ForceServerCodecV2(newCodec()),
	}
}

// messages is the buffer pool of messages being sent. gRPC's own pool has no size between 32 KiB
// and 1 MiB: replay peers, or many policies, for a thousand sidecars would take a gigabyte.
var messages = mem.NewTieredBufferPool(256, 4<<10, 16<<10, 32<<10, 64<<10, 128<<10, 256<<10, 512<<10, 1<<20)

// DeltaAggregatedResources serves one sidecar.
func (s *Server) DeltaAggregatedResources(stream discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	return s.delta.DeltaStreamHandler(stream, resource.AnyType)
}

// Run sends changes to the sidecars until the context ends; then all streams end, too.
func (s *Server) Run(ctx context.Context) error {
	defer s.stop()
	tick := time.NewTicker(s.cfg.PeersInterval)
	defer tick.Stop()
	began, postponed := time.Now(), true
	_, changed := s.cfg.States.Watch()
	s.apply() // it may be another one than New has seen
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			all := s.updatePeers()
			if postponed && all && time.Since(began) >= s.cfg.PeersSettle {
				postponed = false
				if err := s.postponed.release(); err != nil {
					s.cfg.Logger.Error("xds: cannot send replay peers to sidecars that reconnected", "error", err)
				}
			}
			if err := s.credentials.renew(time.Now()); err != nil {
				s.cfg.Logger.Error("xds: cannot renew the peers' credentials", "error", err)
			}
		case <-changed:
			_, changed = s.cfg.States.Watch()
			s.apply()
			if !pause.For(ctx, coalesce) {
				return nil
			}
		}
	}
}

// apply puts the latest state in force, unless it is already. It is also called before a sidecar
// that subscribes is answered: states in quick succession are collected, but a sidecar that starts
// depends on the answer.
func (s *Server) apply() {
	s.applying.Lock()
	defer s.applying.Unlock()
	state, _ := s.cfg.States.Watch()
	if state == s.applied {
		return
	}
	n, err := s.policies.replace(state)
	if err != nil {
		s.cfg.Logger.Error("xds: policies", "revision", state.Revision, "error", err)
		return
	}
	s.applied = state
	s.cfg.Logger.Debug("xds: policies in force", "revision", state.Revision, "changed", n)
}

// updatePeers reports whether it sent all changes.
func (s *Server) updatePeers() bool {
	receivers := int(s.open.Load()) - s.postponed.count()
	all, err := s.peers.replace(s.cfg.Registry.Peers(), receivers, time.Now())
	if err != nil {
		s.cfg.Logger.Error("xds: cannot send replay peers", "error", err)
	}
	return all
}

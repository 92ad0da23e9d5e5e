package tunnel

import (
	"context"
	"errors"
	"net"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluice-bus/sluice/internal/policypb"
)

const (
	// maxStreams bounds the streams of one sidecar: those that it has given up may end a moment later.
	maxStreams = 2 * MaxConnections
	// grace is how long a sidecar without streams is waited for: one may have ended just before the next.
	grace = time.Second
)

// StreamWindow is how much of a connection's data may wait at the control plane for who asked; it is
// for the options of its gRPC server.
const StreamWindow = 256 << 10

// Errors of Take and Dial.
var (
	ErrNone = errors.New("no sidecar of the store has a tunnel here")
	errGone = errors.New("the sidecar's tunnel has ended")
)

// Server is the control plane's end: it makes connections to sidecars. It is safe for concurrent use.
type Server struct {
	// admit returns whether the caller of the stream with this context may use a node id and instance.
	admit func(ctx context.Context, nodeID, instance string) error

	mu     sync.Mutex
	stores map[string]map[string]*node // by store, then by node id
	keys   map[string]*node            // by key
	last   uint64                      // key
	change chan struct{}               // is closed once a place is free
}

// node is a process with streams.
type node struct {
	key, id, instance string
	store             string
	idle              chan net.Conn // takes a connection from an idle stream
	gone              chan struct{} // is closed after the last stream

	// Guarded by the server's mu.
	streams int
	entered int // streams so far
	held    int // places
}

// NewServer makes a Server. The error of admit has a gRPC status; nil: every caller may use any node id.
func NewServer(admit func(ctx context.Context, nodeID, instance string) error) *Server {
	if admit == nil {
		admit = func(context.Context, string, string) error { return nil }
	}
	return &Server{admit: admit, stores: map[string]map[string]*node{}, keys: map[string]*node{}, change: make(chan struct{})}
}

// Register adds the service to a gRPC server.
func (s *Server) Register(r grpc.ServiceRegistrar) {
	policypb.RegisterStream(r, service, connectStream, s.connect)
}

// connect serves one stream: it offers a connection, and carries it.
func (s *Server) connect(with *grpc.GenericServerStream[wrapperspb.BytesValue, wrapperspb.BytesValue]) error {
	ctx := with.Context()
	who, err := policypb.StreamValues(ctx, policypb.StreamNodeID, policypb.StreamInstanceSecret, policypb.StreamStoreID)
	if err != nil {
		return err
	}
	instance := policypb.PublicID(who[1])
	if err := s.admit(ctx, who[0], instance); err != nil {
		return err
	}
	n, leave, err := s.enter(who[0], instance, who[2])
	if err != nil {
		return err
	}
	defer leave()
	over, end := context.WithCancel(ctx)
	defer end()
	c, inner := pipe(n.id, end)
	defer inner.Close()
	select {
	case n.idle <- c:
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
	if err := with.Send(&wrapperspb.BytesValue{}); err != nil { // taken
		return err
	}
	// The return of this function ends both.
	go func() {
		defer end()
		_ = send(inner, with)
	}()
	go func() {
		defer end()
		receive(with, inner)
	}()
	<-over.Done()
	return nil
}

// enter counts a stream of a sidecar until it leaves. Another process with the node id replaces the
// one before.
func (s *Server) enter(id, instance, store string) (_ *node, leave func(), _ error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.stores[store][id]
	if n == nil || n.instance != instance {
		s.last++
		n = &node{
			key: strconv.FormatUint(s.last, 10), id: id, instance: instance, store: store,
			idle: make(chan net.Conn), gone: make(chan struct{}),
		}
		if s.stores[store] == nil {
			s.stores[store] = map[string]*node{}
		}
		s.stores[store][id], s.keys[n.key] = n, n
		s.changed()
	}
	if n.streams >= maxStreams {
		return nil, nil, status.Errorf(codes.ResourceExhausted, "this sidecar has %d streams of tunnels, the most that it may have", maxStreams)
	}
	n.streams++
	n.entered++
	return n, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if n.streams--; n.streams == 0 {
			entered := n.entered
			time.AfterFunc(grace, func() { s.forget(n, entered) })
		}
	}, nil
}

// forget forgets a sidecar, unless streams have come since so many had entered.
func (s *Server) forget(n *node, entered int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n.entered > entered {
		return
	}
	close(n.gone)
	delete(s.keys, n.key)
	if s.stores[n.store][n.id] == n {
		delete(s.stores[n.store], n.id)
	}
	if len(s.stores[n.store]) == 0 {
		delete(s.stores, n.store)
	}
	s.changed() // who waits for a place learns that there is no sidecar
}

// changed wakes those who wait for a place. The caller holds mu.
func (s *Server) changed() {
	close(s.change)
	s.change = make(chan struct{})
}

// Place is the right to one connection with a sidecar.
type Place struct {
	Node string // its node id
	Key  string // names its process to Dial

	server *Server
	node   *node
}

// Take takes a place of the store's sidecar that has the most, except for those in tried, by key. It
// waits for one until ctx ends. The error is ErrNone, or that of ctx.
func (s *Server) Take(ctx context.Context, store string, tried map[string]bool) (*Place, error) {
	for {
		place, change, err := s.take(store, tried)
		if place != nil || err != nil {
			return place, err
		}
		select {
		case <-change:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (s *Server) take(store string, tried map[string]bool) (_ *Place, change <-chan struct{}, _ error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var best *node
	for _, n := range s.stores[store] {
		if !tried[n.key] && (best == nil || n.before(best)) {
			best = n
		}
	}
	switch {
	case best == nil:
		return nil, nil, ErrNone
	case best.held >= MaxConnections:
		return nil, s.change, nil
	}
	best.held++
	return &Place{Node: best.id, Key: best.key, server: s, node: best}, nil, nil
}

// before reports whether a sidecar is to be asked rather than another.
func (n *node) before(other *node) bool {
	if connected := n.streams > 0; connected != (other.streams > 0) {
		return connected
	}
	return n.held < other.held
}

// Release gives the place back. It is called once.
func (p *Place) Release() {
	p.server.mu.Lock()
	defer p.server.mu.Unlock()
	p.node.held--
	p.server.changed()
}

// Dial makes a connection to the process of a place.
func (s *Server) Dial(ctx context.Context, key string) (net.Conn, error) {
	s.mu.Lock()
	n := s.keys[key]
	s.mu.Unlock()
	if n == nil {
		return nil, errGone
	}
	select {
	case c := <-n.idle:
		return c, nil
	case <-n.gone:
		return nil, errGone
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

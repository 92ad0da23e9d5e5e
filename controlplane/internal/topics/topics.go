// Package topics asks sidecars which topics exist in their stores, so that the control plane shows
// idle topics, too, also after it was restarted. One sidecar of each store answers, page by page:
// first with all topics, then with the changes. If its stream ends, another sidecar of the store is
// asked, again for all topics.
package topics

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/sluice-bus/sluice/internal/policypb"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
)

const (
	// listsAtOnce is how many stores send all of their topics at the same time: after a start all
	// sidecars connect.
	listsAtOnce = 16
	// maxListed bounds the topics of one store.
	maxListed = 100_000
)

// Sink receives the topics of stores. It is safe for concurrent use.
type Sink interface {
	// SetTopics replaces the topics of a store. Its changes follow, until EndTopics.
	SetTopics(store string, names []string)
	// ChangeTopics adds and removes topics of a store.
	ChangeTopics(store string, added, removed []string)
	// EndTopics says that no sidecar of the store reports any more.
	EndTopics(store string)
}

// Config is what a Server needs. Sink and Logger are required.
type Config struct {
	Sink Sink
	// Admit returns whether the caller of the stream with this context may use a node id and
	// instance; the error has a gRPC status. nil: every caller may use any.
	Admit  func(ctx context.Context, nodeID, instance string) error
	Logger *slog.Logger
}

// Server is the service to which sidecars report topics.
type Server struct {
	cfg   Config
	lists chan struct{} // has an element for each store that sends all of its topics

	mu    sync.Mutex
	turns map[string]*turn // by store
}

// turn is held by the sidecar of a store that is asked.
type turn struct {
	held    chan struct{} // has an element while one holds it
	streams int           // that hold it or wait for it
}

// New makes a Server.
func New(cfg Config) *Server {
	if cfg.Admit == nil {
		cfg.Admit = func(context.Context, string, string) error { return nil }
	}
	return &Server{cfg: cfg, lists: make(chan struct{}, listsAtOnce), turns: map[string]*turn{}}
}

// Register adds the service to a gRPC server.
func (s *Server) Register(r grpc.ServiceRegistrar) {
	policypb.RegisterStream(r, policypb.TopicsService, policypb.TopicsStream, s.report)
}

type link = *grpc.GenericServerStream[policypb.TopicsPage, emptypb.Empty]

// report serves one sidecar.
func (s *Server) report(from link) error {
	ctx := from.Context()
	id, err := policypb.StreamValues(ctx, policypb.StreamNodeID, policypb.StreamInstanceSecret, policypb.StreamStoreID)
	if err != nil {
		return err
	}
	node, store := id[0], id[2]
	if err := s.cfg.Admit(ctx, node, policypb.PublicID(id[1])); err != nil {
		return err
	}
	leave, err := s.enter(ctx, store)
	if err != nil {
		return err
	}
	defer leave()
	err = s.follow(from, store)
	if status.Code(err) == codes.InvalidArgument {
		s.cfg.Logger.Warn("a sidecar's report of topics is refused", "node", node, "error", err)
	}
	return err
}

// enter waits until no other sidecar of the store is asked.
func (s *Server) enter(ctx context.Context, store string) (leave func(), _ error) {
	s.mu.Lock()
	t := s.turns[store]
	if t == nil {
		t = &turn{held: make(chan struct{}, 1)}
		s.turns[store] = t
	}
	t.streams++
	s.mu.Unlock()
	end := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if t.streams--; t.streams == 0 {
			delete(s.turns, store)
		}
	}
	select {
	case t.held <- struct{}{}:
		return func() { <-t.held; end() }, nil
	case <-ctx.Done():
		end()
		return nil, status.FromContextError(ctx.Err()).Err()
	}
}

// follow requests all topics of a store, and then the changes.
func (s *Server) follow(from link, store string) error {
	names, err := s.list(from)
	if err != nil {
		return err
	}
	s.cfg.Sink.SetTopics(store, names)
	defer s.cfg.Sink.EndTopics(store)
	for {
		page, err := next(from)
		if err != nil {
			return err
		}
		s.cfg.Sink.ChangeTopics(store, page.GetAdded(), page.GetRemoved())
	}
}

// list requests all topics of a store.
func (s *Server) list(from link) (names []string, _ error) {
	select {
	case s.lists <- struct{}{}:
		defer func() { <-s.lists }()
	case <-from.Context().Done():
		return nil, status.FromContextError(from.Context().Err()).Err()
	}
	for {
		page, err := next(from)
		if err != nil {
			return nil, err
		}
		if names = append(names, page.GetAdded()...); len(names) > maxListed {
			return nil, status.Errorf(codes.InvalidArgument, "the store has more than %d topics", maxListed)
		}
		if page.GetLast() {
			return names, nil
		}
	}
}

// next requests a page, and checks it.
func next(from link) (*policypb.TopicsPage, error) {
	if err := from.Send(&emptypb.Empty{}); err != nil {
		return nil, err
	}
	page, err := from.Recv()
	if err == nil {
		err = check(page)
	}
	return page, err
}

func check(page *policypb.TopicsPage) error {
	if n := len(page.GetAdded()) + len(page.GetRemoved()); n > policypb.MaxTopicsPage {
		return status.Errorf(codes.InvalidArgument, "a page has %d topics, at most %d are allowed", n, policypb.MaxTopicsPage)
	}
	for field, names := range map[string][]string{"added": page.GetAdded(), "removed": page.GetRemoved()} {
		for i, name := range names {
			if err := codec.CheckReadTopic(name); err != nil {
				return status.Error(codes.InvalidArgument, fmt.Sprintf("%s[%d]: %s", field, i, err.Msg))
			}
		}
	}
	return nil
}

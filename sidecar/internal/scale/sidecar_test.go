package scale

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sidecar/internal/control"
	"github.com/sluice-bus/sluice/sidecar/internal/quota"
	"github.com/sluice-bus/sluice/test/require"
)

// sidecar is what a sidecar has of its control plane, without the rest of it.
type sidecar struct {
	id      string
	topics  []string // that are in use here
	about   control.About
	control *control.Control
	quota   *quota.Client
	wire    *wire

	mu      sync.Mutex
	inForce map[string]mark // by name: the topics, and the glob that is changed
	swaps   int             // how often policies changed
}

// mark is a rate and when it came into force. Each change makes another rate, so that it is known
// by it, also where a topic falls through to what changed.
type mark struct {
	rate float64
	at   time.Time
}

func newSidecar(t *testing.T, i int, address string, topics []string) *sidecar {
	t.Helper()
	instance, store := uuid.NewString(), uuid.NewString()
	s := &sidecar{id: fmt.Sprintf("node-%04d", i), topics: topics, wire: newWire(store), inForce: map[string]mark{changedGlob: {}}}
	for _, name := range topics {
		s.inForce[name] = mark{}
	}
	replay := fmt.Sprintf("10.%d.%d.%d:8083", i>>16, i>>8&255, i&255)
	s.about = control.About{StoreID: func() string { return store }, Replay: func() string { return replay }}
	var err error
	s.control, err = control.Open(control.Config{
		Address: address, Dial: []grpc.DialOption{grpc.WithTransportCredentials(s.wire.credentials())}, NodeID: s.id,
		InstanceSecret: instance, Version: "test",
		OnCredential: func(string, []byte) error { return nil },
		Logger:       slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	s.quota = quota.New(quota.Config{Conn: s.control.Conn(), NodeID: s.id, InstanceSecret: instance, Known: s.control.KnownSidecars})
	return s
}

// run lives until ctx ends.
func (s *sidecar) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.control.Run(ctx, s.about) })
	g.Go(func() error { return s.quota.Run(ctx) })
	g.Go(func() error { return s.follow(ctx) })
	return errors.Join(g.Wait(), s.control.Close())
}

// publish counts one event of each topic.
func (s *sidecar) publish() {
	for _, name := range s.topics {
		s.quota.Count(name, 1, 0)
	}
}

// follow notes which rates are in force since when.
func (s *sidecar) follow(ctx context.Context) error {
	for {
		snapshot, ended := s.control.Policies().Watch()
		now := time.Now()
		s.mu.Lock()
		s.swaps++
		for name, last := range s.inForce {
			if rate := rateOf(snapshot, name); rate != last.rate {
				s.inForce[name] = mark{rate, now}
			}
		}
		s.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil
		case <-ended:
		}
	}
}

// rateOf is what a policy says, be it a topic's or a glob's.
func rateOf(s *policy.Snapshot, name string) float64 {
	return s.Topic(strings.TrimSuffix(name, "*")).Publish.Rate
}

// has tells since when a rate is in force here, if it is.
func (s *sidecar) has(name string, rate float64) (time.Time, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.inForce[name]
	return m.at, m.rate == rate
}

// knows tells whether the control plane has said all policies.
func (s *sidecar) knows() bool { return s.control.Cached() }

func (s *sidecar) changes() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.swaps
}

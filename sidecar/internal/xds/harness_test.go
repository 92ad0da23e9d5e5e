package xds_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluice-bus/sluice/sidecar/internal/xds"
	"github.com/sluice-bus/sluice/sidecar/internal/xds/xdstest"
	"github.com/sluice-bus/sluice/test/require"
)

// Two types of resources: clients want those of some names, and all of the other type. Each is a
// StringValue with the text that a test puts in.
const (
	topics = "type.googleapis.com/test.Topic"
	globs  = "type.googleapis.com/test.Glob"
)

// server serves resources of these types.
type server struct{ *xdstest.Server }

func newServer(t *testing.T) server { return server{xdstest.New(t, topics, globs)} }

// identified is how many requests said who is asking.
func (s server) identified() int {
	return len(s.Requests(func(r *discoveryv3.DeltaDiscoveryRequest) bool { return r.GetNode() != nil }))
}

// put changes resources; one without text is deleted.
func (s server) put(typeURL string, texts map[string]string) {
	resources := map[string]proto.Message{}
	for name, text := range texts {
		if resources[name] = nil; text != "" {
			resources[name] = wrapperspb.String(text)
		}
	}
	s.Put(typeURL, resources)
}

// holder is what a client applies its updates to. It refuses those with a resource that says "bad".
type holder struct {
	*xds.Client
	logged *bytes.Buffer // read it when the client has stopped

	mu      sync.Mutex
	texts   map[string]string // by name
	updates []xds.Update
}

func (h *holder) apply(_ context.Context, u xds.Update) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	texts := map[string]string{}
	for _, r := range u.Resources {
		var text wrapperspb.StringValue
		if err := proto.Unmarshal(r.Body, &text); err != nil {
			return err
		}
		if text.GetValue() == "bad" {
			return fmt.Errorf("%s is bad", r.Name)
		}
		texts[r.Name] = text.GetValue()
	}
	for name, text := range texts {
		h.texts[name] = text
	}
	for _, name := range u.Removed {
		delete(h.texts, name)
	}
	h.updates = append(h.updates, u)
	return nil
}

func (h *holder) text(name string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.texts[name]
}

func (h *holder) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.updates)
}

// newHolder makes a client of the server without running it. It wants all globs, and the topics of
// those names.
func newHolder(t *testing.T, s server, change func(*xds.Config), names ...string) *holder {
	t.Helper()
	conn, err := grpc.NewClient(s.Address,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: 5 * time.Second,
			Backoff: backoff.Config{BaseDelay: time.Millisecond, Multiplier: 1.5, MaxDelay: 10 * time.Millisecond}}))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	h := &holder{texts: map[string]string{}, logged: &bytes.Buffer{}}
	cfg := xds.Config{
		Conn:       conn,
		Node:       func() *corev3.Node { return &corev3.Node{Id: "n1"} },
		Types:      []xds.Type{{URL: globs}},
		Apply:      h.apply,
		Logger:     slog.New(slog.NewTextHandler(h.logged, nil)),
		MinBackoff: time.Millisecond, MaxBackoff: 10 * time.Millisecond,
	}
	if len(names) > 0 {
		cfg.Types = append([]xds.Type{{URL: topics, Names: names}}, cfg.Types...)
	}
	if change != nil {
		change(&cfg)
	}
	if h.Client, err = xds.New(cfg); err != nil {
		t.Fatal(err)
	}
	return h
}

// run runs the client until the returned function is called, or the test ends.
func (h *holder) run(t *testing.T) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func discard() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

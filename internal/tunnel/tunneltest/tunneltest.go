// Package tunneltest connects sidecars to a control plane in memory, for tests of what their tunnels
// carry.
package tunneltest

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/sluice-bus/sluice/internal/pause"
	"github.com/sluice-bus/sluice/internal/tunnel"
)

// Store is the store of all sidecars.
const Store = "store"

// T is a test, or a property's.
type T interface {
	Helper()
	Fatal(args ...any)
	Cleanup(func())
}

// Plane is a control plane.
type Plane struct {
	*tunnel.Server
	RPC *grpc.Server
	at  *bufconn.Listener
}

// NewPlane starts a control plane that stops with its test; admit is NewServer's.
func NewPlane(t T, admit func(ctx context.Context, nodeID, instance string) error) *Plane {
	p := &Plane{tunnel.NewServer(admit), grpc.NewServer(grpc.StaticStreamWindowSize(tunnel.StreamWindow)), bufconn.Listen(1 << 20)}
	p.Register(p.RPC)
	served := make(chan error, 1)
	go func() { served <- p.RPC.Serve(p.at) }()
	t.Cleanup(func() {
		p.RPC.Stop()
		<-served
	})
	return p
}

// Sidecar listens for connections, until the test or stop ends that.
func (p *Plane) Sidecar(t T, node, instance string) (l *tunnel.Listener, stop func()) {
	conn, err := grpc.NewClient("passthrough:plane", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return p.at.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	l = tunnel.Listen(tunnel.ListenerConfig{
		Conn: conn, Address: "plane", NodeID: node, InstanceSecret: instance, StoreID: func() string { return Store },
		Logger: slog.New(slog.DiscardHandler),
	})
	t.Cleanup(func() {
		l.Close()
		l.Wait()
		conn.Close()
	})
	return l, func() { conn.Close() }
}

// Serve answers requests to a sidecar until the test ends, or kill takes it away at once.
func (p *Plane) Serve(t T, node string, h http.Handler) (kill func()) {
	l, cut := p.Sidecar(t, node, "life of "+node)
	srv := &http.Server{Handler: h}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	t.Cleanup(func() {
		srv.Close()
		<-served
	})
	return cut
}

// Take takes a place of a sidecar once there is one.
func (p *Plane) Take(t T) *tunnel.Place {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		place, err := p.Server.Take(ctx, Store, nil)
		switch {
		case err == nil:
			return place
		case !errors.Is(err, tunnel.ErrNone) || !pause.For(ctx, time.Millisecond):
			t.Fatal(err)
		}
	}
}

// Await waits until so many sidecars are there.
func (p *Plane) Await(t T, n int) {
	t.Helper()
	tried := map[string]bool{}
	for len(tried) < n {
		if place, err := p.Server.Take(context.Background(), Store, tried); err == nil {
			tried[place.Key] = true
			place.Release()
			continue
		}
		pause.For(context.Background(), time.Millisecond)
	}
}

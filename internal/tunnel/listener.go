package tunnel

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluice-bus/sluice/internal/pause"
	"github.com/sluice-bus/sluice/internal/policypb"
)

const (
	// retryFirst and retryMost bound the wait before the control plane is asked again.
	retryFirst = 100 * time.Millisecond
	retryMost  = 5 * time.Second
	// linger is how long the control plane has to read the rest of a closed connection.
	linger = 5 * time.Second
)

// ListenerConfig is what a Listener needs; every field is required.
type ListenerConfig struct {
	Conn           grpc.ClientConnInterface // to the control plane
	Address        string                   // of the control plane
	NodeID         string
	InstanceSecret string        // of this process
	StoreID        func() string // "": the store is not known yet
	Logger         *slog.Logger
}

// Listener is the sidecar's end: it accepts the connections that the control plane makes. Accept is
// for one goroutine.
type Listener struct {
	cfg    ListenerConfig
	places chan struct{} // has an element for each connection, and for the idle stream
	ctx    context.Context
	close  context.CancelFunc
	open   sync.WaitGroup // connections whose end is not sent yet
}

// Listen makes a Listener. It keeps no stream before Accept is called.
func Listen(cfg ListenerConfig) *Listener {
	l := &Listener{cfg: cfg, places: make(chan struct{}, MaxConnections)}
	l.ctx, l.close = context.WithCancel(context.Background())
	return l
}

// Accept waits for the next connection, also while the control plane is away.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case l.places <- struct{}{}:
	case <-l.ctx.Done():
		return nil, net.ErrClosed
	}
	again := pause.Backoff{First: retryFirst, Most: retryMost}
	for {
		if store := l.cfg.StoreID(); store != "" {
			c, err := l.await(store)
			if err == nil {
				return c, nil
			}
			if code := status.Code(err); l.ctx.Err() == nil && code != codes.Unavailable { // the log has lost connections already
				l.cfg.Logger.Warn("the control plane takes no tunnel: its people cannot see the events of this sidecar", "error", err)
			}
		}
		if !pause.For(l.ctx, again.Step()) {
			<-l.places
			return nil, net.ErrClosed
		}
	}
}

// await keeps an idle stream until the control plane makes a connection of it.
func (l *Listener) await(store string) (net.Conn, error) {
	ctx, cancel := context.WithCancel(context.Background())
	still := context.AfterFunc(l.ctx, cancel) // a connection outlives the listener
	named := metadata.AppendToOutgoingContext(ctx,
		policypb.StreamNodeID, l.cfg.NodeID, policypb.StreamInstanceSecret, l.cfg.InstanceSecret, policypb.StreamStoreID, store)
	stream, err := l.cfg.Conn.NewStream(named, &connectStream, method, grpc.WaitForReady(true))
	if err != nil {
		cancel()
		return nil, err
	}
	s := &grpc.GenericClientStream[wrapperspb.BytesValue, wrapperspb.BytesValue]{ClientStream: stream}
	if _, err := s.Recv(); err != nil {
		cancel()
		return nil, err
	}
	still()
	c, inner := pipe("the control plane "+l.cfg.Address, func() { time.AfterFunc(linger, cancel) })
	l.open.Go(func() {
		if send(inner, s) == nil {
			_ = s.CloseSend() // the stream's end says what it would
		}
	})
	l.open.Go(func() {
		receive(s, inner)
		inner.Close()
		cancel()
		<-l.places
	})
	return c, nil
}

// Close ends Accept. Connections go on.
func (l *Listener) Close() error {
	l.close()
	return nil
}

// Wait waits until all connections have ended, and nothing of them is on its way. Call it after the
// connections are closed.
func (l *Listener) Wait() { l.open.Wait() }

// Addr names the control plane.
func (l *Listener) Addr() net.Addr { return addr("the control plane " + l.cfg.Address) }

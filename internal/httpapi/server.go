package httpapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// Bounds on what a connection may take before it has sent a request. There is
// none on the time of a reply: streams are long on purpose, and those who write
// them bound each write.
const (
	readHeaderTimeout = 10 * time.Second
	idleTimeout       = 2 * time.Minute
	maxHeaderBytes    = 64 << 10
)

// Server serves one listener for as long as its context lasts.
type Server struct {
	Handler http.Handler
	Logger  *slog.Logger
	// DrainTimeout is how long requests under way may go on once the server
	// is told to stop; 0 cuts them off at once.
	DrainTimeout time.Duration
	// ConnContext, if set, adds to the context of each new connection's
	// requests.
	ConnContext func(ctx context.Context, c net.Conn) context.Context
}

// Serve accepts connections on ln until ctx ends. It then closes ln, lets
// requests under way finish for DrainTimeout, and cuts off those that are left:
// their contexts end and their connections close. Hijacked connections, as
// WebSockets are, belong to those who hijacked them: Serve does not wait for
// them, and their contexts end only if requests have to be cut off.
//
// It returns nil after a stop that ctx asked for, also when requests had to be
// cut off; else it says why the listener failed. Handlers that were cut off may
// take a moment more to notice; nothing else of it runs on.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	// Requests outlive ctx by the drain time: only the cut ends them.
	base, cut := context.WithCancel(context.WithoutCancel(ctx))
	srv := &http.Server{
		Handler:           s.Handler,
		ReadHeaderTimeout: readHeaderTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(s.Logger.Handler(), slog.LevelWarn),
		BaseContext:       func(net.Listener) context.Context { return base },
		ConnContext:       s.ConnContext,
	}
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(ln) }()

	select {
	case err := <-failed:
		cut()
		_ = srv.Close() // the connections that were open already
		return fmt.Errorf("serve %s: %w", ln.Addr(), err)
	case <-ctx.Done():
	}
	s.drain(srv, cut)
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s: %w", ln.Addr(), err)
	}
	return nil
}

// drain waits for the requests under way, within the drain time, and cuts off
// the others. Only then are contexts ended: those of hijacked connections are
// not the server's to end.
func (s *Server) drain(srv *http.Server, cut context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.Background(), s.DrainTimeout)
	defer cancel()
	if srv.Shutdown(ctx) == nil {
		return
	}
	s.Logger.Warn("requests cut off at the end of the drain time", "drain", s.DrainTimeout)
	cut()
	_ = srv.Close()
}

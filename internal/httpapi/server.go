package httpapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/sluice-bus/sluice/internal/listen"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// Bounds of a connection before its first request. The time of an answer has no bound: streams are
// long on purpose, and their writers bound each write.
const (
	readHeaderTimeout = 10 * time.Second
	idleTimeout       = 2 * time.Minute
	// maxStreams is how many requests a connection of HTTP/2 may have at a time.
	maxStreams = 1000
)

// Server serves one listener as long as its context lasts.
type Server struct {
	Handler http.Handler
	Logger  *slog.Logger
	// DrainTimeout is how long pending requests may go on once the server stops; 0 ends them at
	// once.
	DrainTimeout time.Duration
	// ConnContext, if set, adds to the context of each new connection's requests.
	ConnContext func(ctx context.Context, c net.Conn) context.Context
}

// Serve accepts connections on ln until ctx ends. It then closes ln, lets pending requests finish
// for DrainTimeout, and aborts the rest: their contexts end and their connections close. Serve does
// not wait for hijacked connections, such as WebSockets, and their contexts end only if requests
// have to be aborted.
//
// It returns nil after a stop that ctx asked for, also if requests had to be aborted; else it
// returns why the listener failed. Aborted handlers may take a moment more to notice; nothing else
// runs on.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	// Requests outlive ctx by the drain time: only the abort ends them.
	base, cut := context.WithCancel(context.WithoutCancel(ctx))
	srv := &http.Server{
		Handler:           begin(boundBody(s.Handler)),
		ReadHeaderTimeout: readHeaderTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    listen.MaxHeadBytes,
		ErrorLog:          log.New(serverLog{s.Logger, ln.Addr()}, "", 0),
		BaseContext:       func(net.Listener) context.Context { return base },
		ConnContext:       s.ConnContext,
		Protocols:         new(http.Protocols),
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: maxStreams},
	}
	srv.Protocols.SetHTTP1(true)
	srv.Protocols.SetHTTP2(true)
	srv.Protocols.SetUnencryptedHTTP2(true) // by prior knowledge
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

// begin tells the listener when requests begin and end.
func begin(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		local := localAddr(r)
		listen.Begin(local)
		defer listen.End(local)
		next.ServeHTTP(w, r)
	})
}

func localAddr(r *http.Request) net.Addr {
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return local
}

// drain waits for pending requests, within the drain time, and aborts the others. Only then do
// contexts end, since those of hijacked connections are not the server's to end.
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

// serverLog writes what net/http logs, as one message, whose repetitions can be left out: its lines
// have clients' addresses.
type serverLog struct {
	logger   *slog.Logger
	listener net.Addr
}

func (l serverLog) Write(line []byte) (int, error) {
	l.logger.Warn("a connection failed", "listener", l.listener.String(), "error", string(bytes.TrimSpace(line)))
	return len(line), nil
}

// Hold keeps the connection of a request until release is called, where its listener is a [listen.Evicting]: other connections make
// room for new ones. The error is a *wire.Error.
func Hold(r *http.Request) (release func(), err error) {
	release, held := listen.Hold(localAddr(r))
	if !held {
		return func() {}, &wire.Error{
			Code: wire.Overloaded, RetryAfter: time.Second,
			Msg: "this listener serves as many connections as it may have (a program's limit of open files bounds it, too): try again later",
		}
	}
	return release, nil
}

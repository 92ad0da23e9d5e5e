package sidecar

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/sluice-bus/sluice/internal/access"
	"github.com/sluice-bus/sluice/internal/httpapi"
	"github.com/sluice-bus/sluice/internal/listen"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/ops"
)

// listen binds the app listener and the replay listener.
func (s *Sidecar) listen(ctx context.Context) (err error) {
	if s.listeners.app, err = s.bind(ctx, "listen", s.cfg.Listen); err != nil {
		return err
	}
	s.listeners.replay, err = s.bind(ctx, "replay-listen", s.cfg.ReplayListen)
	return err
}

// startOps serves the ops listener before the store is open.
func (s *Sidecar) startOps(ctx context.Context) (err error) {
	if s.listeners.ops, err = s.bind(ctx, "ops-listen", s.cfg.OpsListen); err != nil {
		return err
	}
	s.ops = ops.New(s.metrics.Handler(), s.cfg.Logger)
	server := s.server(s.listeners.ops, s.access.Require(access.Operate, s.ops.Handler(), "/healthz", "/readyz"))
	ctx, s.endOps = context.WithCancel(context.WithoutCancel(ctx))
	s.opsServer.Go(func() error { return server.Serve(ctx, s.listeners.ops) })
	s.onClose("the ops listener", func() error {
		s.endOps()
		return s.opsServer.Wait()
	})
	return nil
}

// serveOps returns once the ops listener is served no more; ctx ends that.
func (s *Sidecar) serveOps(ctx context.Context) error {
	defer context.AfterFunc(ctx, s.endOps)()
	return s.opsServer.Wait()
}

// bind binds a listener that admits only so many connections. With TLS a refused connection is
// closed without an answer.
func (s *Sidecar) bind(ctx context.Context, name, addr string) (net.Listener, error) {
	ln, err := listen.On(ctx, addr)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	s.onClose(name, func() error {
		ln.Close() // closing twice is harmless
		return nil
	})
	s.metrics.ConnectionsRefused(name, 0)
	clear := ln.Addr().Network() == "unix" || s.access.TLS() == nil
	bound := listen.NewBound(ln, s.cfg.MaxConnections, func(c net.Conn) {
		s.metrics.ConnectionsRefused(name, 1)
		if clear {
			httpapi.RefuseConn(c, &wire.Error{
				Code: wire.Overloaded, RetryAfter: time.Second,
				Msg: fmt.Sprintf("this listener has the %d connections that it may have: try again later", s.cfg.MaxConnections),
			})
		}
	})
	return s.access.Listener(name, bound), nil
}

// server makes the HTTP server of a listener.
func (s *Sidecar) server(ln net.Listener, h http.Handler) *httpapi.Server {
	guard := httpapi.Guard{AllowedOrigins: s.cfg.AllowedOrigins, Addr: ln.Addr()}
	return &httpapi.Server{Handler: guard.Handler(h), Logger: s.cfg.Logger, DrainTimeout: s.cfg.DrainTimeout}
}

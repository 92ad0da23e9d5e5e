package sidecar

import (
	"context"
	"fmt"
	"net"
	"net/http"

	"github.com/sluice-bus/sluice/internal/access"
	"github.com/sluice-bus/sluice/internal/budget"
	"github.com/sluice-bus/sluice/internal/httpapi"
	"github.com/sluice-bus/sluice/internal/listen"
	"github.com/sluice-bus/sluice/internal/tunnel"
	"github.com/sluice-bus/sluice/sidecar/internal/ops"
	"github.com/sluice-bus/sluice/sidecar/internal/replay"
)

// listen binds the app listener and the replay listener.
func (s *Sidecar) listen(ctx context.Context) (err error) {
	if s.listeners.app, err = s.bind(ctx, appListener, s.cfg.Listen, appFiles); err != nil {
		return err
	}
	if s.listeners.replay, err = s.bind(ctx, "replay-listen", s.cfg.ReplayListen, replayFiles); err != nil {
		return err
	}
	addresses := map[string]string{
		"app": listen.Address(s.listeners.app), "replay": listen.Address(s.listeners.replay), "ops": listen.Address(s.listeners.ops),
	}
	if s.cfg.DaprGRPCListen != "" {
		// gRPC has TLS of its own.
		ln, err := s.bound(ctx, daprListener, s.cfg.DaprGRPCListen, daprFiles)
		if err != nil {
			return err
		}
		s.listeners.dapr = ln
		addresses["dapr_grpc"] = listen.Address(s.listeners.dapr)
		s.openDaprServer()
	}
	s.addresses.Store(&addresses)
	return nil
}

// root is what each listener tells of the sidecar at GET /. The ops listener is served before the others are
// bound.
func (s *Sidecar) root() httpapi.About {
	return httpapi.About{
		Program: "sluice-sidecar", Version: s.cfg.Version, NodeID: s.cfg.NodeID, ControlPlane: s.controlPlaneURL,
		Known: func(r *http.Request) bool {
			_, err := s.access.Identify(r)
			return err == nil
		},
		Listeners: func() map[string]string {
			if all := s.addresses.Load(); all != nil {
				return *all
			}
			return nil
		},
	}
}

func (s *Sidecar) controlPlaneURL() string {
	if s.policies.control == nil {
		return ""
	}
	return s.policies.control.Status().URL
}

// startOps serves the ops listener before the store is open.
func (s *Sidecar) startOps(ctx context.Context) (err error) {
	ln, most, err := s.open(ctx, "ops-listen", s.cfg.OpsListen, opsFiles)
	if err != nil {
		return err
	}
	// Nobody's connections keep health checks and metrics out: one more closes the oldest.
	places := listen.NewEvicting(ln, most, most)
	places.Heads = s.budget.Unauthenticated()
	s.listeners.ops = s.access.Listener("ops-listen", places)
	s.ops = ops.New(s.metrics.Handler(), s.cfg.Logger, s.root(), func(r *http.Request) *budget.Share {
		return s.budget.Of(s.access.From(r.Context()).Name)
	})
	server := s.server(s.listeners.ops, s.access.Require(access.Operate, s.ops.Handler(), "/healthz", "/readyz", httpapi.AboutPath))
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

// servePeople serves what the control plane asks for people, over the connection that this sidecar
// has to it.
func (s *Sidecar) servePeople(ctx context.Context) error {
	if s.policies.control == nil {
		return nil
	}
	ln := tunnel.Listen(tunnel.ListenerConfig{
		Conn: s.policies.control.Conn(), Address: s.cfg.ControlPlane, NodeID: s.cfg.NodeID, InstanceSecret: s.secret, StoreID: s.store.ID,
		Logger: s.cfg.Logger,
	})
	defer ln.Wait()
	server := &httpapi.Server{
		Handler: s.tracing.Handler(s.gateway.ForPeople(replay.Routes(s.history()), replay.TopicOf), "/replay", "/export"),
		Logger:  s.cfg.Logger, DrainTimeout: s.cfg.DrainTimeout, ConnContext: s.gateway.ConnContext,
	}
	return server.Serve(ctx, ln)
}

// The shares of the process's open files that each listener's connections may take, in sixteenths.
// The rest is for the store, refusals, and the sidecar's own connections.
const (
	appFiles    = 8
	replayFiles = 2
	opsFiles    = 1
	daprFiles   = 2
)

// connections bounds the connections of a listener, so that they leave open files for the rest.
func connections(most, openFiles, share int) int { return min(most, max(openFiles*share/16, 1)) }

// open binds a listener, which may have so many connections.
func (s *Sidecar) open(ctx context.Context, name, addr string, share int) (ln net.Listener, most int, err error) {
	ln, err = listen.On(ctx, addr)
	if err != nil {
		return nil, 0, fmt.Errorf("%s: %w", name, err)
	}
	s.onClose(name, func() error {
		ln.Close() // closing twice is harmless
		return nil
	})
	most = connections(s.cfg.MaxConnections, listen.OpenFiles(), share)
	if most < s.cfg.MaxConnections {
		s.cfg.Logger.Debug("the limit of open files (ulimit -n) allows fewer connections than --max-connections",
			"listener", name, "connections", most, "open_files", listen.OpenFiles())
	}
	return ln, most, nil
}

// bind binds a listener that admits only so many connections, with TLS where --auth-config has it.
func (s *Sidecar) bind(ctx context.Context, name, addr string, share int) (net.Listener, error) {
	ln, err := s.bound(ctx, name, addr, share)
	if err != nil {
		return nil, err
	}
	ln.Heads = s.budget.Unauthenticated()
	return s.access.Listener(name, ln), nil
}

// Settings that name listeners.
const (
	appListener  = "listen"
	daprListener = "dapr-grpc-listen"
)

// places are how much of each kind may be under way, which is no more than the listeners have connections.
func (s *Sidecar) places() (most [budget.Kinds]int64) {
	of := func(share int) int64 { return int64(connections(s.cfg.MaxConnections, listen.OpenFiles(), share)) }
	most = budget.DefaultPlaces()
	most[budget.Connections], most[budget.DaprConnections] = of(appFiles), of(daprFiles)
	most[budget.Replays] = min(most[budget.Replays], of(replayFiles))
	return most
}

// reserved are the places of a listener beside those of its clients: for connections of which it is not known yet whose they are.
// One more closes the one that has been idle for the longest time.
func reserved(most int) int { return max(most/8, 8) }

// bound is bind without TLS. Connections of clients that are not known make room for others.
func (s *Sidecar) bound(ctx context.Context, name, addr string, share int) (*listen.Evicting, error) {
	ln, most, err := s.open(ctx, name, addr, share)
	if err != nil {
		return nil, err
	}
	s.metrics.ConnectionsRefused(name, 0)
	reserve := reserved(most)
	places := listen.NewEvicting(ln, most+reserve, reserve)
	places.OnEvict = func() { s.metrics.ConnectionsRefused(name, 1) }
	return places, nil
}

// connectionRefused counts a connection that was refused since its identity, or all, have as many as they may.
func (s *Sidecar) connectionRefused(place budget.Place) {
	name := appListener
	if place == budget.DaprConnections {
		name = daprListener
	}
	s.metrics.ConnectionsRefused(name, 1)
}

// server makes the HTTP server of a listener.
func (s *Sidecar) server(ln net.Listener, h http.Handler) *httpapi.Server {
	guard := httpapi.Guard{AllowedOrigins: s.cfg.AllowedOrigins, Addr: ln.Addr()}
	return &httpapi.Server{Handler: guard.Handler(s.propagation.Handler(h)), Logger: s.cfg.Logger, DrainTimeout: s.cfg.DrainTimeout}
}

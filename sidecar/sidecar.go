// Package sidecar is one sidecar: New assembles its parts from a Config. Run owns everything that
// they start, and stops it in order. The package must not know flags, the environment or the
// process that it runs in.
package sidecar

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-bus/sluice/internal/access"
	"github.com/sluice-bus/sluice/internal/httpapi"
	"github.com/sluice-bus/sluice/internal/listen"
	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/admit"
	"github.com/sluice-bus/sluice/sidecar/internal/audit"
	"github.com/sluice-bus/sluice/sidecar/internal/budget"
	"github.com/sluice-bus/sluice/sidecar/internal/capture"
	"github.com/sluice-bus/sluice/sidecar/internal/control"
	"github.com/sluice-bus/sluice/sidecar/internal/daprapp"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/federation"
	"github.com/sluice-bus/sluice/sidecar/internal/gateway"
	"github.com/sluice-bus/sluice/sidecar/internal/group"
	"github.com/sluice-bus/sluice/sidecar/internal/outbox"
	"github.com/sluice-bus/sluice/sidecar/internal/policyfile"
	"github.com/sluice-bus/sluice/sidecar/internal/quota"
	"github.com/sluice-bus/sluice/sidecar/internal/retention"
	"github.com/sluice-bus/sluice/sidecar/internal/schedule"
	"github.com/sluice-bus/sluice/sidecar/internal/tail"
	"github.com/sluice-bus/sluice/sidecar/internal/telemetry"
	"github.com/sluice-bus/sluice/sidecar/internal/topics"
	"github.com/sluice-bus/sluice/sidecar/internal/tracing"
	"github.com/sluice-bus/sluice/sidecar/internal/writer"
)

// Sidecar is one sidecar, between New and the return of Run.
type Sidecar struct {
	cfg      Config
	instance string // names this life of the process

	app, replay, ops net.Listener
	access           *access.Access  // nil: every client may do everything
	peerKey          *access.PeerKey // nil without a control plane
	audit            *audit.Log      // nil: off
	auditFile        *os.File        // nil if audit writes to the log

	store     store
	metrics   *telemetry.Metrics
	tracing   *tracing.Tracing // nil: off
	policies  *policy.Current
	file      *policyfile.Source // nil if no policies file is followed
	control   *control.Control   // nil without a control plane, as is quota
	quota     *quota.Client
	tails     *tail.Tails
	memory    *budget.Budget // of all connections
	topics    *topics.Catalog
	writer    *writer.Writer
	publisher *admit.Publisher
	groups    *group.Manager
	dead      group.DeadStats
	gateway   *gateway.Gateway
	outboxes  []*outbox.Drainer
	captures  []*capture.Capture
	scheduler *schedule.Scheduler
	daprApp   *daprapp.App      // nil if no application gets events
	fleet     *federation.Fleet // nil where there are no other sidecars

	opsServer errgroup.Group // serves the ops listener
	endOps    context.CancelFunc

	assembled, serving, stopping atomic.Bool
	// abort ends the work of the groups if stopping takes too long.
	abort context.CancelFunc
}

// New opens the log, the policies and the listeners. The returned sidecar serves the ops listener
// and nothing else yet. The caller must call Run, which also closes it. An error about wrong
// settings is a *ConfigError.
func New(ctx context.Context, cfg Config) (*Sidecar, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s := &Sidecar{cfg: cfg, instance: uuid.NewString(), tails: tail.New(tail.DefaultBounds()), memory: budget.New(cfg.MaxBufferedBytes)}
	for _, open := range []func(context.Context) error{
		s.openAccess, s.openAudit, s.openPolicies, s.openTelemetry, s.startOps, s.openStore, s.openPeers, s.assemble,
		s.openOutboxes, s.openCaptures, s.openDaprApp, s.listen,
	} {
		if err := open(ctx); err != nil {
			s.release()
			return nil, err
		}
	}
	s.assembled.Store(true)
	return s, nil
}

// openAccess reads the tokens and their rights.
func (s *Sidecar) openAccess(context.Context) (err error) {
	if s.cfg.AuthConfig != "" {
		if s.access, err = access.Open(s.cfg.AuthConfig, access.Sidecar, s.cfg.Logger); err != nil {
			return &ConfigError{Err: fmt.Errorf("auth-config: %w", err)}
		}
	}
	if err := s.cfg.checkReach(s.access); err != nil {
		return &ConfigError{Err: err}
	}
	return nil
}

// openTelemetry makes the metrics, and tracing if spans are exported.
func (s *Sidecar) openTelemetry(context.Context) (err error) {
	s.tracing = tracing.New(tracing.Config{
		Tracer: s.cfg.Exports.Tracer(),
		Ratio:  func(topic string) float64 { return s.policyOf(topic).Tracing.SampleRatio },
	})
	s.metrics, err = telemetry.New(telemetry.Config{
		MaxTopics: s.cfg.MaxTopicLabels, Version: s.cfg.Version, NodeID: s.cfg.NodeID,
		Readers: s.cfg.Exports.MetricReaders(), About: s.cfg.Exports.Resource(),
	})
	return err
}

// listen binds the app listener and the replay listener.
func (s *Sidecar) listen(ctx context.Context) (err error) {
	if s.app, err = listen.On(ctx, s.cfg.Listen); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	if s.replay, err = listen.On(ctx, s.cfg.ReplayListen); err != nil {
		return fmt.Errorf("replay-listen: %w", err)
	}
	return nil
}

// openAudit opens the access log.
func (s *Sidecar) openAudit(context.Context) (err error) {
	to := s.cfg.Logger
	if s.cfg.AuditFile != "" {
		s.auditFile, err = os.OpenFile(s.cfg.AuditFile, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err != nil {
			return &ConfigError{Err: fmt.Errorf("audit-file: %w", err)}
		}
		to = audit.To(s.auditFile)
	}
	s.audit = audit.New(s.cfg.AuditTopics, to)
	return nil
}

// assemble connects the parts: publishes go gateway → admit → writer → spool, if there is one →
// log, deliveries log → group → gateway.
func (s *Sidecar) assemble(context.Context) error {
	groupCtx, abort := context.WithCancel(context.Background())
	s.abort = abort
	s.topics = topics.New(topics.Config{Way: s.store.way, Log: s.store.log, Policies: s.policies, Away: s.store.away, Most: s.cfg.MaxTopics, MostEach: shareOf(s.cfg.MaxTopics)})
	s.writer = writer.New(writer.Config{
		Log: s.topics, Tails: s.tails, Signal: s.store.signal, Observer: s.metrics.BatchAppended, Tracing: s.tracing, Bounds: writer.DefaultBounds(),
		MayVanish: func(topic string) bool { return s.policies.Load().Topic(topic).Durability.MayVanish() },
	})
	s.scheduler = schedule.New(schedule.Config{
		Log: s.store.log, Mine: s.store.slots, Released: s.released, CountEvery: s.store.countEvery, Most: s.cfg.MaxScheduled, Logger: s.cfg.Logger,
		Late: func(topic string, by time.Duration) { s.metrics.Topic(topic).Late(by) },
	})
	s.metrics.ObserveScheduled(s.scheduler.Counts)
	s.publisher = admit.New(admit.Config{
		Catalog: s.topics, Writer: s.writer, Policies: s.policies, Quota: s.shares(),
		Limits: s.cfg.limits(), Metrics: s.metrics, Tracing: s.tracing, Logger: s.cfg.Logger,
		Scheduler: s.scheduler,
	})
	s.metrics.ObserveTenants(s.publisher.Tenants)
	s.groups = group.NewManager(group.Config{
		Context:   groupCtx,
		Log:       s.groupLog(),
		MaxGroups: s.cfg.MaxGroups, MaxGroupsEach: shareOf(s.cfg.MaxGroups),
		Tails:       s.tails,
		Policy:      s.policyOf,
		DeadLetters: s.publisher,
		Metrics:     s.metrics,
		Tracing:     s.tracing,
		Roster:      s.store.roster,
		AckTimeout:  s.store.ackTimeout,
		AckLinger:   s.store.ackLinger,
		Moved:       s.store.moved,
		Logger:      s.cfg.Logger,
		Bounds:      group.DefaultBounds(),
		Memory:      s.memory,
	})
	bounds := gateway.DefaultBounds()
	bounds.SlowClientTimeout = s.cfg.SlowClientTimeout
	cfg := gateway.Config{
		Access: s.access, Publisher: s.publisher, Groups: s.groups, Log: s.store.log, Policies: s.policies,
		Metrics: s.metrics, Limits: s.cfg.limits(), Logger: s.cfg.Logger, Audit: s.audit, Bounds: bounds, NodeID: s.cfg.NodeID, Memory: s.memory,
		Topics: s.topics, Erased: s.erased, Lookup: s.store.source.Lookup, StoreID: s.store.id, Reread: s.reread,
	}
	if s.store.shared != nil {
		cfg.Spool = gatewaySpool{s.store.shared.spool, s.store.shared.log}
		s.metrics.ObserveGroups(s.store.shared.gauges.Get)
	} else {
		s.metrics.ObserveGroups(func() []telemetry.GroupStat {
			stats, _ := s.groups.Stats()
			return stats
		})
	}
	s.gateway = gateway.New(cfg)
	s.metrics.ObserveDead(s.dead.Get)
	s.metrics.ObservePolicies(func() []policy.InForce { return s.policies.Load().List() })
	s.metrics.ObserveSpool(s.store.waiting)
	s.metrics.ObserveAuthFailures(s.access.Failures)
	s.metrics.ObserveBuffered(s.memory.Used)
	s.metrics.ObserveDisk(s.disk)
	return nil
}

// Addresses are the addresses to which the listeners are bound.
func (s *Sidecar) Addresses() (app, replay, ops string) {
	return listen.Address(s.app), listen.Address(s.replay), listen.Address(s.ops)
}

// Held is how many bytes of the heap the garbage collector's headroom need not cover: memory that
// the sidecar keeps as long as it lives, and the memory of connections.
func (s *Sidecar) Held() int64 { return s.store.held() + s.memory.Used() }

// Run serves until ctx ends. Then it stops in order: it refuses new ops, answers those under way,
// closes connections, saves and releases groups, and closes the log. It calls ready once it serves.
// The error says why it could not serve, or what a stop did not complete.
func (s *Sidecar) Run(ctx context.Context, ready func() error) error {
	defer s.release()
	// The goroutines outlive ctx: stop ends them in order.
	lasting := context.WithoutCancel(ctx)
	helpersCtx, endHelpers := context.WithCancel(lasting)
	serversCtx, endServers := context.WithCancel(lasting)
	storeCtx, endStore := context.WithCancel(lasting)
	defer endHelpers()
	defer endServers()
	defer endStore()

	var ownership errgroup.Group // groups and the writer need it to the end
	ownership.Go(func() error { return s.store.roster.Run(storeCtx) })
	// ends if the store cannot be used, the spool, or an outbox, is another store's, or a capture cannot begin
	foreign, stopForeign := context.WithCancel(lasting)
	defer stopForeign()
	unlessForeign := func(ctx context.Context, run func(context.Context) error) func() error {
		return func() error {
			err := run(ctx)
			if err == nil {
				return nil
			}
			stopForeign()
			return &ConfigError{Err: err}
		}
	}
	if s.store.shared != nil {
		ownership.Go(unlessForeign(storeCtx, s.store.shared.spool.Run))
		ownership.Go(unlessForeign(storeCtx, s.store.shared.log.AwaitRefusal))
	}

	servers, failed := errgroup.WithContext(lasting)
	history := s.history()
	waited := make(chan struct{}) // closed when the policies are known, or the wait for them is over
	for _, srv := range []struct {
		name string
		ln   net.Listener
		http *httpapi.Server
	}{
		{"listen", s.app, s.server(s.app, s.gateway.Handler(), s.gateway.ConnContext)},
		{"replay-listen", s.replay, s.server(s.replay, s.tracing.Handler(history, "/replay", "/export"), nil)},
	} {
		servers.Go(func() error {
			if srv.name == "listen" {
				<-waited // connections wait meanwhile, so first publishes are limited
			}
			return srv.http.Serve(serversCtx, s.access.Listener(srv.name, s.bounded(srv.name, srv.ln)))
		})
	}
	servers.Go(func() error {
		defer context.AfterFunc(serversCtx, s.endOps)()
		return s.opsServer.Wait()
	})
	servers.Go(func() error {
		s.awaitPolicies(ctx)
		close(waited)
		if ctx.Err() != nil {
			return nil
		}
		s.serving.Store(true)
		return ready()
	})

	var helpers errgroup.Group
	sweeper := retention.Sweeper{Log: s.store.log, Mine: s.store.roster.Mine, Known: s.knowsPolicies, Policies: s.policies, Logger: s.cfg.Logger, Interval: s.cfg.RetentionInterval, Batch: 1000}
	helpers.Go(func() error { return sweeper.Run(helpersCtx) })
	helpers.Go(func() error { return s.scheduler.Run(helpersCtx) })
	helpers.Go(func() error { return s.followPolicies(helpersCtx) })
	helpers.Go(func() error { return s.access.Run(helpersCtx) })
	if s.control != nil {
		helpers.Go(func() error { return s.control.Run(helpersCtx) })
		helpers.Go(func() error { return s.quota.Run(helpersCtx) })
	}
	if s.file != nil {
		helpers.Go(func() error { return s.file.Run(helpersCtx) })
	}
	helpers.Go(func() error { return s.dead.Run(helpersCtx, s.groups) })
	helpers.Go(func() error { return s.groups.Expire(helpersCtx, s.cfg.GroupExpiry) })
	if s.store.shared != nil {
		helpers.Go(func() error { return s.store.shared.waker.Run(helpersCtx) })
		helpers.Go(func() error { return s.store.shared.erasures.run(helpersCtx, s.groups.Recheck, s.cfg.Logger) })
		helpers.Go(func() error { return s.store.shared.gauges.Run(helpersCtx, s.groups) })
	}
	for _, o := range s.outboxes {
		helpers.Go(unlessForeign(helpersCtx, o.Run))
	}
	for _, c := range s.captures {
		helpers.Go(unlessForeign(helpersCtx, c.Run))
	}
	if s.daprApp != nil {
		helpers.Go(func() error { return s.daprApp.Run(eventlog.MadeBy(helpersCtx, s.cfg.DaprAppIdentity)) })
	}

	select {
	case <-ctx.Done():
	case <-failed.Done():
	case <-foreign.Done():
	}
	s.cfg.Logger.Info("stopping", "deadline", s.cfg.DrainTimeout)
	endHelpers()
	err := s.stop(lasting, func() error {
		endServers()
		return servers.Wait()
	})
	endStore()
	err = errors.Join(err, helpers.Wait(), ownership.Wait())
	s.farewell()
	return err
}

// bounded admits only so many connections at a listener. With TLS a refused connection is closed
// without an answer.
func (s *Sidecar) bounded(name string, ln net.Listener) net.Listener {
	s.metrics.ConnectionsRefused(name, 0)
	clear := ln.Addr().Network() == "unix" || s.access.TLS() == nil
	return listen.NewBound(ln, s.cfg.MaxConnections, func(c net.Conn) {
		s.metrics.ConnectionsRefused(name, 1)
		if clear {
			httpapi.RefuseConn(c, &wire.Error{
				Code: wire.Overloaded, RetryAfter: time.Second,
				Msg: fmt.Sprintf("this listener has the %d connections that it may have: try again later", s.cfg.MaxConnections),
			})
		}
	})
}

// server makes the HTTP server of one listener.
func (s *Sidecar) server(ln net.Listener, h http.Handler, conn func(context.Context, net.Conn) context.Context) *httpapi.Server {
	guard := httpapi.Guard{AllowedOrigins: s.cfg.AllowedOrigins, Addr: ln.Addr()}
	return &httpapi.Server{Handler: guard.Handler(h), Logger: s.cfg.Logger, DrainTimeout: s.cfg.DrainTimeout, ConnContext: conn}
}

// stop makes a graceful stop in order, within DrainTimeout.
func (s *Sidecar) stop(ctx context.Context, endServers func() error) error {
	s.stopping.Store(true)
	ctx, cancel := context.WithTimeout(ctx, s.cfg.DrainTimeout)
	defer cancel()
	defer context.AfterFunc(ctx, s.abort)()

	s.gateway.Shutdown(ctx)    // ops under way are answered, WebSockets closed, events given back uncounted
	s.stopDaprApp(ctx)         // the application answers for its events
	serversErr := endServers() // HTTP requests under way finish
	groupsErr := s.groups.Stop(ctx)
	s.writer.Stop(ctx)
	s.abort() // ends further queries of groups' figures
	return errors.Join(serversErr, groupsErr)
}

// release closes everything that New opened.
func (s *Sidecar) release() {
	if s.endOps != nil {
		s.endOps()
		_ = s.opsServer.Wait() // Run has reported why it failed
	}
	for _, ln := range []net.Listener{s.app, s.replay, s.ops} {
		if ln != nil {
			ln.Close() // closing twice is harmless
		}
	}
	if s.abort != nil {
		s.abort()
	}
	if s.fleet != nil {
		s.fleet.Close()
	}
	if err := s.store.close(); err != nil {
		s.cfg.Logger.Error("closing the log", "error", err)
	}
	if s.auditFile != nil {
		if err := s.auditFile.Close(); err != nil {
			s.cfg.Logger.Error("closing the access log", "error", err)
		}
	}
	if s.control != nil {
		if err := s.control.Close(); err != nil {
			s.cfg.Logger.Warn("closing the connection to the control plane", "error", err)
		}
	}
	if s.metrics != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := s.metrics.Shutdown(ctx); err != nil {
			s.cfg.Logger.Warn("closing the metrics", "error", err)
		}
	}
}

// followPolicies tells the groups about every change. It watches for the next change before it
// tells them about the last one, so that it misses none.
func (s *Sidecar) followPolicies(ctx context.Context) error {
	for {
		_, changed := s.policies.Watch()
		s.groups.PoliciesChanged() // also of changes before the Watch
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}

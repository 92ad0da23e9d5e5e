// Package sidecar is one sidecar: New assembles its parts from a Config. Run owns everything that
// they start, and stops it in order.
package sidecar

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-bus/sluice/internal/access"
	"github.com/sluice-bus/sluice/internal/budget"
	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/internal/setting"
	"github.com/sluice-bus/sluice/sidecar/internal/admit"
	"github.com/sluice-bus/sluice/sidecar/internal/audit"
	"github.com/sluice-bus/sluice/sidecar/internal/capture"
	"github.com/sluice-bus/sluice/sidecar/internal/daprapp"
	"github.com/sluice-bus/sluice/sidecar/internal/daprgrpc"
	"github.com/sluice-bus/sluice/sidecar/internal/gateway"
	"github.com/sluice-bus/sluice/sidecar/internal/group"
	"github.com/sluice-bus/sluice/sidecar/internal/ops"
	"github.com/sluice-bus/sluice/sidecar/internal/outbox"
	"github.com/sluice-bus/sluice/sidecar/internal/push"
	"github.com/sluice-bus/sluice/sidecar/internal/replay"
	"github.com/sluice-bus/sluice/sidecar/internal/schedule"
	"github.com/sluice-bus/sluice/sidecar/internal/session"
	"github.com/sluice-bus/sluice/sidecar/internal/store"
	"github.com/sluice-bus/sluice/sidecar/internal/store/embedded"
	"github.com/sluice-bus/sluice/sidecar/internal/store/shared"
	"github.com/sluice-bus/sluice/sidecar/internal/tail"
	"github.com/sluice-bus/sluice/sidecar/internal/telemetry"
	"github.com/sluice-bus/sluice/sidecar/internal/topics"
	"github.com/sluice-bus/sluice/sidecar/internal/tracing"
	"github.com/sluice-bus/sluice/sidecar/internal/writer"
)

// Sidecar is one sidecar, between New and the return of Run.
type Sidecar struct {
	cfg    Config
	secret string // of this process, for the control plane

	access      *access.Access // nil: every client may do everything
	audit       *audit.Log     // nil: off
	policies    policies
	tracing     *tracing.Tracing
	propagation *tracing.Propagation
	metrics     *telemetry.Metrics
	ops         *ops.Server
	store       store.Store

	tails     *tail.Tails
	budget    *budget.Budget // of clients
	topics    *topics.Catalog
	writer    *writer.Writer
	publisher *admit.Publisher
	scheduler *schedule.Scheduler
	groups    *group.Manager
	dead      group.DeadStats
	gateway   *gateway.Gateway
	fleet     replay.Fleet // nil where there are no other sidecars
	outboxes  []*outbox.Drainer
	captures  []*capture.Capture
	push      *push.Push       // nil without --push
	daprApp   *daprapp.App     // nil if no application gets events
	daprAPI   *daprgrpc.Server // nil if it is not served

	listeners struct{ app, replay, ops, dapr net.Listener }
	addresses atomic.Pointer[map[string]string] // of the listeners, once all are bound
	opsServer errgroup.Group                    // serves the ops listener from the start
	endOps    context.CancelFunc

	abortGroups context.CancelFunc // ends the work of the groups if stopping takes too long
	closers     []closer           // of what is open, in that order
}

// New opens the log, the policies and the listeners. The returned sidecar serves the ops listener
// and nothing else yet. The caller must call Run, which also closes it. An error about wrong
// settings is a *ConfigError.
func New(ctx context.Context, cfg Config) (*Sidecar, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s := &Sidecar{cfg: cfg, secret: uuid.NewString(), tails: tail.New(tail.DefaultBounds())}
	for _, open := range []func(context.Context) error{
		s.openAccess, s.openAudit, s.openPolicies, s.openTelemetry, s.startOps, s.openStore, s.openPeers, s.assemble,
		s.openOutboxes, s.openCaptures, s.openPush, s.openDaprApp, s.openGateway, s.listen,
	} {
		if err := open(ctx); err != nil {
			s.close()
			return nil, err
		}
	}
	s.observe()
	s.ops.Assembled(ops.Parts{
		Version: cfg.Version, NodeID: cfg.NodeID, Store: s.store, Policies: s.policies.Current, Gateway: s.gateway, Writer: s.writer,
		Budget: s.budget, Outboxes: s.outboxes, Captures: s.captures, Push: s.push, Control: s.policies.control, Peers: s.peers,
	})
	return s, nil
}

// assemble connects the parts: publishes go gateway → admit → writer → spool, if there is one →
// log, deliveries log → group → gateway.
func (s *Sidecar) assemble(context.Context) error {
	cfg, st, notifier, timing := s.cfg, s.store, s.store.Notifier(), s.store.Timing()
	s.topics = topics.New(topics.Config{
		Entry: st.Entry(), Log: st.Log(), Policies: s.policies.Current, Away: st.Away, Most: cfg.MaxTopics, MostEach: shareOf(cfg.MaxTopics),
	})
	s.writer = writer.New(writer.Config{
		Log: s.topics, Together: timing.Together, Notifier: notifier, Observer: s.metrics.BatchAppended, Tracing: s.tracing,
		Bounds: writer.DefaultBounds(),
	})
	s.scheduler = schedule.New(schedule.Config{
		Log: st.Log(), Mine: func(slot int) bool { return st.Roster().Mine(schedule.Task(slot)) },
		Released: notifier.Heard, CountEvery: timing.CountEvery, Most: cfg.MaxScheduled,
		MostBytes: func(topic string) int64 { return s.policies.Current.Load().Topic(topic).Retention.MaxBytes }, Logger: cfg.Logger,
		Late: func(topic string, by time.Duration) { s.metrics.Topic(topic).Late(by) },
	})
	s.publisher = admit.New(admit.Config{
		Catalog: s.topics, Writer: s.writer, Policies: s.policies.Current, Quota: s.policies.shares, Scheduler: s.scheduler,
		Limits: cfg.limits(), Metrics: s.metrics, Tracing: s.tracing, Logger: cfg.Logger,
	})
	groupCtx, abort := context.WithCancel(context.Background())
	s.abortGroups = abort
	s.onClose("the groups", func() error { abort(); return nil })
	s.groups = group.NewManager(group.Config{
		Context: groupCtx, Log: topics.GroupLog{Log: st.Log(), Catalog: s.topics}, Tails: s.tails, Policy: s.policyOf, Roster: st.Roster(),
		DeadLetters: s.publisher, MaxGroups: cfg.MaxGroups, MaxGroupsEach: shareOf(cfg.MaxGroups), Moved: st.Moved,
		AckTimeout: timing.AckTimeout, AckLinger: timing.AckLinger, Reach: timing.Reach, Bounds: group.DefaultBounds(),
		Metrics: s.metrics, Tracing: s.tracing, Logger: cfg.Logger,
	})
	return nil
}

// madeFor is the identity that a topic was made for. Metrics are there before the topics are.
func (s *Sidecar) madeFor(topic string) string {
	if s.topics == nil {
		return ""
	}
	return s.topics.MadeFor(topic)
}

// openGateway makes what serves applications.
func (s *Sidecar) openGateway(context.Context) error {
	cfg, st, bounds := s.cfg, s.store, session.DefaultBounds()
	bounds.SlowClientTimeout = cfg.SlowClientTimeout
	s.gateway = gateway.New(gateway.Config{
		Access: s.access, Audit: s.audit, Publisher: s.publisher, Groups: s.groups, Topics: s.topics, Log: st.Log(), Spool: st.Spool(),
		Lookup: st.History().Lookup, Erased: st.Erased, StoreID: st.ID, Reread: s.reread, NodeID: cfg.NodeID, About: s.root(),
		Ready: func() bool { return s.ops.Ready() }, Policies: s.policies.Current, Limits: cfg.limits(), Bounds: bounds,
		Budget: s.budget, Metrics: s.metrics, Logger: cfg.Logger, DaprAppID: cfg.DaprAppID, ConnectionRefused: s.connectionRefused,
	})
	return nil
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
	limits := s.cfg.limits()
	most := int64(max(limits.FrameBytes, limits.BatchBytes))
	if s.access.Authenticates() && s.cfg.MaxBufferedBytes < 2*budget.SharesOfAll*most {
		return &ConfigError{Err: fmt.Errorf("max-buffered-bytes: %d is too little with --auth-config: the clients of one identity "+
			"may use a quarter of it, which has to be at least twice the largest frame or batch of --limits (%d bytes)",
			s.cfg.MaxBufferedBytes, most)}
	}
	s.budget = budget.New(budget.Bounds{
		Memory: s.cfg.MaxBufferedBytes, Places: s.places(), Identities: s.access.Authenticates(),
	})
	return nil
}

// openAudit opens the access log.
func (s *Sidecar) openAudit(context.Context) (err error) {
	if s.audit, err = audit.Open(s.cfg.AuditTopics, s.cfg.AuditFile, s.cfg.Logger); err != nil {
		return &ConfigError{Err: fmt.Errorf("audit-file: %w", err)}
	}
	s.onClose("the access log", s.audit.Close)
	return nil
}

// openTelemetry makes the metrics, and tracing if spans are exported.
func (s *Sidecar) openTelemetry(context.Context) (err error) {
	s.propagation = tracing.NewPropagation(s.cfg.Exports.Propagators())
	s.tracing = tracing.New(tracing.Config{
		Tracer: s.cfg.Exports.Tracer(), Propagation: s.propagation,
		Ratio: func(topic string) float64 { return s.policyOf(topic).Tracing.SampleRatio },
	})
	kind := "embedded"
	if setting.IsMongoDB(s.cfg.Store) {
		kind = "mongodb"
	}
	s.metrics, err = telemetry.New(telemetry.Config{
		MaxTopics: s.cfg.MaxTopicLabels, Version: s.cfg.Version, NodeID: s.cfg.NodeID, StoreKind: kind, Owner: s.madeFor,
		Readers: s.cfg.Exports.MetricReaders, About: s.cfg.Exports.Resource(),
	})
	if err != nil {
		return err
	}
	s.onClose("the metrics", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		return s.metrics.Shutdown(ctx)
	})
	return nil
}

// openStore opens the store that the settings name. On a full disk it waits for room.
func (s *Sidecar) openStore(ctx context.Context) (err error) {
	cfg := s.cfg
	if setting.IsMongoDB(cfg.Store) {
		s.store, err = shared.Open(ctx, shared.Config{
			URL: cfg.Store, Dir: cfg.DataDir, NodeID: cfg.NodeID, Lease: cfg.Lease, Timeout: cfg.StoreTimeout,
			SpoolMaxBytes: cfg.SpoolMaxBytes, LowWater: int64(cfg.DiskLowWater), Unread: cfg.unread(),
			Policies: s.policies.Current, Tails: s.tails, Metrics: s.metrics, Tracing: s.tracing, Logger: cfg.Logger,
		})
	} else {
		s.store, err = embedded.Open(ctx, embedded.Config{
			Dir: cfg.DataDir, InMemory: cfg.InMemory, Beside: []string{capture.PlacesFile}, NodeID: cfg.NodeID, LowWater: int64(cfg.DiskLowWater),
			Policies: s.policies.Current, Tails: s.tails, Logger: cfg.Logger,
		})
	}
	if err != nil {
		return err
	}
	s.onClose("the store", s.store.Close)
	return nil
}

// observe makes each scrape of the metrics ask the parts.
func (s *Sidecar) observe() {
	s.metrics.ObserveScheduled(s.scheduler.Counts)
	s.metrics.ObserveTenants(s.publisher.Tenants)
	s.metrics.ObserveGroups(func() []telemetry.GroupStat { return s.store.GroupStats(s.groups) })
	s.metrics.ObserveDead(s.dead.Get)
	s.metrics.ObservePolicies(func() []policy.InForce { return s.policies.Load().List() })
	s.metrics.ObserveStore(func() bool { return s.store.Status().Up() })
	s.metrics.ObserveSpool(func() telemetry.SpoolStat { return s.store.Status().Spool })
	s.metrics.ObserveDisk(func() telemetry.DiskStat { return s.store.Status().Disk })
	s.metrics.ObserveBuffered(s.budget.Used)
	s.metrics.ObserveAuthFailures(s.access.Failures)
	s.metrics.ObserveCaptures(s.captureStats)
}

// Addresses are the addresses to which the listeners are bound; dapr is "" without --dapr-grpc-listen.
func (s *Sidecar) Addresses() (app, replay, ops, dapr string) {
	all := *s.addresses.Load()
	return all["app"], all["replay"], all["ops"], all["dapr_grpc"]
}

// HeapBytes is how many bytes of the heap the garbage collector's headroom need not cover:
// memory that the sidecar keeps as long as it lives, and the memory of connections.
func (s *Sidecar) HeapBytes() int64 { return s.store.HeapBytes() + s.budget.Used() }

// closer closes something that New has opened.
type closer struct {
	what  string
	close func() error
}

func (s *Sidecar) onClose(what string, f func() error) {
	s.closers = append(s.closers, closer{what, f})
}

// close closes everything that New opened, the latest first.
func (s *Sidecar) close() {
	for i := len(s.closers) - 1; i >= 0; i-- {
		if err := s.closers[i].close(); err != nil {
			s.cfg.Logger.Warn("closing "+s.closers[i].what, "error", err)
		}
	}
}

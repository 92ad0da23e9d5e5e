package quota

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	rlqs "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sluice-bus/sluice/internal/pause"
	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/internal/policypb"
)

const (
	// lifetime is how long a share holds, counted from when the sidecar made the report that the
	// share answers.
	lifetime = 1500 * time.Millisecond
	// lapse is when a share has ended for the control plane: the two clocks may run at rates that
	// differ by 1 %.
	lapse = lifetime + lifetime/100
	// renewBelow is how much of its lifetime a share has left when it is renewed.
	renewBelow = lifetime * 2 / 3
	// roundEvery is the time between two rounds of a topic. unlessUrgent and perMember are the
	// least time between two when a sidecar waits: a round takes about 1 µs for each sidecar.
	roundEvery   = 100 * time.Millisecond
	unlessUrgent = 2 * time.Millisecond
	perMember    = 20 * time.Microsecond
	// forgetAfter is how long a topic that no sidecar reports is kept.
	forgetAfter = 10 * time.Second
	// maxTopics bounds the fleet-wide topics and tenants, maxMembers the sidecars of one of them:
	// reports of more are counted and get no share.
	maxTopics  = 20_000
	maxTenants = maxTopics / 2 // no tenant is added while there are so many topics and tenants
	maxMembers = 20_000
	// knownWithin is how long after a change of a policy sidecars may still report figures of the earlier one.
	knownWithin = 5 * time.Second
	// nameEvery is the least time between two lines about impossible reports.
	nameEvery = 10 * time.Second
)

// Sink receives what sidecars report. It is called often, from several goroutines at once, and must
// not block.
type Sink interface {
	// Usage reports how many events of a topic a sidecar let through and refused since its last
	// report.
	Usage(node, topic string, allowed, denied uint64, at time.Time)
	// Tenant reports a tenant's part of a topic's usage.
	Tenant(topic, tenant string, allowed, denied uint64, at time.Time)
	// Share reports how many events per second of a fleet-wide topic a sidecar may let through;
	// [NoShare]: it holds no share any more.
	Share(node, topic string, perSecond float64)
}

// NoShare is the share of a sidecar that has none.
const NoShare = -1

// Config is what a Server needs; Policies is required.
type Config struct {
	// Policies returns the limits of publishes to a topic, and whether they are for the whole
	// fleet.
	Policies func(topic string) (p policy.Publish, fleet bool)
	Usage    Sink // nil: none
	// Admit returns whether the caller of the stream with this context may use a node id and
	// instance; the error has a gRPC status. nil: every caller may.
	Admit func(ctx context.Context, nodeID, instance string) error
	// Fresh reports that a topic was not fleet-wide when this control plane started, so that none
	// of its burst has been used. nil: no topic is fresh.
	Fresh func(topic string) bool
	// Shared allows other control planes on the same store: nothing is handed out before the first
	// [Server.Merge].
	Shared bool
	Now    func() time.Time // nil: time.Now
	Logger *slog.Logger     // nil: none
}

// Server is the quota service. Its methods are safe for concurrent use.
type Server struct {
	rlqs.UnimplementedRateLimitQuotaServiceServer
	cfg   Config
	began time.Time
	epoch string        // tells this server's share numbers from another's
	last  atomic.Uint64 // share number
	wake  pause.Wake    // a topic's round is due sooner than planned
	peers *peers

	impossible atomic.Int64 // reports of more than a policy allows
	named      atomic.Int64 // when one was logged, in nanoseconds since began

	mu     sync.RWMutex
	topics map[string]*topic // the fleet-wide ones
}

// New makes a Server. Shares are handed out while Run runs, after a grace of one lifetime.
func New(cfg Config) *Server {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Server{
		cfg: cfg, began: cfg.Now(), epoch: rand.Text()[:10] + "-",
		wake: pause.NewWake(), peers: newPeers(cfg.Now()), topics: map[string]*topic{},
	}
}

// Register adds the service to a gRPC server.
func (s *Server) Register(r grpc.ServiceRegistrar) {
	rlqs.RegisterRateLimitQuotaServiceServer(r, s)
}

// Run divides rates until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	for {
		next := s.rounds(s.cfg.Now())
		if !pause.Unless(ctx, next, s.wake) {
			return nil
		}
	}
}

// rounds divides the rates of the topics that are due, and returns how long to wait until the next
// are.
func (s *Server) rounds(now time.Time) time.Duration {
	s.mu.RLock()
	due := make([]*topic, 0, len(s.topics))
	for _, t := range s.topics {
		due = append(due, t)
	}
	s.mu.RUnlock()
	next := roundEvery
	for _, t := range due {
		wait, unused := s.round(t, now)
		if unused {
			s.forget(t, now)
		}
		next = min(next, wait)
	}
	return max(next, unlessUrgent)
}

func (s *Server) forget(t *topic, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.unused(now) {
		t.gone = true
		delete(s.topics, t.name)
	}
}

// StreamRateLimitQuotas serves one sidecar.
func (s *Server) StreamRateLimitQuotas(link grpc.BidiStreamingServer[rlqs.RateLimitQuotaUsageReports, rlqs.RateLimitQuotaResponse]) error {
	st, err := newStream(link.Context())
	if err != nil {
		return err
	}
	if s.cfg.Admit != nil {
		if err := s.cfg.Admit(link.Context(), st.node, st.instance); err != nil {
			return err
		}
	}
	ctx, stop := context.WithCancel(link.Context())
	var sender sync.WaitGroup
	sender.Go(func() { st.send(ctx, link.Send) })
	defer sender.Wait()
	defer stop()
	for {
		report, err := link.Recv()
		if err != nil {
			left := errors.Is(err, io.EOF)
			s.detach(st, left)
			if left {
				return nil
			}
			return err
		}
		if err := s.report(st, report); err != nil {
			s.cfg.Logger.Warn("a sidecar's usage report is refused", "node", st.node, "error", err)
			s.detach(st, false)
			return status.Error(codes.InvalidArgument, err.Error())
		}
	}
}

// newStream reads the sidecar's identity from the metadata of its call.
func newStream(ctx context.Context) (*stream, error) {
	id, err := policypb.StreamValues(ctx, policypb.StreamNodeID, policypb.StreamInstanceSecret)
	if err != nil {
		return nil, err
	}
	return &stream{
		node: id[0], instance: policypb.PublicID(id[1]), ready: pause.NewWake(), waiting: map[string]*answer{}, topics: map[string]bool{},
	}, nil
}

// report records one message. After an error, which describes the fault, nothing of the message has
// counted.
func (s *Server) report(st *stream, message *rlqs.RateLimitQuotaUsageReports) error {
	now := s.cfg.Now()
	usages, err := readReport(message)
	if err != nil {
		return err
	}
	var ofTenants map[string]usage // by topic, added up
	for i := range usages {
		u := &usages[i]
		if u.limit() {
			s.name(st, u, now)
		}
		s.share(st, u, now) // what it bounds is counted so
		switch {
		case s.cfg.Usage == nil || u.allowed+u.denied == 0:
		case u.tenant == "":
			s.cfg.Usage.Usage(st.node, u.topic, u.allowed, u.denied, now)
		default:
			if ofTenants == nil {
				ofTenants = map[string]usage{}
			}
			sum := ofTenants[u.topic]
			sum.allowed, sum.denied = sum.allowed+u.allowed, sum.denied+u.denied
			ofTenants[u.topic] = sum
			s.cfg.Usage.Tenant(u.topic, u.tenant, u.allowed, u.denied, now)
		}
	}
	for topic, sum := range ofTenants {
		s.cfg.Usage.Usage(st.node, topic, sum.allowed, sum.denied, now)
	}
	return nil
}

// share adds the usage to the topic's division, if the topic is fleet-wide.
func (s *Server) share(st *stream, u *usage, now time.Time) {
	taken := false
	name := policypb.QuotaName(u.topic, u.tenant)
	if p, fleet := s.policy(name); fleet && p.Rate > 0 {
		taken = s.divided(st, name, u, p, now)
	}
	if !taken && u.ask > 0 {
		st.tell(name, &answer{report: u.report, abandon: true})
	}
}

// name counts a report of more than the policy allows, and logs who has sent it.
func (s *Server) name(st *stream, u *usage, now time.Time) {
	s.impossible.Add(1)
	last, at := s.named.Load(), int64(now.Sub(s.began))
	if (last == 0 || at-last >= int64(nameEvery)) && s.named.CompareAndSwap(last, at) {
		s.cfg.Logger.Warn("a sidecar reports that it uses more than the policy allows; it counts as one share",
			"node", st.node, "topic", u.topic, "rate", u.rate, "burst", u.capacity, "allowed", u.allowed, "denied", u.denied)
	}
}

// Impossible counts the reports of more than a policy allows.
func (s *Server) Impossible() int64 { return s.impossible.Load() }

// policy returns the limits of a topic or tenant. The topic of a tenant may have stopped giving
// each tenant its own rate.
func (s *Server) policy(name string) (p policy.Publish, fleet bool) {
	topic, tenant := policypb.QuotaParts(name)
	p, fleet = s.cfg.Policies(topic)
	return p, fleet && (tenant == "" || p.Per != "")
}

// divided adds the usage to the division of that name. It returns false where there is no room for
// another one.
func (s *Server) divided(st *stream, name string, u *usage, p policy.Publish, now time.Time) bool {
	for {
		t := s.topic(name, now)
		if t == nil {
			return false
		}
		t.mu.Lock()
		if t.gone {
			t.mu.Unlock()
			continue
		}
		st.topics[name] = true
		if t.bound(st, u, p, now) {
			s.name(st, u, now)
		}
		t.report(st, u, s.number(u.share), now)
		taken, urgent := t.members[st.id()] != nil, t.urgent
		t.mu.Unlock()
		if urgent {
			s.wake.Set()
		}
		return taken
	}
}

func (s *Server) topic(name string, now time.Time) *topic {
	s.mu.RLock()
	t := s.topics[name]
	s.mu.RUnlock()
	if t != nil {
		return t
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	most := maxTopics
	if _, tenant := policypb.QuotaParts(name); tenant != "" {
		most = maxTenants
	}
	if t := s.topics[name]; t != nil || len(s.topics) >= most {
		return t
	}
	t = &topic{name: name, tenant: most == maxTenants, server: s, members: map[memberID]*member{}, at: s.began.Add(lapse), used: now,
		ended: map[string]float64{}}
	s.topics[name] = t
	return t
}

// detach records that a sidecar's stream has ended: left is true if the sidecar stopped in order
// and holds nothing any more, else its shares act until they lapse.
func (s *Server) detach(st *stream, left bool) {
	for name := range st.topics {
		s.mu.RLock()
		t := s.topics[name]
		s.mu.RUnlock()
		if t != nil {
			t.detach(st, left, s.cfg.Now())
		}
	}
	s.wake.Set()
}

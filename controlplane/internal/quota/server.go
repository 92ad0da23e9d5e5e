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
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/sluice-bus/sluice/controlplane/policypb"
	"github.com/sluice-bus/sluice/internal/pause"
	"github.com/sluice-bus/sluice/internal/policy"
)

const (
	// lifetime is how long a share holds, counted from when the sidecar made
	// the report that the share answers.
	lifetime = 1500 * time.Millisecond
	// lapse is when the control plane takes a share for ended: the two clocks
	// may run at rates that differ by one in a hundred.
	lapse = lifetime + lifetime/100
	// renewBelow is how much of its lifetime a share has left when it is renewed.
	renewBelow = lifetime * 2 / 3
	// roundEvery is the time between two divisions of a topic's rate,
	// unlessUrgent and perMember the least time between two when somebody waits:
	// a round takes about 1 µs for each sidecar.
	roundEvery   = 100 * time.Millisecond
	unlessUrgent = 2 * time.Millisecond
	perMember    = 20 * time.Microsecond
	// forgetAfter is how long a topic is kept that nobody reports.
	forgetAfter = 10 * time.Second
	// maxTopics is how many fleet-wide topics there can be, maxMembers how many
	// sidecars of one: reports of more are counted and get no share.
	maxTopics  = 20_000
	maxTenants = maxTopics / 2 // more of them are not taken while there are so many topics and tenants
	maxMembers = 20_000
)

// Sink is told what sidecars report. It is called often, from several
// goroutines at once, and must not block.
type Sink interface {
	// Usage says what a sidecar let through and refused of a topic since it
	// last said so.
	Usage(node, topic string, allowed, denied uint64, at time.Time)
	// Share says what a sidecar may take of a fleet-wide topic per second;
	// [NoShare]: it holds none any more.
	Share(node, topic string, perSecond float64)
}

// NoShare is the share of a sidecar that has none.
const NoShare = -1

// Config is what a Server needs; Policies is required.
type Config struct {
	// Policies says how publishes to a topic are limited, and whether that is
	// for the whole fleet.
	Policies func(topic string) (p policy.Publish, fleet bool)
	Usage    Sink // nil: nobody is told
	// Admit says whether the caller of a stream, whose context it is, may go by a node
	// id, as that life of its process; the error has a status. nil: everybody may.
	Admit func(ctx context.Context, nodeID, instance string) error
	// Fresh says that a topic was not fleet-wide when this control plane began:
	// none of its burst can have been used before. nil: of any it may have been.
	Fresh func(topic string) bool
	// Shared says that there can be other control planes: nothing is handed
	// out before the first [Server.Merge].
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
	kick  pause.Wake    // a topic's round is due earlier than planned
	peers *peers

	mu     sync.RWMutex
	topics map[string]*topic // the fleet-wide ones
}

// New makes a Server. Shares are handed out while Run runs, after a grace of
// one lifetime.
func New(cfg Config) *Server {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Server{
		cfg: cfg, began: cfg.Now(), epoch: rand.Text()[:10] + "-",
		kick: pause.NewWake(), peers: newPeers(cfg.Now()), topics: map[string]*topic{},
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
		if !pause.Unless(ctx, next, s.kick) {
			return nil
		}
	}
}

// rounds divides the rates of the topics that are due, and says when to come
// again.
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

// urge has the rounds looked at soon.
func (s *Server) urge() {
	s.kick.Set()
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

// newStream knows a sidecar by the metadata of its call.
func newStream(ctx context.Context) (*stream, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	st := &stream{
		node: first(md, policypb.QuotaNodeID), instance: first(md, policypb.QuotaInstance),
		ready: pause.NewWake(), waiting: map[string]*answer{}, topics: map[string]bool{},
	}
	for key, v := range map[string]string{policypb.QuotaNodeID: st.node, policypb.QuotaInstance: st.instance} {
		if v == "" || len(v) > maxIdentity {
			return nil, status.Errorf(codes.InvalidArgument, "metadata %s has to be of 1 to %d bytes", key, maxIdentity)
		}
	}
	return st, nil
}

func first(md metadata.MD, key string) string {
	if v := md.Get(key); len(v) > 0 {
		return v[0]
	}
	return ""
}

// report takes in one message. The error says what is wrong with it; nothing
// of such a message has counted.
func (s *Server) report(st *stream, message *rlqs.RateLimitQuotaUsageReports) error {
	now := s.cfg.Now()
	usages, err := readReport(message)
	if err != nil {
		return err
	}
	var ofTenants map[string]usage // by topic, added up
	for i := range usages {
		u := &usages[i]
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
		}
		s.share(st, u, now)
	}
	for topic, sum := range ofTenants {
		s.cfg.Usage.Usage(st.node, topic, sum.allowed, sum.denied, now)
	}
	return nil
}

// share has the topic's division know of the usage, where the topic is
// fleet-wide.
func (s *Server) share(st *stream, u *usage, now time.Time) {
	taken := false
	name := policypb.QuotaName(u.topic, u.tenant)
	if p, fleet := s.policy(name); fleet && p.Rate > 0 {
		taken = s.divided(st, name, u, now)
	}
	if !taken && u.ask > 0 {
		st.tell(name, &answer{report: u.report, abandon: true})
	}
}

// policy says how publishes are limited to a topic, or of a tenant of it: whose
// topic may have stopped to give each one its own rate.
func (s *Server) policy(name string) (p policy.Publish, fleet bool) {
	topic, tenant := policypb.QuotaParts(name)
	p, fleet = s.cfg.Policies(topic)
	return p, fleet && (tenant == "" || p.Per != "")
}

// divided has the division of that name know of the usage. It reports false where
// there is no room for it.
func (s *Server) divided(st *stream, name string, u *usage, now time.Time) bool {
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
		t.report(st, u, s.number(u.share), now)
		taken, urgent := t.members[st.id()] != nil, t.urgent
		t.mu.Unlock()
		if urgent {
			s.urge()
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
	t = &topic{name: name, tenant: most == maxTenants, server: s, members: map[memberID]*member{}, at: s.began.Add(lapse), used: now}
	s.topics[name] = t
	return t
}

// detach notes that a sidecar's stream has ended: in order (it holds nothing
// any more), or not (its shares act until they lapse).
func (s *Server) detach(st *stream, left bool) {
	for name := range st.topics {
		s.mu.RLock()
		t := s.topics[name]
		s.mu.RUnlock()
		if t != nil {
			t.detach(st, left, s.cfg.Now())
		}
	}
	s.urge()
}

// Package quota is the sidecar's side of fleet-wide rates: it counts accepted and refused
// publishes, reports them to the control plane, and sets the buckets of fleet-wide topics to the
// sidecar's shares.
//
// # The states of a topic
//
// The control plane's package quota describes the bound for all sidecars together, and the
// messages. A fleet-wide topic has one of these states:
//
//   - a share: the bucket fills at the share's rate. A share ends with its lifetime, which this
//     process's clock counts from the report that the share answers.
//   - asking: the bucket does not fill. A publish that finds too few tokens asks the control plane
//     for them and waits for the answer, at most [AwaitShare]. After an answer without tokens the
//     topic asks again 50 ms to 200 ms later, and publishes in between are refused.
//   - none: there were no publishes lately. The next publish asks.
//   - the fallback: rate ÷ known sidecars, with burst ÷ known as burst (at least 1), from at most
//     the remaining tokens. It begins when a share ends without a new one, when a question is not
//     answered in time, at once if there is no connection, or when the control plane says so. It
//     ends with the next share, which starts without the tokens that the fallback saved up. A topic
//     that had none begins its fallback with one token. All fallbacks of a topic use the same
//     bucket, however often it falls back.
//
// A topic has one bucket in all states, so that it keeps its place in the lock order of
// limit.TakeAll.
package quota

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/sluice-bus/sluice/internal/pause"
	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/internal/policypb"
	"github.com/sluice-bus/sluice/sidecar/internal/limit"
)

const (
	// AwaitShare is how long a publish waits for the control plane's answer if this sidecar has no
	// tokens of the topic.
	AwaitShare = 500 * time.Millisecond
	// reportEvery is the interval of the reports of fleet-wide topics, countEvery that of the
	// others.
	reportEvery = 200 * time.Millisecond
	countEvery  = time.Second
	// askEvery is the least interval of a topic's reports that ask for tokens, if the last one got
	// some.
	askEvery = 50 * time.Millisecond
	// rememberMissed is how long a publish that lacked tokens is expected to come again.
	rememberMissed = 2 * time.Second
	// idleAfter is when a topic counts as unused, and forgetShare when its share is removed.
	idleAfter   = time.Second
	forgetShare = time.Minute
)

// Config is what a Client needs.
type Config struct {
	Conn           grpc.ClientConnInterface // to the control plane
	NodeID         string
	InstanceSecret string       // of this process
	Known          func() int   // the number of known sidecars; nil: 1
	Logger         *slog.Logger // nil: none
}

// Client is the sidecar's part of the quota service. Its methods are safe for concurrent use.
type Client struct {
	cfg       Config
	connected atomic.Bool
	hurried   atomic.Bool // a share has to report soon
	kick      pause.Wake  // a report is due now
	counters  counters    // of topics
	tenants   counters    // of those without shares

	shares sync.Map // by policypb.QuotaName, of *share
	starts sync.Mutex
	// Guarded by starts: the numbers of shares of topics, and of tenants.
	topicShares, tenantShares int

	// Of the goroutine of Run.
	reports uint64    // the number of the last one
	sent    []sending // the latest reports, ascending
}

// sending is a report's number and time.
type sending struct {
	number uint64
	at     time.Time
}

// New makes a Client. It counts at once, and gets shares while Run runs.
func New(cfg Config) *Client {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Known == nil {
		cfg.Known = func() int { return 1 }
	}
	c := &Client{cfg: cfg, kick: pause.NewWake()}
	c.counters.most, c.tenants.most = maxTopics, maxTenants
	c.counters.since, c.tenants.since = time.Now(), time.Now()
	return c
}

func (c *Client) sidecars() float64 { return float64(max(1, c.cfg.Known())) }

// Bucket returns this sidecar's bucket of a fleet-wide topic, set to its share, for a publish of n
// events. If the topic has to ask for tokens, Bucket asks for n and waits for the answer, at most
// [AwaitShare] or until ctx ends; then the topic uses its fallback.
func (c *Client) Bucket(ctx context.Context, topic string, n int, p policy.Publish, now time.Time) *limit.Bucket {
	b, q := c.ask(topic, n, p, now)
	if q.answers != nil {
		c.urge()
		q.await(ctx, time.Now().Add(AwaitShare))
	}
	return b
}

// Tenants is Bucket for tenants of a topic: it sets the buckets of the charges, one for each
// tenant. It asks for all of them before it waits.
func (c *Client) Tenants(ctx context.Context, topic string, tenants []string, charges []limit.Charge, p policy.Publish, now time.Time) {
	var asked []question
	for i, tenant := range tenants {
		b, q := c.ask(policypb.QuotaName(topic, tenant), charges[i].N, p, now)
		if charges[i].Bucket = b; q.answers != nil {
			asked = append(asked, q)
		}
	}
	if len(asked) == 0 {
		return
	}
	c.urge()
	until := time.Now().Add(AwaitShare)
	for _, q := range asked {
		q.await(ctx, until)
	}
}

// question is a question that a publish waits for; nil answers: there is none.
type question struct {
	share   *share
	answers <-chan struct{}
}

// ask returns the bucket of that name, and the question that a publish of n events has to wait for.
func (c *Client) ask(name string, n int, p policy.Publish, now time.Time) (*limit.Bucket, question) {
	if p.Rate <= 0 {
		return limit.NewBucket(limit.Rate{}, now), question{}
	}
	if later := time.Now(); later.After(now) {
		now = later // the caller may have waited for another topic since
	}
	s := c.share(name, p, now)
	if s == nil { // over maxFleetTopics or maxFleetTenants
		return limit.NewEmptyBucket(limit.Rate{PerSecond: limit.Still, Most: p.Burst, Pace: p.Rate}, now), question{}
	}
	return s.bucket, question{s, s.use(n, p, now)}
}

func (q question) await(ctx context.Context, until time.Time) {
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-q.answers:
	case <-ctx.Done():
	case <-timer.C:
		q.share.unanswered(q.answers, time.Now())
	}
}

func (c *Client) share(name string, p policy.Publish, now time.Time) *share {
	if v, ok := c.shares.Load(name); ok {
		return v.(*share)
	}
	c.starts.Lock()
	defer c.starts.Unlock()
	if v, ok := c.shares.Load(name); ok {
		return v.(*share)
	}
	s := c.start(name, p, now)
	n, most := c.count(s)
	if *n >= most {
		return nil
	}
	*n++
	c.shares.Store(name, s)
	return s
}

// count returns the counter of shares like s, and its maximum. The caller holds starts.
func (c *Client) count(s *share) (n *int, most int) {
	if s.tenant == "" {
		return &c.topicShares, maxFleetTopics
	}
	return &c.tenantShares, maxFleetTenants
}

func (c *Client) forget(s *share) {
	c.starts.Lock()
	defer c.starts.Unlock()
	if c.shares.CompareAndDelete(s.name(), s) {
		n, _ := c.count(s)
		*n--
	}
}

// urge reports now, or with the next tick if a topic's last report is too recent.
func (c *Client) urge() {
	c.hurried.Store(true)
	c.kick.Set()
}

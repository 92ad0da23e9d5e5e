// Package quota is the sidecar's side of fleet-wide rates: it counts what
// became of publishes, reports that to the control plane, and keeps the buckets
// of fleet-wide topics tuned to the shares that it gets. It must not know how
// rates are divided, nor what a publish is.
//
// # What a topic goes by
//
// The bound for all sidecars together, and the messages, are in the control
// plane's package quota. Here a fleet-wide topic goes by one of these:
//
//   - a share: the bucket fills at the share's rate. It holds until its
//     lifetime is over, counted by this process's own clock from when the report
//     was made that the share answers.
//   - tokens that are asked for: the bucket does not fill. A publish that finds
//     too few asks for them and waits for the answer, at most [AwaitShare].
//     After an answer that brought nothing the topic's next question comes 50 ms
//     to 200 ms later, and a publish in between is refused.
//   - nothing: nobody has published lately. The next publish asks.
//   - the fallback: rate ÷ known sidecars, with burst ÷ known as burst (at least
//     1), from at most the tokens that there were. It begins when a share ends
//     without a new one, when a question is not answered in time, at once where
//     there is no connection to ask over, or when the control plane says so; it
//     ends with the next share, which starts without what the fallback saved up.
//     A topic that held nothing begins by it with one token. However often a
//     topic falls back, all that passes by its fallback keeps to that bucket.
//
// All of that happens to the one bucket that a topic has, so that it keeps its
// place in the order of locks of limit.TakeAll.
package quota

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/sluice-bus/sluice/controlplane/policypb"
	"github.com/sluice-bus/sluice/internal/pause"
	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sidecar/internal/limit"
)

const (
	// AwaitShare is how long a publish waits for the control plane's answer
	// where this sidecar holds nothing of the topic.
	AwaitShare = 500 * time.Millisecond
	// reportEvery is the time between two reports of fleet-wide topics,
	// countEvery of the others.
	reportEvery = 200 * time.Millisecond
	countEvery  = time.Second
	// askEvery is the least time between two reports of a topic for want of
	// tokens, of which the first brought something.
	askEvery = 50 * time.Millisecond
	// rememberMissed is how long a publish that lacked tokens is taken to come
	// again.
	rememberMissed = 2 * time.Second
	// idleAfter is when a topic counts as unused, forgetShare when what is
	// known of it is dropped.
	idleAfter   = time.Second
	forgetShare = time.Minute
)

// Config is what a Client needs.
type Config struct {
	Conn     grpc.ClientConnInterface // to the control plane
	NodeID   string
	Instance string       // unlike that of any other process
	Known    func() int   // how many sidecars there are as far as is known; nil: 1
	Logger   *slog.Logger // nil: none
}

// Client is the sidecar's part of the quota service. Its methods are safe for
// concurrent use.
type Client struct {
	cfg       Config
	connected atomic.Bool
	hurried   atomic.Bool // a share has something to report soon
	kick      pause.Wake  // and could do so now
	counters  counters

	shares sync.Map // by policypb.QuotaName, of *share
	starts sync.Mutex
	// Guarded by starts: how many shares there are of topics, and of tenants.
	topics, tenants int

	// Of the goroutine of Run.
	reports uint64    // the number of the last one
	sent    []sending // the latest reports, ascending
}

// sending is when a report was made.
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
	c.counters.since = time.Now()
	return c
}

func (c *Client) sidecars() float64 { return float64(max(1, c.cfg.Known())) }

// Bucket returns this sidecar's bucket of a fleet-wide topic, tuned to its
// share, for a publish of n events. Where tokens have to be asked for, so many
// are, and it waits for the answer, at most [AwaitShare] or until ctx ends; then
// the topic goes by its fallback.
func (c *Client) Bucket(ctx context.Context, topic string, n int, p policy.Publish, now time.Time) *limit.Bucket {
	b, q := c.ask(topic, n, p, now)
	if q.answers != nil {
		c.urge()
		q.await(ctx, time.Now().Add(AwaitShare))
	}
	return b
}

// Tenants is Bucket for tenants of a topic: it sets the buckets of the charges, of
// which there is one for each. All of them are asked for before it waits.
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

// question is the one that a publish waits for, if answers is not nil.
type question struct {
	share   *share
	answers <-chan struct{}
}

// ask returns the bucket of that name, and what a publish of n events has to wait
// for.
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

// count is how many shares there are like s, and how many there may be. It
// requires starts.
func (c *Client) count(s *share) (n *int, most int) {
	if s.tenant == "" {
		return &c.topics, maxFleetTopics
	}
	return &c.tenants, maxFleetTenants
}

func (c *Client) forget(s *share) {
	c.starts.Lock()
	defer c.starts.Unlock()
	if c.shares.CompareAndDelete(s.name(), s) {
		n, _ := c.count(s)
		*n--
	}
}

// urge has something reported: now, or where a topic's last report is too
// young, with the next tick.
func (c *Client) urge() {
	c.hurried.Store(true)
	c.kick.Set()
}

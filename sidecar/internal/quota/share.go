package quota

import (
	"math"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/internal/policypb"
	"github.com/sluice-bus/sluice/sidecar/internal/limit"
)

// state is the state of a topic, as in the package's documentation.
type state int

const (
	none     state = iota // the next publish asks
	shared                // there is a share of the rate
	asking                // publishes ask for tokens
	fallback              // rate ÷ known sidecars
)

// share is this sidecar's part of one fleet-wide topic, or of a tenant of one. All of its changes
// go through bucket, which is made once.
type share struct {
	topic  string
	tenant string  // "": the topic's own
	own    counter // of a tenant
	client *Client
	bucket *limit.Bucket
	// central and hurry are for Count: whether consumption has to be reported soon, and whether a
	// report is requested.
	central atomic.Bool
	hurry   atomic.Bool

	mu     sync.Mutex
	policy policy.Publish
	state  state
	number string // of the share; "": none
	rate   float64
	burst  int
	ends   time.Time
	// answers is closed once the question is answered; nil: there is no question.
	answers chan struct{}
	asks    uint64 // the report with the question; 0: it is not sent yet
	largest int    // the largest publish that asks
	waiting int    // tokens that all publishes that ask want
	askedAt time.Time
	dry     bool // the last answer had no tokens
	// gap is the least interval of reports that ask for tokens: it doubles, up to reportEvery, with
	// each report that gets none.
	gap      time.Duration
	back     float64 // tokens that the change to number removed
	ack      bool    // number has to be acknowledged at once
	missed   int     // the largest publish that lacked tokens, missedAt
	missedAt time.Time
	told     bool // missed is in a report
	usedAt   time.Time
	// spare is the number of tokens at spareAt in the bucket of all fallbacks. A fallback begins
	// with at most these tokens.
	spare    float64
	spareAt  time.Time
	reported time.Time
}

func (s *share) name() string { return policypb.QuotaName(s.topic, s.tenant) }

// start makes the share of that name, without tokens.
func (c *Client) start(name string, p policy.Publish, now time.Time) *share {
	topic, tenant := policypb.QuotaParts(name)
	return &share{
		spare: math.Inf(1), spareAt: now, // it has never been used
		topic: topic, tenant: tenant, client: c, policy: p, usedAt: now, reported: now, gap: askEvery,
		bucket: limit.NewEmptyBucket(limit.Rate{PerSecond: limit.Still, Most: p.Burst, Pace: p.Rate}, now),
	}
}

// use records a publish of n events (0: unknown) and returns the channel that it has to wait for;
// nil: none.
func (s *share) use(n int, p policy.Publish, now time.Time) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.usedAt = now
	s.expire(now)
	changed := p.Rate != s.policy.Rate || p.Burst != s.policy.Burst
	s.policy = p
	if s.state == fallback { // the number of known sidecars may have changed
		perSecond, burst := s.alone()
		changed = changed || perSecond != s.rate || int(burst) != s.burst
	}
	if changed {
		s.retune(0, now)
	}
	if n == 0 && s.state != shared {
		s.note(now)
		n = s.need(now)
	}
	switch s.state {
	case none:
	case asking:
		if n = min(n, p.Burst); s.bucket.Tokens(now) >= float64(n) {
			return nil
		}
	default:
		return nil
	}
	if s.answers == nil {
		if s.dry && now.Sub(s.askedAt) < s.between() && s.state != none {
			return nil // the publish is refused, as an answer so soon after the last would do
		}
		if !s.client.connected.Load() {
			s.fallBack(now)
			return nil
		}
		s.answers, s.asks, s.askedAt = make(chan struct{}), 0, now
		s.largest, s.waiting = 0, 0
	}
	if s.asks == 0 { // a sent question cannot be changed
		s.largest, s.waiting = max(s.largest, n), s.waiting+n
	}
	return s.answers
}

// between is the least interval of questions: a tenth of the time in which a token is expected, so
// that few tokens wait for a question.
func (s *share) between() time.Duration {
	return min(max(time.Duration(float64(time.Second)/(10*max(s.rate, 0.1))), askEvery), reportEvery)
}

// need estimates the tokens of a publish.
func (s *share) need(now time.Time) int {
	if s.missed > 0 && now.Sub(s.missedAt) < rememberMissed {
		return s.missed
	}
	return 1
}

// note records the largest publish that the bucket has refused.
func (s *share) note(now time.Time) {
	if n := s.bucket.Missed(); n > 0 {
		if n >= s.missed || now.Sub(s.missedAt) >= rememberMissed {
			s.missed = n
		}
		s.missedAt, s.told = now, false
	}
}

// unanswered ends a question without an answer: the topic falls back.
func (s *share) unanswered(answers <-chan struct{}, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.answers == nil || s.answers != answers && answers != nil {
		return
	}
	s.release()
	s.fallBack(now)
}

func (s *share) release() {
	if s.answers != nil {
		close(s.answers)
		s.answers = nil
	}
}

// expire ends a share whose time is over, as of that time.
func (s *share) expire(now time.Time) {
	if s.number == "" || now.Before(s.ends) {
		return
	}
	ended := s.ends
	was := s.state
	s.number, s.back, s.ack = "", 0, false
	if was == shared {
		s.fallBack(ended)
		return
	}
	s.state, s.rate, s.burst = none, 0, 0
	s.retune(0, ended)
}

// alone returns the rate and burst of the fallback.
func (s *share) alone() (perSecond, burst float64) {
	known := s.client.sidecars()
	return s.policy.Rate / known, max(1, math.Floor(float64(s.policy.Burst)/known))
}

// spared returns the tokens with which the fallback may begin.
func (s *share) spared(now time.Time) float64 {
	perSecond, burst := s.alone()
	return min(burst, s.spare+perSecond*max(0, now.Sub(s.spareAt).Seconds()))
}

// fallBack switches the topic to its fallback, with the remaining tokens, or with one if it had
// none: else each sidecar that starts alone would refuse its first publish.
func (s *share) fallBack(now time.Time) {
	if s.state == fallback {
		return
	}
	granted := 0
	spare := int(s.spared(now))
	if s.state == none {
		granted = min(1, spare)
	} else {
		s.bucket.Assign(limit.Rate{PerSecond: limit.Still, Burst: spare, Most: s.policy.Burst}, 0, now)
	}
	s.state, s.number, s.ack = fallback, "", false
	s.retune(granted, now)
}

// rise ends the fallback: its saved tokens are not part of the shares.
func (s *share) rise(now time.Time) {
	s.spare, s.spareAt = s.bucket.Tokens(now), now
	s.bucket.Assign(limit.Rate{PerSecond: limit.Still, Most: s.policy.Burst}, 0, now)
}

// retune sets the bucket to the state, and returns the tokens that this removed.
func (s *share) retune(granted int, now time.Time) float64 {
	p := s.policy
	r := limit.Rate{PerSecond: limit.Still, Burst: s.burst, Most: p.Burst, Pace: s.rate}
	switch s.state {
	case none:
		r.Burst, r.Pace = 0, p.Rate/s.client.sidecars()
	case shared:
		r.PerSecond, r.Pace = min(s.rate, p.Rate), 0
	case fallback:
		perSecond, burst := s.alone()
		r.PerSecond, r.Burst, r.Pace = perSecond, int(burst), 0
		s.rate, s.burst = r.PerSecond, r.Burst
	}
	s.central.Store(s.state == asking)
	return s.bucket.Assign(r, granted, now)
}

// apply applies an assignment; made is the time of the report that it answers. It reports whether
// the assignment has to be acknowledged at once.
func (s *share) apply(a *assignment, made, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire(now)
	answered := s.answers != nil && s.asks != 0 && a.report >= s.asks
	if a.abandon {
		if answered || s.state == fallback {
			s.release()
		}
		if s.state == none || s.state == asking {
			s.number = ""
			s.fallBack(now)
		}
		return false
	}
	ends := made.Add(a.lifetime)
	if !now.Before(ends) {
		return false // the report is too old
	}
	if answered {
		s.dry = a.share == s.number || a.grant == 0 && a.rate <= 0
		defer s.release()
	}
	s.ends = ends
	if a.share == s.number {
		return false
	}
	if s.state == fallback {
		s.rise(now)
	}
	began := s.number == "" || s.state == fallback
	ended := s.state == shared && a.rate == 0
	less := began || ended || a.rate < s.rate || a.burst < s.burst
	if a.grant > 0 || a.rate > s.rate || a.burst > s.burst {
		s.gap = askEvery
	}
	s.number, s.state, s.rate, s.burst = a.share, shared, a.rate, a.burst
	if a.rate <= 0 {
		s.state, s.rate = asking, a.pace
	}
	cut := s.retune(a.grant, now)
	s.back += cut
	s.ack = s.ack || less
	return s.ack
}

// report returns the topic's usage for report k; nil: there is nothing to report. keep is false if
// the share can be forgotten.
func (s *share) report(k uint64, regular bool, now time.Time) (u *usage, keep bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire(now)
	s.note(now)
	ask := s.answers != nil && s.asks == 0
	hurry := s.hurry.Load() && now.Sub(s.reported) >= s.gap
	if !ask && !s.ack && !hurry && !regular {
		return nil, true
	}
	n := &s.own
	if s.tenant == "" {
		n = s.client.counters.of(s.topic)
	}
	var allowed, denied uint64
	if n != nil {
		allowed, denied = n.allowed.Swap(0), n.denied.Swap(0)
	}
	idle := now.Sub(s.usedAt) > idleAfter && allowed+denied == 0 && s.answers == nil
	if idle && (s.state == none || s.state == fallback && s.client.connected.Load()) {
		if s.state == fallback {
			s.rise(now)
		}
		s.state, s.number, s.rate, s.burst = none, "", 0, 0
		s.retune(0, now)
		_, full := s.alone()
		return nil, now.Sub(s.usedAt) < forgetShare || s.spared(now) < full
	}
	u = newUsage(s.topic, s.tenant, allowed, denied, now.Sub(s.reported))
	id := u.BucketId.Bucket
	id[policypb.QuotaReport] = strconv.FormatUint(k, 10)
	s.reported = now
	s.hurry.Store(false)
	switch {
	case hurry && !s.central.Load():
		s.gap = min(2*s.gap, reportEvery)
	case denied == 0 || s.central.Load():
		s.gap = askEvery
	}
	if s.number != "" {
		id[policypb.QuotaShare] = s.number
	}
	if s.back > 0 {
		id[policypb.QuotaBack] = number(s.back)
	}
	switch s.state {
	case asking:
		id[policypb.QuotaLeft] = number(max(0, s.bucket.Tokens(now)))
	case fallback:
		id[policypb.QuotaRate], id[policypb.QuotaCapacity] = number(s.rate), number(float64(s.burst))
	}
	wants := 0
	if s.missed > 0 && !s.told {
		wants, s.told = s.missed, true
	}
	if ask {
		wants, s.asks = max(s.largest, 1), k
		id[policypb.QuotaAsk] = strconv.Itoa(max(s.waiting, 1))
	}
	if wants > 0 {
		id[policypb.QuotaWants] = strconv.Itoa(wants)
	}
	s.back, s.ack = 0, false
	return u, true
}

// counted requests a report after publishes were counted, if it is urgent.
func (s *share) counted(denied bool) {
	if (denied || s.central.Load()) && s.hurry.CompareAndSwap(false, true) {
		s.client.urge()
	}
}

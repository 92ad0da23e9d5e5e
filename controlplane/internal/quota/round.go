package quota

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/sluice-bus/sluice/internal/policypb"
)

const (
	// headroom is a sidecar's share divided by its demand.
	headroom = 1.05
	// growth multiplies the share of a sidecar where publishes wait: their number is not known.
	growth = 1.5
	// waitsFor is how long publishes count as waiting after a report of them.
	waitsFor = 300 * time.Millisecond
	// smoothFrom is the lowest rate that a sidecar gets as a share; a sidecar that has a share
	// keeps it down to smoothTo. Below, the sidecar asks for each publish: its bucket would hold so
	// few tokens that it would often be full while no publish came.
	smoothFrom, smoothTo = 16, 12
	// slackFor is how many seconds of the rate the buckets may hold above the burst.
	slackFor = time.Second / 4
	// overfillFor is how long the reservoir goes on filling when it holds the burst, up to one
	// token. A burst of one would otherwise lose that time with every token.
	overfillFor = 20 * time.Millisecond
	// answerWithin is how long a sidecar that asks waits until others have acknowledged lower
	// shares.
	answerWithin = 200 * time.Millisecond
	// keepGrant is how long granted tokens may stay unused.
	keepGrant = time.Second
)

func shareName(epoch string, number uint64) string { return epoch + strconv.FormatUint(number, 10) }

// round divides a topic's rate if that is due. It returns when the next round is due, and whether
// the topic is unused.
func (s *Server) round(t *topic, now time.Time) (next time.Duration, unused bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	due := t.last.Add(roundEvery)
	if t.urgent {
		due = t.last.Add(unlessUrgent + time.Duration(len(t.members))*perMember)
	}
	if wait := due.Sub(now); wait > 0 {
		return wait, false
	}
	t.last, t.urgent = now, false
	t.advance(now)
	t.settle(now)
	p, fleet := s.policy(t.name)
	if !fleet || p.Rate <= 0 {
		t.abandon()
		return roundEvery, t.unused(now)
	}
	part, idle := s.part(t, p.Rate, now)
	grace := s.began.Add(lapse)
	topic, _ := policypb.QuotaParts(t.name)
	if !idle.IsZero() && s.cfg.Fresh != nil && s.cfg.Fresh(topic) {
		idle, grace = now.Add(-forever), s.began
	}
	t.setLimits(p.Rate, float64(p.Burst), part, idle, now)
	if now.Before(grace) || part <= 0 {
		t.sendToFallback()
		return roundEvery, false
	}
	t.measureDemand(now)
	t.divideRate()
	t.setTargets(now)
	t.countEarlierLives()
	t.replaceFallbacks(now)
	t.lowerShares(now)
	t.raiseShares(now)
	t.grantAsked(now)
	t.answerAsked(now)
	return roundEvery, t.unused(now)
}

// forever is long enough to fill any reservoir.
const forever = math.MaxInt64

// part returns which part of the topic this control plane may hand out. Since idle no sidecar has
// had a share that this control plane does not know of; zero: one may have.
func (s *Server) part(t *topic, rate float64, now time.Time) (part float64, idle time.Time) {
	if !s.cfg.Shared {
		return 1, s.began.Add(lapse)
	}
	demand := 0.0
	for _, m := range t.members {
		if m.out != nil && now.Sub(m.demandAt) < idleAfter {
			demand += max(m.demand(), rate/1000)
		}
	}
	return s.peers.part(t.name, demand/rate, t.rates/rate, now)
}

// abandon removes all members: the topic is no longer fleet-wide.
func (t *topic) abandon() {
	for _, m := range t.members {
		t.remove(m)
	}
	t.rate, t.burst, t.reservoir = 0, 0, 0
}

// sendToFallback tells the sidecars that ask to use their fallback: nothing may be handed out now.
func (t *topic) sendToFallback() {
	for _, m := range t.members {
		if m.asked && m.out != nil {
			m.asked = false
			m.out.tell(t.name, &answer{report: m.report, abandon: true})
		}
	}
}

// measureDemand finds the members that take part and what each could use.
func (t *topic) measureDemand(now time.Time) {
	t.active = t.active[:0]
	for _, m := range t.all {
		m.active, m.want, m.fair, m.targetRate, m.targetBurst = false, 0, 0, 0, 0
		switch {
		case m.reachable(now) && (now.Sub(m.demandAt) < idleAfter || m.asked):
			m.active = true
			t.active = append(t.active, m)
		case m.burst == 0 && m.rate == 0 && (m.current().number <= m.acked || m.out == nil):
			t.remove(m)
		}
	}
	for _, m := range t.active {
		m.want = max(m.demand()*headroom, min(1, t.rate/float64(4*len(t.active))))
		if now.Sub(m.wantsAt) < waitsFor && now.Sub(m.deniedAt) > wantsFor {
			m.want = max(m.want, m.current().rate*growth, float64(m.wants))
		}
	}
}

// divideRate divides the rate by max-min fairness: each member gets what it wants, and the members
// that want more than is left get equal parts. Half of the rest is divided equally, so that every
// member can grow. A single member gets the whole rate.
func (t *topic) divideRate() {
	slices.SortFunc(t.active, func(a, b *member) int {
		return cmp.Or(cmp.Compare(a.want, b.want), cmp.Compare(a.instance, b.instance))
	})
	rest := t.rate
	for i, m := range t.active {
		m.fair = min(m.want, rest/float64(len(t.active)-i))
		rest -= m.fair
	}
	if len(t.active) == 1 {
		t.active[0].fair = t.rate
		return
	}
	for _, m := range t.active {
		m.fair += rest / 2 / float64(len(t.active))
	}
}

// setTargets sets each member's target: a rate, with a bucket for a part of the slack and of half
// the burst, or only the tokens that it asks for. A bucket has to hold two of the member's batches,
// or it would stay full from when it holds one batch until that is published.
func (t *topic) setTargets(now time.Time) {
	sum, largest := 0.0, 0.0
	for _, m := range t.active {
		sum += m.fair
	}
	burstPart := func(m *member, of float64) float64 {
		if len(t.active) == 1 {
			return t.burst
		}
		return max(0, min(t.burst/2, of)) * m.fair / sum
	}
	for _, m := range t.active {
		own := t.slack * m.fair / t.rate
		least := smoothFrom
		if m.current().rate > 0 {
			least = smoothTo
		}
		if len(t.active) > 1 && (m.fair < float64(least) || 2*m.recentBatch(now) > math.Floor(own+burstPart(m, t.burst))) {
			largest = max(largest, m.recentBatch(now))
			continue
		}
		m.targetRate, m.targetBurst = m.fair, own
	}
	for _, m := range t.active {
		if m.targetRate > 0 {
			m.targetBurst = max(1, math.Floor(m.targetBurst+burstPart(m, t.burst-largest)))
		} else if m.current().rate == 0 && now.Sub(m.grant) < keepGrant {
			m.targetBurst = m.current().burst
		}
	}
}

// countEarlierLives takes from each member's target what ended lives of the same sidecar may still be using, so that all lives
// of one together have one share: else who comes back again and again holds a share for each time.
func (t *topic) countEarlierLives() {
	for _, m := range t.active {
		m.targetRate = max(0, m.targetRate-t.ended[m.node])
	}
}

// contended reports whether the targets need more than is free.
func (t *topic) contended() bool {
	rates, bursts := 0.0, 0.0
	for _, m := range t.active {
		rates += max(0, m.targetRate-m.rate)
		bursts += max(0, m.targetBurst-m.burst)
		if m.wants > 0 {
			bursts += float64(m.wants)
		}
	}
	return rates > t.rate-t.rates || bursts > t.room()+t.reservoir
}

// replaceFallbacks assigns a share to each member that uses its fallback: of what the others leave,
// even if that is nothing, since shares keep the bound.
func (t *topic) replaceFallbacks(now time.Time) {
	for _, m := range t.all {
		cur := m.current()
		if m.removed || cur.number > 0 || cur.rate == 0 || !m.reachable(now) {
			continue
		}
		rate := min(m.targetRate, m.rate+t.rate-t.rates)
		burst := math.Floor(min(m.targetBurst, m.burst+t.burst+t.slack-t.bursts-t.reservoir))
		if rate <= 0 || burst < 1 {
			rate, burst = 0, 0
		}
		t.assign(m, rate, burst, 0, now)
	}
}

// lowerShares assigns lower shares where a target is lower. The difference is free only once the
// sidecar has acknowledged the lower share.
func (t *topic) lowerShares(now time.Time) {
	threshold := 0.7
	if t.contended() {
		threshold = 0.97
	}
	for _, m := range t.all {
		cur := m.current()
		rate, burst := cur.rate, cur.burst
		if m.targetRate < rate*threshold {
			rate = m.targetRate
		}
		if m.targetBurst < burst*threshold {
			burst = m.targetBurst
		}
		lowers := rate < cur.rate || burst < cur.burst
		if lowers && !m.removed && m.reachable(now) && len(m.acting) < maxActing {
			t.assign(m, rate, burst, 0, now)
		}
	}
}

// raiseShares hands out the free rate, to each member in proportion to what it lacks.
func (t *topic) raiseShares(now time.Time) {
	lacking := 0.0
	for _, m := range t.active {
		lacking += max(0, m.targetRate-m.rate)
	}
	scale := 1.0
	if free := max(0, t.rate-t.rates); lacking > free {
		scale = free / lacking
	}
	for _, m := range t.active {
		if m.targetRate <= 0 || len(m.acting) >= maxActing || m.onFallback() {
			continue
		}
		cur := m.current()
		rate := min(m.targetRate, m.rate+max(0, m.targetRate-m.rate)*scale)
		if rate < cur.rate*1.03 {
			rate = cur.rate
		}
		grant, burst := 0, max(cur.burst, min(m.targetBurst, m.burst))
		if more := m.targetBurst - m.burst; more > 0 && (more > m.burst/20 || rate > cur.rate) {
			more = math.Floor(more)
			if cur.number == 0 || m.lacksTokens(now) || t.room() < more {
				grant = int(min(more, math.Floor(t.reservoir)))
			}
			burst = m.burst + float64(grant) + math.Floor(min(more-float64(grant), t.room()))
		}
		if (rate > cur.rate || burst > cur.burst) && rate > 0 && burst >= 1 {
			t.assign(m, rate, burst, grant, now)
		}
	}
}

// grantAsked grants tokens of the reservoir: first to the members that ask, in the order in which
// they asked, then to members whose share is too small.
func (t *topic) grantAsked(now time.Time) {
	asking := slices.DeleteFunc(slices.Clone(t.active), func(m *member) bool {
		return !m.asked || m.targetRate > 0 && m.current().rate > 0 || len(m.acting) >= maxActing
	})
	slices.SortFunc(asking, func(a, b *member) int {
		return cmp.Or(a.askedAt.Compare(b.askedAt), cmp.Compare(a.instance, b.instance))
	})
	for i, m := range asking {
		cur := m.current()
		have := 0.0
		if cur.number <= m.acked && cur.rate == 0 {
			have = cur.burst
		}
		need := max(1, float64(m.wants)-have)
		if need > t.reservoir {
			continue
		}
		part := math.Floor(t.reservoir / float64(len(asking)-i))
		grant := max(need, min(m.waiting, part))
		t.assign(m, cur.rate, cur.burst+grant, int(grant), now)
	}
	t.grantRest(now)
}

// grantRest grants the reservoir's remaining tokens to members whose share is too small.
func (t *topic) grantRest(now time.Time) {
	queue := slices.DeleteFunc(slices.Clone(t.active), func(m *member) bool {
		return !m.lacksTokens(now) || m.targetRate <= 0 || m.current().rate <= 0 || len(m.acting) >= maxActing
	})
	for i, m := range queue {
		if t.reservoir < max(1, t.rate/50) {
			return
		}
		part := math.Floor(t.reservoir / float64(len(queue)-i))
		if grant := int(min(max(m.denied, float64(m.wants)), part)); grant > 0 {
			cur := m.current()
			t.assign(m, cur.rate, cur.burst+float64(grant), grant, now)
		}
	}
}

// answerAsked answers the members that still wait, and renews the shares that are about to end.
func (t *topic) answerAsked(now time.Time) {
	rates, bursts := 0.0, 0.0
	for _, m := range t.all {
		rates, bursts = rates+m.current().rate, bursts+m.current().burst
	}
	recalling := t.rates > rates*1.0001+1e-9 || t.bursts > bursts
	for _, m := range t.all {
		if m.removed || !m.reachable(now) {
			continue
		}
		t.reportShare(m, m.fair)
		cur := m.current()
		switch {
		case m.asked && recalling && now.Sub(m.askedAt) < answerWithin:
		case m.asked && cur.number == 0:
			t.assign(m, 0, 0, 0, now)
		case m.asked, cur.number > 0 && m.active && cur.until.Sub(now) < renewBelow && m.reportAt.Add(lapse).After(cur.until):
			t.renew(m)
		}
	}
}

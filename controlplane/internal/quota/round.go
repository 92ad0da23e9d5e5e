package quota

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/sluice-bus/sluice/controlplane/policypb"
)

const (
	// headroom is how much more than its demand a sidecar's share is.
	headroom = 1.05
	// growth is how much more it is where publishes wait, whose number nobody
	// knows.
	growth = 1.5
	// waitsFor is how long publishes that wait show after a report of them.
	waitsFor = 300 * time.Millisecond
	// smoothFrom is the rate from which on a sidecar gets a share of the rate;
	// one that has a share keeps it down to smoothTo. Below, it asks for each
	// publish: its bucket would hold so few tokens that it were often full while
	// no publish came.
	smoothFrom, smoothTo = 16, 12
	// slackFor is for how long the rate may run into buckets above the burst.
	slackFor = time.Second / 4
	// flight is for how long the reservoir goes on filling when it holds the
	// burst, up to one token: a burst of one would else lose that time with
	// every token.
	flight = 20 * time.Millisecond
	// answerWithin is how long somebody who asks waits for others to
	// acknowledge that they have less.
	answerWithin = 200 * time.Millisecond
	// keepGrant is how long tokens that were asked for may lie unused.
	keepGrant = time.Second
)

func shareName(epoch string, number uint64) string { return epoch + strconv.FormatUint(number, 10) }

// round divides a topic's rate if that is due, and says when it is due next
// and whether nobody uses the topic any more.
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
	t.tune(p.Rate, float64(p.Burst), part, idle, now)
	if now.Before(grace) || part <= 0 {
		t.refer()
		return roundEvery, false
	}
	t.measure(now)
	t.divide()
	t.aim(now)
	t.recover(now)
	t.lower(now)
	t.raise(now)
	t.serve(now)
	t.reply(now)
	return roundEvery, t.unused(now)
}

// forever fills any reservoir.
const forever = math.MaxInt64

// part is which part of the topic this control plane may hand out, and since
// when nobody can have had anything of it that this one does not know of; zero:
// somebody can.
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

// abandon forgets all members: the topic is no longer fleet-wide.
func (t *topic) abandon() {
	for _, m := range t.members {
		t.remove(m)
	}
	t.rate, t.burst, t.reservoir = 0, 0, 0
}

// refer sends those who ask to their fallback: nothing may be handed out now.
func (t *topic) refer() {
	for _, m := range t.members {
		if m.asked && m.out != nil {
			m.asked = false
			m.out.tell(t.name, &answer{report: m.report, abandon: true})
		}
	}
}

// measure finds who takes part and what each could use.
func (t *topic) measure(now time.Time) {
	t.active = t.active[:0]
	for _, m := range t.all {
		m.active, m.want, m.fair, m.toRate, m.toBurst = false, 0, 0, 0, 0
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

// divide gives each what it wants, as far as the rate goes, and those who want
// more the same (max-min fairness); half of what nobody wants, so that there is
// something to grow into. One alone gets all.
func (t *topic) divide() {
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

// aim says what each is to have: a share of the rate with a bucket for a part
// of the slack, in which half of the burst is lent out, too; or nothing but
// what it asks for. A bucket has to hold two of its batches, or it would be full
// from the time that it holds one until that comes.
func (t *topic) aim(now time.Time) {
	sum, lumps := 0.0, 0.0
	for _, m := range t.active {
		sum += m.fair
	}
	lend := func(m *member, of float64) float64 {
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
		if len(t.active) > 1 && (m.fair < float64(least) || 2*m.lumpy(now) > math.Floor(own+lend(m, t.burst))) {
			lumps = max(lumps, m.lumpy(now))
			continue
		}
		m.toRate, m.toBurst = m.fair, own
	}
	for _, m := range t.active {
		if m.toRate > 0 {
			m.toBurst = max(1, math.Floor(m.toBurst+lend(m, t.burst-lumps)))
		} else if m.current().rate == 0 && now.Sub(m.grant) < keepGrant {
			m.toBurst = m.current().burst
		}
	}
}

// contended reports whether somebody is to have more than what is free.
func (t *topic) contended() bool {
	rates, bursts := 0.0, 0.0
	for _, m := range t.active {
		rates += max(0, m.toRate-m.rate)
		bursts += max(0, m.toBurst-m.burst)
		if m.wants > 0 {
			bursts += float64(m.wants)
		}
	}
	return rates > t.rate-t.rates || bursts > t.room()+t.reservoir
}

// recover gives those a share who go by their fallback: of what the others
// leave, be it nothing, since what passes by a share keeps to the bound.
func (t *topic) recover(now time.Time) {
	for _, m := range t.all {
		cur := m.current()
		if m.removed || cur.number > 0 || cur.rate == 0 || !m.reachable(now) {
			continue
		}
		rate := min(m.toRate, m.rate+t.rate-t.rates)
		burst := math.Floor(min(m.toBurst, m.burst+t.burst+t.slack-t.bursts-t.reservoir))
		if rate <= 0 || burst < 1 {
			rate, burst = 0, 0
		}
		t.assign(m, rate, burst, 0, now)
	}
}

// lower takes back what others are to have. It counts as taken only once it is
// acknowledged.
func (t *topic) lower(now time.Time) {
	slackness := 0.7
	if t.contended() {
		slackness = 0.97
	}
	for _, m := range t.all {
		cur := m.current()
		rate, burst := cur.rate, cur.burst
		if m.toRate < rate*slackness {
			rate = m.toRate
		}
		if m.toBurst < burst*slackness {
			burst = m.toBurst
		}
		if !m.removed && (rate < cur.rate || burst < cur.burst) && m.reachable(now) && len(m.acting) < maxActing {
			t.assign(m, rate, burst, 0, now)
		}
	}
}

// raise hands out what is free, to each in proportion to what it lacks.
func (t *topic) raise(now time.Time) {
	lacking := 0.0
	for _, m := range t.active {
		lacking += max(0, m.toRate-m.rate)
	}
	scale := 1.0
	if free := max(0, t.rate-t.rates); lacking > free {
		scale = free / lacking
	}
	for _, m := range t.active {
		if m.toRate <= 0 || len(m.acting) >= maxActing || m.fallen() {
			continue
		}
		cur := m.current()
		rate := min(m.toRate, m.rate+max(0, m.toRate-m.rate)*scale)
		if rate < cur.rate*1.03 {
			rate = cur.rate
		}
		grant, burst := 0, max(cur.burst, min(m.toBurst, m.burst))
		if more := m.toBurst - m.burst; more > 0 && (more > m.burst/20 || rate > cur.rate) {
			more = math.Floor(more)
			if cur.number == 0 || m.hungry(now) || t.room() < more {
				grant = int(min(more, math.Floor(t.reservoir)))
			}
			burst = m.burst + float64(grant) + math.Floor(min(more-float64(grant), t.room()))
		}
		if (rate > cur.rate || burst > cur.burst) && rate > 0 && burst >= 1 {
			t.assign(m, rate, burst, grant, now)
		}
	}
}

// serve grants tokens of the reservoir to those who lack them: first to those
// who ask, in the order in which they came, then to those for whom their share
// is not enough.
func (t *topic) serve(now time.Time) {
	asking := slices.DeleteFunc(slices.Clone(t.active), func(m *member) bool {
		return !m.asked || m.toRate > 0 && m.current().rate > 0 || len(m.acting) >= maxActing
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
	t.lavish(now)
}

// lavish grants what is left in the reservoir to those with a share for whom
// it is not enough.
func (t *topic) lavish(now time.Time) {
	queue := slices.DeleteFunc(slices.Clone(t.active), func(m *member) bool {
		return !m.hungry(now) || m.toRate <= 0 || m.current().rate <= 0 || len(m.acting) >= maxActing
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

// reply answers who still waits and renews what is about to end.
func (t *topic) reply(now time.Time) {
	rates, bursts := 0.0, 0.0
	for _, m := range t.all {
		rates, bursts = rates+m.current().rate, bursts+m.current().burst
	}
	recalling := t.rates > rates*1.0001+1e-9 || t.bursts > bursts
	for _, m := range t.all {
		if m.removed || !m.reachable(now) {
			continue
		}
		t.show(m, m.fair)
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

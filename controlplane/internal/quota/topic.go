package quota

import (
	"math"
	"sync"
	"time"

	"github.com/sluice-bus/sluice/internal/policy"
)

// topic divides one topic's rate, or that of a tenant of it.
type topic struct {
	name   string // as in policypb.QuotaName
	tenant bool   // the name is that of a tenant
	server *Server

	mu   sync.Mutex
	gone bool // no longer the server's
	// rate and burst may be handed out by this control plane; the buckets may hold slack more than
	// the burst.
	rate, burst, slack float64
	// reservoir is the number of tokens that no sidecar has, as of at.
	reservoir float64
	at        time.Time
	members   map[memberID]*member
	// rates and bursts are the sums over all members.
	rates, bursts float64
	// ended are, by node id, the rates that lives of sidecars whose streams have ended may still be using.
	ended map[string]float64
	// Of the current round.
	all    []*member // members at its beginning
	active []*member // members that take part

	// mostRate and mostBurst are the largest limits that sidecars may still know of, as of mostAt.
	mostRate, mostBurst float64
	mostAt              time.Time

	urgent bool
	last   time.Time // the last round
	used   time.Time // the last report
}

// bound limits a report to what a sidecar can truly say, and reports whether it said more. A fallback is the policy's rate
// divided by the known sidecars, so it counts as the share of one at most: no report takes the shares of others. What a sidecar has let
// through is bounded by what it was granted, or by the share of one where its fallback may have acted.
func (t *topic) bound(st *stream, u *usage, p policy.Publish, now time.Time) (impossible bool) {
	rate, burst := p.Rate, float64(p.Burst)
	if now.Sub(t.mostAt) > knownWithin || rate >= t.mostRate && burst >= t.mostBurst {
		t.mostRate, t.mostBurst, t.mostAt = rate, burst, now
	}
	impossible = u.rate > t.mostRate*(1+1e-6) || u.capacity > max(1, t.mostBurst) || float64(u.wants) > max(1, t.mostBurst)
	if allowed := mostAllowed(t.mostRate, t.mostBurst, u.elapsed); u.allowed > allowed {
		impossible = impossible || u.elapsed <= knownWithin // else it may have been another policy's
		u.allowed = allowed
	}
	sidecars := float64(max(1, len(t.members)))
	if m := t.members[st.id()]; m != nil && m.out == st {
		u.elapsed = min(u.elapsed, now.Sub(m.reportAt)+lapse)
		if now.Sub(m.since) > lapse { // what another control plane has granted it, or this one before a restart, has lapsed
			u.allowed = min(u.allowed, mostAllowed(max(m.mostRate, t.mostRate/sidecars), max(m.mostBurst, t.mostBurst/sidecars), u.elapsed))
		}
	}
	u.rate = min(u.rate, max(0, rate/sidecars-t.ended[st.node]))
	u.capacity = min(u.capacity, max(1, burst/sidecars))
	u.wants = min(u.wants, max(1, p.Burst))
	return impossible
}

// mostAllowed is how many events a bucket can have let through in a time: all its tokens, and twice its burst and the slack, since
// tokens of refused events are given back and used again.
func mostAllowed(rate, burst float64, in time.Duration) uint64 {
	return uint64(2*(burst+max(1, rate*slackFor.Seconds())) + 1.01*rate*in.Seconds())
}

// report records a sidecar's usage.
func (t *topic) report(st *stream, u *usage, number uint64, now time.Time) {
	t.used = now
	m := t.members[st.id()]
	if m == nil {
		unused := u.ask == 0 && u.rate == 0 && u.wants == 0 && u.allowed+u.denied == 0
		if unused || len(t.members) >= maxMembers {
			return
		}
		m = &member{instance: st.instance, node: st.node, demandAt: now, reportAt: now, since: now, shown: NoShare}
		t.members[m.id()] = m
		t.urgent = true
	}
	t.advance(now)
	if m.out == nil { // it is back
		t.ended[m.node] -= m.rate
	}
	m.out, m.report, m.reportAt = st, u.report, now
	m.observe(u, now)
	rate, burst := m.rate, m.burst
	switch {
	case number > 0:
		before := len(m.acting)
		released := m.acknowledge(number, u.left, now)
		t.reservoir += min(released, u.back)
		if len(m.acting) < before || released > 0 {
			t.urgent = true
		}
	case u.rate > 0:
		m.fallBack(u, now)
	}
	t.rates, t.bursts = t.rates+m.rate-rate, t.bursts+m.burst-burst
	m.mostRate, m.mostBurst = m.rate, m.burst
	t.trim()
	if m.asked || u.wants > 0 && m.current().burst < float64(u.wants) {
		t.urgent = true
	}
}

// detach records that a sidecar's stream has ended.
func (t *topic) detach(st *stream, left bool, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	m := t.members[st.id()]
	if m == nil || m.out != st {
		return
	}
	t.advance(now)
	m.out = nil
	if left {
		t.remove(m)
	} else {
		t.ended[m.node] += m.rate
	}
	t.urgent = true
}

func (t *topic) remove(m *member) {
	delete(t.members, m.id())
	m.removed = true
	t.reportShare(m, NoShare)
	t.rates, t.bursts = t.rates-m.rate, t.bursts-m.burst
}

// advance fills the reservoir up to now, with the part of the rate that no sidecar may be using.
func (t *topic) advance(now time.Time) {
	if d := now.Sub(t.at); d > 0 {
		t.reservoir += max(0, t.rate-t.rates) * d.Seconds()
		t.at = now
		t.trim()
	}
}

// settle drops the assignments that have lapsed, and adds up those left.
func (t *topic) settle(now time.Time) {
	t.all, t.rates, t.bursts = t.all[:0], 0, 0
	clear(t.ended)
	for _, m := range t.members {
		m.settle(now)
		t.all = append(t.all, m)
		if m.out == nil {
			t.ended[m.node] += m.rate
		}
		t.rates += m.rate
		t.bursts += m.burst
	}
	t.trim()
}

// trim limits the reservoir to its maximum.
func (t *topic) trim() {
	t.reservoir = max(0, min(t.reservoir, t.burst+min(1, t.rate*overfillFor.Seconds()), t.burst+t.slack-t.bursts))
}

// room is how many more tokens the buckets may hold without taking them out of the reservoir.
func (t *topic) room() float64 {
	return max(0, t.burst+t.slack-t.bursts-t.reservoir)
}

// setLimits sets what may be handed out. Since idle no sidecar has had a share of the topic, so the
// reservoir of a new topic has filled since then.
func (t *topic) setLimits(rate, burst, part float64, idle, now time.Time) {
	fresh := t.rate == 0 && part > 0 && t.reservoir == 0
	t.rate, t.burst, t.slack = rate*part, burst*part, max(1, rate*slackFor.Seconds())*part
	if fresh && !idle.IsZero() {
		t.reservoir = t.rate * max(0, now.Sub(idle).Seconds())
	}
	t.trim()
}

// unused reports whether the topic can be removed: its reservoir is as full as that of a new one.
func (t *topic) unused(now time.Time) bool {
	return len(t.members) == 0 && now.Sub(t.used) > forgetAfter && t.reservoir >= math.Floor(t.burst)
}

// assign gives a member a rate and a burst, and tokens out of the reservoir.
func (t *topic) assign(m *member, rate, burst float64, grant int, now time.Time) {
	a := assignment{number: t.server.last.Add(1), rate: rate, burst: burst, until: m.reportAt.Add(lapse)}
	m.acting = append(m.acting, a)
	t.rates += max(0, rate-m.rate)
	t.bursts += max(0, burst-m.burst)
	m.rate, m.burst = max(m.rate, rate), max(m.burst, burst)
	m.mostRate, m.mostBurst = max(m.mostRate, m.rate), max(m.mostBurst, m.burst)
	t.reservoir -= float64(grant)
	if grant > 0 {
		m.denied, m.wants, m.grant = 0, 0, now
	}
	t.tell(m, a, grant)
}

// renew gives the newest assignment a new lifetime.
func (t *topic) renew(m *member) {
	a := &m.acting[len(m.acting)-1]
	a.until = m.reportAt.Add(lapse)
	t.tell(m, *a, 0)
}

func (t *topic) tell(m *member, a assignment, grant int) {
	m.asked = false
	m.out.tell(t.name, &answer{
		report: m.report, share: shareName(t.server.epoch, a.number),
		rate: a.rate, pace: m.fair, burst: int(a.burst), grant: grant,
	})
}

// reportShare tells the sink a member's share if it has changed.
func (t *topic) reportShare(m *member, perSecond float64) {
	if t.server.cfg.Usage == nil || t.tenant {
		return
	}
	alike := perSecond != NoShare && m.shown != NoShare && math.Abs(perSecond-m.shown) < m.shown/100
	if alike || perSecond == m.shown {
		return
	}
	m.shown = perSecond
	t.server.cfg.Usage.Share(m.node, t.name, perSecond)
}

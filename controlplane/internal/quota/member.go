package quota

import (
	"math"
	"time"
)

const (
	// smoothing is the time constant of the demand's moving average.
	smoothing = 400 * time.Millisecond
	// idleAfter is how long a sidecar without demand keeps its share.
	idleAfter = time.Second
	// wantsFor is how long a publish that lacked tokens is expected to come again.
	wantsFor = time.Second
	// largeBatchFor is how long a sidecar that has published a large batch is expected to publish
	// another one.
	largeBatchFor = 10 * time.Second
	// silentAfter is how long a connected sidecar may report nothing of a topic before it is
	// assigned nothing new: a share's lifetime counts from a report.
	silentAfter = lifetime / 2
	// rounding is subtracted from a sidecar's remaining tokens before they are rounded up: a bucket
	// that does not fill gains less than that in its lifetime.
	rounding = 1e-6
	// maxActing bounds the unacknowledged changes of a share.
	maxActing = 8
)

// assignment is a rate and a burst that a sidecar may be using.
type assignment struct {
	number uint64  // 0: its fallback
	rate   float64 // tokens per second
	burst  float64 // tokens that it may hold
	until  time.Time
}

// memberID names one life of a sidecar. Another sidecar may report the same instance, since a
// credential is bound to the node id alone.
type memberID struct{ node, instance string }

func (m *member) id() memberID { return memberID{m.node, m.instance} }

// member is a sidecar that publishes to a topic.
type member struct {
	instance, node string
	out            *stream // nil: not connected
	removed        bool    // no longer the topic's
	since          time.Time

	// The member's last report.
	report       uint64
	reportAt     time.Time
	average      float64 // events per second, weighed by weight
	weight       float64
	demandAt     time.Time // the latest report of demand
	deniedAt     time.Time
	denied       float64 // events since it was last granted tokens
	wants        int     // the largest publish that lacked tokens
	wantsAt      time.Time
	largeBatch   int // the largest publish lately that its bucket could not hold
	largeBatchAt time.Time
	asked        bool    // a publish waits for an answer
	waiting      float64 // tokens that waiting publishes want
	askedAt      time.Time

	// acting are the assignments that the sidecar may be using, the newest last. The first may be
	// the one that it acknowledged last. rate and burst are the largest of them.
	acting []assignment
	rate   float64
	burst  float64
	acked  uint64
	// mostRate and mostBurst are the largest rate and burst since the last report.
	mostRate, mostBurst float64

	grant time.Time // the latest grant of tokens

	// Of the current round.
	active      bool
	want        float64 // tokens per second that it could use
	fair        float64 // its fair part of the rate
	targetRate  float64
	targetBurst float64
	shown       float64 // the share that the sink was told last
}

// observe records the allowed and denied events of a report.
func (m *member) observe(u *usage, now time.Time) {
	n := float64(u.allowed) + float64(u.denied)
	elapsed := max(u.elapsed, time.Millisecond).Seconds()
	keep := math.Exp(-elapsed / smoothing.Seconds())
	m.average = m.average*keep + n/elapsed*(1-keep)
	m.weight = m.weight*keep + (1 - keep)
	if n > 0 || u.ask > 0 || u.wants > 0 {
		m.demandAt = now
	}
	if u.denied > 0 {
		m.denied += float64(u.denied)
		m.deniedAt = now
	}
	if u.wants > 0 {
		m.wants, m.wantsAt = u.wants, now
		if now.Sub(m.largeBatchAt) > largeBatchFor || u.wants >= m.largeBatch {
			m.largeBatch = 0
		}
		if u.wants > 1 {
			m.largeBatch, m.largeBatchAt = max(m.largeBatch, u.wants), now
		}
	}
	if u.ask > 0 {
		if !m.asked {
			m.asked, m.askedAt = true, now
		}
		m.waiting = float64(u.ask)
	}
}

// demand is the average of events published per second, refused ones included.
func (m *member) demand() float64 {
	if m.weight == 0 {
		return 0
	}
	return m.average / m.weight
}

// lacksTokens reports whether publishes lacked tokens within wantsFor.
func (m *member) lacksTokens(now time.Time) bool { return m.wants > 0 && now.Sub(m.wantsAt) < wantsFor }

// recentBatch is the size of the largest batch that lacked tokens within largeBatchFor; 0: none
// did.
func (m *member) recentBatch(now time.Time) float64 {
	if now.Sub(m.largeBatchAt) > largeBatchFor {
		return 0
	}
	return float64(m.largeBatch)
}

// reachable reports whether the sidecar can be sent an assignment.
func (m *member) reachable(now time.Time) bool {
	return m.out != nil && now.Sub(m.reportAt) < silentAfter
}

// current is the newest assignment.
func (m *member) current() assignment {
	if len(m.acting) == 0 {
		return assignment{}
	}
	return m.acting[len(m.acting)-1]
}

// onFallback reports whether the sidecar may be using its fallback.
func (m *member) onFallback() bool { return len(m.acting) > 0 && m.acting[0].number == 0 }

// settle drops the assignments that have lapsed, and computes rate and burst.
func (m *member) settle(now time.Time) {
	kept := m.acting[:0]
	for _, a := range m.acting {
		if now.Before(a.until) {
			kept = append(kept, a)
		}
	}
	m.acting = kept
	m.rate, m.burst = 0, 0
	for _, a := range m.acting {
		m.rate, m.burst = max(m.rate, a.rate), max(m.burst, a.burst)
	}
}

// acknowledge records which assignment the sidecar uses, and drops earlier ones. It returns by how
// much the tokens that the sidecar may hold became fewer.
func (m *member) acknowledge(number uint64, left float64, now time.Time) (released float64) {
	before := m.burst
	m.acked = max(m.acked, number)
	for len(m.acting) > 0 && m.acting[0].number < number {
		m.acting = m.acting[1:]
	}
	if left >= 0 && len(m.acting) > 0 && m.acting[0].number == number && m.acting[0].rate == 0 {
		// Nothing fills the sidecar's bucket, so it has at most the remaining tokens.
		m.acting[0].burst = min(m.acting[0].burst, math.Ceil(left-rounding))
	}
	m.settle(now)
	return max(0, before-m.burst)
}

// fallBack records that the sidecar uses its fallback.
func (m *member) fallBack(u *usage, now time.Time) {
	a := assignment{rate: u.rate, burst: u.capacity, until: now.Add(lapse)}
	if len(m.acting) > 0 && m.acting[0].number == 0 {
		m.acting[0] = a
	} else {
		m.acting = append([]assignment{a}, m.acting...)
	}
	m.settle(now)
}

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
	// wantsFor is how long a publish that lacked tokens is taken to come again.
	wantsFor = time.Second
	// lumpsFor is how long a sidecar with large batches is taken to have more.
	lumpsFor = 10 * time.Second
	// silentAfter is how long a connected sidecar may say nothing of a topic
	// before nothing new is handed to it: answers to old reports are short-lived.
	silentAfter = lifetime / 2
	// rounding is by how little the tokens that are left may be above a whole
	// number: a bucket that does not fill gains less than that in its lifetime.
	rounding = 1e-6
	// maxActing is how many unacknowledged changes of a share there may be.
	maxActing = 8
)

// assignment is a rate and a burst that a sidecar may be acting by.
type assignment struct {
	number uint64  // 0: its fallback
	rate   float64 // tokens per second
	burst  float64 // tokens that it may hold
	until  time.Time
}

// memberID names a life of a sidecar. Others may have the same instance: it is
// what they say that it is, and the node id alone is bound to their credential.
type memberID struct{ node, instance string }

func (m *member) id() memberID { return memberID{m.node, m.instance} }

// member is a sidecar that publishes to a topic.
type member struct {
	instance, node string
	out            *stream // nil: not connected
	removed        bool    // no longer the topic's

	// What it reports.
	report   uint64
	reportAt time.Time
	average  float64 // events per second, weighed by weight
	weight   float64
	demandAt time.Time // the latest report of demand
	deniedAt time.Time
	denied   float64 // events since it last got tokens
	wants    int     // the largest publish that lacked tokens
	wantsAt  time.Time
	lump     int // the largest publish lately that its bucket could not hold
	lumpAt   time.Time
	asked    bool    // somebody waits for an answer
	waiting  float64 // tokens that those want who wait
	askedAt  time.Time

	// acting are the assignments that may act, the newest last; the first may
	// be the one that it acknowledged last. rate and burst are their largest.
	acting []assignment
	rate   float64
	burst  float64
	acked  uint64
	grant  time.Time // of tokens, the latest

	// Of the round.
	active  bool
	want    float64 // tokens per second that it could use
	fair    float64 // its part of the rate
	toRate  float64
	toBurst float64
	shown   float64 // the share that the sink was told of
}

// observe takes in what passed and what did not.
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
		if now.Sub(m.lumpAt) > lumpsFor || u.wants >= m.lump {
			m.lump = 0
		}
		if u.wants > 1 {
			m.lump, m.lumpAt = max(m.lump, u.wants), now
		}
	}
	if u.ask > 0 {
		if !m.asked {
			m.asked, m.askedAt = true, now
		}
		m.waiting = float64(u.ask)
	}
}

// demand is how many events a second were published, refused ones included.
func (m *member) demand() float64 {
	if m.weight == 0 {
		return 0
	}
	return m.average / m.weight
}

// hungry reports whether publishes lacked tokens lately.
func (m *member) hungry(now time.Time) bool { return m.wants > 0 && now.Sub(m.wantsAt) < wantsFor }

// lumpy is how large a batch lately was that lacked tokens; 0: none did.
func (m *member) lumpy(now time.Time) float64 {
	if now.Sub(m.lumpAt) > lumpsFor {
		return 0
	}
	return float64(m.lump)
}

// reachable reports whether it can be told something.
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

// fallen reports whether it may be going by its fallback.
func (m *member) fallen() bool { return len(m.acting) > 0 && m.acting[0].number == 0 }

// settle drops what has lapsed and says what may act.
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

// acknowledge notes which assignment it acts by; earlier ones do so no more.
// It returns how much less it may hold since.
func (m *member) acknowledge(number uint64, left float64, now time.Time) (released float64) {
	before := m.burst
	m.acked = max(m.acked, number)
	for len(m.acting) > 0 && m.acting[0].number < number {
		m.acting = m.acting[1:]
	}
	if left >= 0 && len(m.acting) > 0 && m.acting[0].number == number && m.acting[0].rate == 0 {
		// Nothing fills its bucket, so it holds what is left at most.
		m.acting[0].burst = min(m.acting[0].burst, math.Ceil(left-rounding))
	}
	m.settle(now)
	return max(0, before-m.burst)
}

// fallBack notes that it goes by its fallback.
func (m *member) fallBack(u *usage, now time.Time) {
	a := assignment{rate: u.rate, burst: u.capacity, until: now.Add(lapse)}
	if len(m.acting) > 0 && m.acting[0].number == 0 {
		m.acting[0] = a
	} else {
		m.acting = append([]assignment{a}, m.acting...)
	}
	m.settle(now)
}

package quota

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-bus/sluice/internal/policypb"
)

const (
	// maxTopics is how many topics are counted, and maxFleetTopics how many fleet-wide ones have
	// shares, at a time; further topics are not counted, or use the fallback.
	maxTopics      = 20_000
	maxFleetTopics = 10_000
	// maxFleetTenants is how many tenants of fleet-wide topics have shares of their own. It is more
	// than limit.MaxTenantsInAll, since a tenant is forgotten there a little before its share is
	// here.
	maxFleetTenants = 25_000
	// forgetCounter is the number of reports without a publish after which a topic's counter is
	// removed.
	forgetCounter = 30
)

// counter counts a topic's accepted and refused events since the last report.
type counter struct {
	allowed, denied atomic.Uint64
	// Of the goroutine that reports.
	quiet int // consecutive reports without an event
}

// counters are those of all topics.
type counters struct {
	topics sync.Map // string to *counter
	n      atomic.Int64
	since  time.Time // of the goroutine that reports
}

func (c *counters) topic(topic string) *counter {
	if v, ok := c.topics.Load(topic); ok {
		return v.(*counter)
	}
	if c.n.Load() >= maxTopics {
		return nil
	}
	v, loaded := c.topics.LoadOrStore(topic, new(counter))
	if !loaded {
		c.n.Add(1)
	}
	return v.(*counter)
}

// collect takes the counts of the topics for which fleet is false, and calls report with those that
// are not zero.
func (c *counters) collect(now time.Time, fleet func(topic string) bool, report func(*usage)) {
	elapsed := now.Sub(c.since)
	c.since = now
	for key, v := range c.topics.Range {
		topic, n := key.(string), v.(*counter)
		if fleet(topic) {
			n.quiet = 0
			continue
		}
		allowed, denied := n.allowed.Swap(0), n.denied.Swap(0)
		if allowed+denied > 0 {
			n.quiet = 0
			report(newUsage(topic, "", allowed, denied, elapsed))
		} else if n.quiet++; n.quiet > forgetCounter && c.topics.CompareAndDelete(topic, v) {
			c.n.Add(-1)
		}
	}
}

// Count counts accepted and refused events of a topic, fleet-wide or not.
func (c *Client) Count(topic string, allowed, denied int) {
	n := c.counters.topic(topic)
	if n == nil {
		return
	}
	if allowed > 0 {
		n.allowed.Add(uint64(allowed))
	}
	if denied > 0 {
		n.denied.Add(uint64(denied))
	}
	if v, ok := c.shares.Load(topic); ok {
		v.(*share).counted(denied > 0)
	}
}

// CountTenant counts accepted and refused events of a tenant with its own share.
func (c *Client) CountTenant(topic, tenant string, allowed, denied int) {
	v, ok := c.shares.Load(policypb.QuotaName(topic, tenant))
	if !ok {
		return
	}
	s := v.(*share)
	s.own.allowed.Add(uint64(allowed))
	s.own.denied.Add(uint64(denied))
	s.counted(denied > 0)
}

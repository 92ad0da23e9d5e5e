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
	// maxTenants is how many tenants without shares are counted at a time; further ones are counted in
	// their topics alone.
	maxTenants = 10_000
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

func (n *counter) add(allowed, denied int) {
	if allowed > 0 {
		n.allowed.Add(uint64(allowed))
	}
	if denied > 0 {
		n.denied.Add(uint64(denied))
	}
}

// counters are those of topics, or of tenants without shares.
type counters struct {
	most   int64
	byName sync.Map // by policypb.QuotaName, of *counter
	n      atomic.Int64
	since  time.Time // of the goroutine that reports
}

// of returns the counter of that name; nil: there is no room for another one.
func (c *counters) of(name string) *counter {
	if v, ok := c.byName.Load(name); ok {
		return v.(*counter)
	}
	if c.n.Load() >= c.most {
		return nil
	}
	v, loaded := c.byName.LoadOrStore(name, new(counter))
	if !loaded {
		c.n.Add(1)
	}
	return v.(*counter)
}

// collect takes the counts of the names for which shared is false, and calls report with those that
// are not zero, until it fails.
func (c *counters) collect(now time.Time, shared func(name string) bool, report func(*usage) error) error {
	elapsed := now.Sub(c.since)
	c.since = now
	for key, v := range c.byName.Range {
		name, n := key.(string), v.(*counter)
		if shared(name) {
			n.quiet = 0
			continue
		}
		allowed, denied := n.allowed.Swap(0), n.denied.Swap(0)
		if allowed+denied > 0 {
			n.quiet = 0
			topic, tenant := policypb.QuotaParts(name)
			if err := report(newUsage(topic, tenant, allowed, denied, elapsed)); err != nil {
				return err
			}
		} else if n.quiet++; n.quiet > forgetCounter && c.byName.CompareAndDelete(name, v) {
			c.n.Add(-1)
		}
	}
	return nil
}

// Count counts accepted and refused events of a topic, fleet-wide or not.
func (c *Client) Count(topic string, allowed, denied int) {
	n := c.counters.of(topic)
	if n == nil {
		return
	}
	n.add(allowed, denied)
	if v, ok := c.shares.Load(topic); ok {
		v.(*share).counted(denied > 0)
	}
}

// CountTenant counts accepted and refused events of a tenant, with a share or without.
func (c *Client) CountTenant(topic, tenant string, allowed, denied int) {
	name := policypb.QuotaName(topic, tenant)
	if v, ok := c.shares.Load(name); ok {
		s := v.(*share)
		s.own.add(allowed, denied)
		s.counted(denied > 0)
		return
	}
	if n := c.tenants.of(name); n != nil {
		n.add(allowed, denied)
		return
	}
	c.Count(topic, allowed, denied)
}

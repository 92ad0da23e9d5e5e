package consume

import (
	"github.com/sluice-bus/sluice/sidecar/internal/group"
)

// What the tests from outside need to see of the inside.

const MaxPullBody = maxPullBody

var LatestPage = latestPage

// Waiting counts the pulls that wait for events.
func (c *Consumers) Waiting() (n int) {
	c.pulls.mu.Lock()
	defer c.pulls.mu.Unlock()
	for _, p := range c.pulls.all {
		p.mu.Lock()
		n += len(p.waiting)
		p.mu.Unlock()
	}
	return n
}

// Retire lets the idle time of all pullers end.
func (c *Consumers) Retire() (pullers int) {
	c.pulls.mu.Lock()
	all := make([]*puller, 0, len(c.pulls.all))
	for _, p := range c.pulls.all {
		all = append(all, p)
	}
	c.pulls.mu.Unlock()
	for _, p := range all {
		c.pulls.retire(p)
	}
	return len(all)
}

// Lease reads a lease of this process.
func (c *Consumers) Lease(topic, name, token string) (d group.Lease, ok bool) {
	d, node, ours, ok := c.leases.readLease(topic, name, token)
	return d, ok && ours && node == c.cfg.NodeID
}

// LeaseText is the text of a lease of this process.
func (c *Consumers) LeaseText(topic, name string, d group.Lease) string {
	return string(c.leases.appendLease(nil, topic, name, d))
}

// LeaseOf is the text of a lease of another process.
func LeaseOf(node, topic, name string, d group.Lease) string {
	l := newLeaser(node)
	return string(l.appendLease(nil, topic, name, d))
}

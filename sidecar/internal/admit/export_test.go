package admit

import (
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/limit"
)

// Tokens are how many events and bytes are left of a topic's limits, and of a connection's.
func (p *Publisher) Tokens(c *Connection, topic string) (connection, events, bytes int) {
	now := time.Now()
	b := p.buckets.Topic(topic, rates(p.cfg.Policies.Load().Topic(topic)), now)
	return left(c.bucket, now), left(b.Events, now), left(b.Bytes, now)
}

// left counts the whole tokens of a limited bucket by looking for the most that can be taken.
func left(b *limit.Bucket, now time.Time) int {
	low, high := 0, 1<<30
	for low < high {
		n := (low + high + 1) / 2
		charge := []limit.Charge{{Bucket: b, N: n}}
		if limit.TakeAll(charge, now).OK {
			limit.RefundAll(charge, now)
			low = n
		} else {
			high = n - 1
		}
	}
	return low
}

// TenantTokens are how many events are left of a tenant's limit; tenant "" is those without the
// header.
func (p *Publisher) TenantTokens(topic, tenant string) int {
	now := time.Now()
	r := rates(p.cfg.Policies.Load().Topic(topic))
	b := p.buckets.Topic(topic, r, now)
	if tenant == "" {
		return left(b.Events, now)
	}
	own, _ := p.buckets.Tenant(topic, tenant, r.Events, now)
	return left(own, now)
}

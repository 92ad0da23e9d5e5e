package admit

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/limit"
)

// reservation is the tokens that one call of Publish took: first from the connection's bucket, then
// two charges for each topic (events and bytes), in the order of their names, and then one for each
// tenant, in the order of topics and names. All calls lock buckets in that order. Once taken, its
// charges do not change, so several goroutines may refund.
type reservation struct {
	topics  []destination
	tenants []tenant
	charges []limit.Charge // [1+2*i] and the next are those of topics[i], [1+2*len(topics)+j] is that of tenants[j]
	// charged has for each item the index of its events charge; nil: each item uses its topic's.
	charged []int
	// connection is the connection's rate.
	connection limit.Rate

	// Most calls have one topic: these fields save allocations of slices.
	one [1]destination
	few [3]limit.Charge
}

// destination is one topic that the call publishes to.
type destination struct {
	name   string
	policy *policy.Effective
	fleet  bool // its rate is for all sidecars together
	events int  // of the call

	violations int // events that the schema refused, set by Publisher.holdToSchemas

	// Set by Publisher.locate.
	partitions int
	err        error // why nothing can be published to the topic

	// Events that the log accepted, counted once all outcomes are known.
	passed, duplicates int
}

// Offsets of a topic's two charges from twice its index.
const (
	eventsCharge = 1
	bytesCharge  = 2
)

func (r *reservation) index(topic string) int {
	if len(r.topics) == 1 {
		return 0
	}
	i, _ := slices.BinarySearchFunc(r.topics, topic, func(d destination, name string) int {
		return strings.Compare(d.name, name)
	})
	return i
}

func (r *reservation) topic(name string) *destination { return &r.topics[r.index(name)] }

// take takes the tokens of all items that are not refused yet, or none.
func (r *reservation) take(ctx context.Context, p *Publisher, c *Connection, policies *policy.Snapshot, items []wire.PublishItem,
	now time.Time) limit.Verdict {
	*r = reservation{}
	r.name(items)
	r.charges = append(r.few[:0], make([]limit.Charge, 1+2*len(r.topics))...)
	r.connection = c.rate(policies)
	c.bucket.Retune(r.connection, now)
	r.charges[0].Bucket = c.bucket
	divided := false
	for i := range r.topics {
		d := &r.topics[i]
		d.policy = policies.Topic(d.name)
		d.fleet = p.cfg.Quota != nil && d.policy.Publish.Scope == policy.ScopeFleet
		divided = divided || d.policy.Publish.Per != ""
		b := p.buckets.Topic(d.name, rates(d.policy), now)
		r.charges[2*i+eventsCharge].Bucket, r.charges[2*i+bytesCharge].Bucket = b.Events, b.Bytes
	}
	if divided {
		r.divide(p.buckets, items, now)
	}
	for i := range items {
		if items[i].Err != nil {
			continue
		}
		t := r.index(items[i].Event.Topic)
		r.topics[t].events++
		r.charges[0].N++
		r.charges[r.eventsOf(i, t)].N++
		r.charges[2*t+bytesCharge].N += len(items[i].Event.Payload)
	}
	for i := range r.topics {
		d, events := &r.topics[i], &r.charges[2*i+eventsCharge]
		if !d.fleet {
			continue
		}
		if events.N > 0 {
			events.Bucket = p.cfg.Quota.Bucket(ctx, d.name, events.N, d.policy.Publish, now)
		}
		r.shareTenants(ctx, p.cfg.Quota, i, now)
	}
	return limit.TakeAll(r.charges, now)
}

// eventsOf is the index of the events charge of an item, given its topic's index.
func (r *reservation) eventsOf(item, topic int) int {
	if r.charged == nil {
		return 2*topic + eventsCharge
	}
	return r.charged[item]
}

// name collects the topics, in order, each once.
func (r *reservation) name(items []wire.PublishItem) {
	r.topics = r.one[:0]
	for i := range items {
		name := items[i].Event.Topic
		if items[i].Err != nil || len(r.topics) > 0 && r.topics[len(r.topics)-1].name == name {
			continue
		}
		r.topics = append(r.topics, destination{name: name})
	}
	if len(r.topics) > 1 {
		slices.SortFunc(r.topics, func(a, b destination) int { return strings.Compare(a.name, b.name) })
		r.topics = slices.CompactFunc(r.topics, func(a, b destination) bool { return a.name == b.name })
	}
}

// report tells the quota which events were admitted and which were refused. Of a fleet-wide topic only
// those count whose own bucket refused: a share is asked for them alone.
func (r *reservation) report(q Quota, v limit.Verdict) {
	if q == nil {
		return
	}
	refused := r.refusedTopic(v)
	for i := range r.topics {
		d, n := &r.topics[i], r.charges[2*i+eventsCharge].N // the others are counted for their tenants
		all := !d.fleet && (refused == i || v.Refused == 0)
		switch {
		case n == 0:
		case v.OK:
			q.Count(d.name, n, 0)
		case all, refused == i && v.Refused <= 2*len(r.topics):
			q.Count(d.name, 0, n)
		}
		r.reportTenants(q, i, v, all)
	}
}

// refusedTopic is the index of the topic whose charge, or whose tenant's charge, was refused; -1:
// none was.
func (r *reservation) refusedTopic(v limit.Verdict) int {
	switch j := v.Refused - 1 - 2*len(r.topics); {
	case v.OK || v.Refused == 0:
		return -1
	case j >= 0:
		return r.tenants[j].topic
	}
	return (v.Refused - 1) / 2
}

func rates(e *policy.Effective) limit.TopicRates {
	return limit.TopicRates{
		Events:         limit.Rate{PerSecond: e.Publish.Rate, Burst: e.Publish.Burst},
		BytesPerSecond: e.Publish.BytesPerSecond,
	}
}

// refund gives the tokens of one item's event back. The other tokens stay taken.
func (r *reservation) refund(item int, topic string, payload int, now time.Time) {
	t := r.index(topic)
	one := [3]limit.Charge{r.charges[0], r.charges[r.eventsOf(item, t)], r.charges[2*t+bytesCharge]}
	one[0].N, one[1].N, one[2].N = 1, 1, payload
	limit.RefundAll(one[:], now)
}

// patience is how long the call may wait for tokens.
func (r *reservation) patience() time.Duration {
	if len(r.topics) == 0 {
		return 0
	}
	least := r.topics[0].policy.Publish.MaxWait
	for i := range r.topics {
		pub := &r.topics[i].policy.Publish
		if pub.OnLimit != policy.LimitWait {
			return 0
		}
		least = min(least, pub.MaxWait)
	}
	return least
}

func (r *reservation) refusal(v limit.Verdict) *wire.Error {
	whose, scope, unit := "this connection", "connection", "events"
	rate, burst, most := "connection.rate", "connection.burst", r.connection.PerSecond
	if i := r.refusedTopic(v); i >= 0 {
		d := &r.topics[i]
		whose, scope = "topic "+d.name, "topic"
		rate, burst, most = "publish.rate", "publish.burst", d.policy.Publish.Rate
		switch {
		case v.Refused == 2*i+bytesCharge:
			unit, rate = "bytes", "publish.bytes_per_second"
			burst, most = rate, float64(d.policy.Publish.BytesPerSecond)
		case d.policy.Publish.Per != "":
			whose, scope = r.whose(v.Refused, d), "tenant"
		case d.fleet:
			scope = "fleet"
		}
		if d.fleet && unit == "events" {
			whose += " over all sidecars"
		}
	}
	n := r.charges[v.Refused].N
	if n == 1 {
		unit = strings.TrimSuffix(unit, "s")
	}
	if v.OverBurst {
		return wire.Errorf(wire.BadRequest,
			"a publish of %d %s is larger than the burst of %s, which is %d (%s of the policy): send smaller batches",
			n, unit, whose, v.Burst, burst)
	}
	e := wire.Errorf(wire.RateLimited, "the publish rate of %s is used up (%s of the policy, %s a second): this publish has %d %s",
		whose, rate, strconv.FormatFloat(most, 'f', -1, 64), n, unit)
	e.RetryAfter, e.Scope = v.Wait, scope
	return e
}

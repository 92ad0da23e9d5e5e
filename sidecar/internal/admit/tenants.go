package admit

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/limit"
)

// tenant is one tenant with a bucket of its own, of a topic that the call publishes to.
type tenant struct {
	topic int // the topic's index
	name  string
}

func (t tenant) compare(u tenant) int {
	return cmp.Or(cmp.Compare(t.topic, u.topic), strings.Compare(t.name, u.name))
}

// divide finds the tenants of topics whose policy gives each tenant a bucket, and the charge of
// each item. Items without a tenant, and those of tenants beyond the bound, use the topic's charge.
func (r *reservation) divide(buckets *limit.Set, items []wire.PublishItem, now time.Time) {
	of := make([]tenant, len(items)) // without a name: the item uses the topic's charge
	r.charged = make([]int, len(items))
	for i := range items {
		if items[i].Err != nil {
			continue
		}
		ev := &items[i].Event
		t := r.index(ev.Topic)
		r.charged[i] = 2*t + eventsCharge
		if per := r.topics[t].policy.Publish.Per; per != "" {
			if name := per.Tenant(ev.Key, ev.Headers); name != "" {
				of[i] = tenant{topic: t, name: name}
				r.tenants = append(r.tenants, of[i])
			}
		}
	}
	slices.SortFunc(r.tenants, tenant.compare)
	r.tenants = slices.CompactFunc(r.tenants, func(t, u tenant) bool { return t == u })
	kept := r.tenants[:0]
	for _, t := range r.tenants {
		d := &r.topics[t.topic]
		rate := rates(d.policy).Events
		if d.fleet { // the quota sets its share of the rate
			rate = limit.Rate{}
		}
		if b, own := buckets.Tenant(d.name, t.name, rate, now); own {
			kept = append(kept, t)
			r.charges = append(r.charges, limit.Charge{Bucket: b})
		}
	}
	r.tenants = kept
	for i, t := range of {
		if j, own := slices.BinarySearchFunc(r.tenants, t, tenant.compare); own {
			r.charged[i] = 1 + 2*len(r.topics) + j
		}
	}
}

// ofTenants are the tenants of a topic, and their charges.
func (r *reservation) ofTenants(topic int) ([]tenant, []limit.Charge) {
	from, _ := slices.BinarySearchFunc(r.tenants, tenant{topic: topic}, tenant.compare)
	to, _ := slices.BinarySearchFunc(r.tenants, tenant{topic: topic + 1}, tenant.compare)
	first := 1 + 2*len(r.topics)
	return r.tenants[from:to], r.charges[first+from : first+to]
}

// shareTenants puts the buckets with the tenants' shares into the charges of a topic's tenants.
func (r *reservation) shareTenants(ctx context.Context, q Quota, topic int, now time.Time) {
	of, charges := r.ofTenants(topic)
	if len(of) == 0 {
		return
	}
	names := make([]string, len(of))
	for j := range of {
		names[j] = of[j].name
	}
	q.Tenants(ctx, r.topics[topic].name, names, charges, r.topics[topic].policy.Publish, now)
}

// reportTenants is report for the tenants of a topic: all of them were refused, or the one whose bucket refused.
func (r *reservation) reportTenants(q Quota, topic int, v limit.Verdict, all bool) {
	of, charges := r.ofTenants(topic)
	for j := range of {
		switch name := r.topics[topic].name; {
		case v.OK:
			q.CountTenant(name, of[j].name, charges[j].N, 0)
		case all, &charges[j] == &r.charges[v.Refused]:
			q.CountTenant(name, of[j].name, 0, charges[j].N)
		}
	}
}

// whose names, in a refusal, the tenant or topic whose charge was refused.
func (r *reservation) whose(charge int, d *destination) string {
	header := strings.TrimPrefix(string(d.policy.Publish.Per), policy.PerHeader)
	if j := charge - 1 - 2*len(r.topics); j >= 0 {
		return fmt.Sprintf("tenant %.64q (header %s) of topic %s", r.tenants[j].name, header, d.name)
	}
	return fmt.Sprintf("events without header %s, and of tenants without a bucket of their own, of topic %s", header, d.name)
}

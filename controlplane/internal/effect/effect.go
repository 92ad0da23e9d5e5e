// Package effect says what a policy would have done to the publishes of the last hour: how many its limits
// would have refused.
package effect

import (
	"time"

	"github.com/sluice-bus/sluice/controlplane/internal/fleet"
	"github.com/sluice-bus/sluice/internal/policy"
)

// Refused is how many events of a topic a policy would have refused, of those that publishers sent through
// each sidecar. A slot's busiest second comes first, and the rest of the slot is spread evenly. Limits of
// bytes are left out. known is false where a rate is for each tenant: nobody counts by tenant.
func Refused(e *policy.Effective, sidecars []fleet.Hour) (refused float64, known bool) {
	p := &e.Publish
	switch {
	case e.Paused:
		return Events(sidecars), true
	case p.Rate == 0:
		return 0, true
	case p.Per != "":
		return 0, false
	case p.Scope == policy.ScopeFleet:
		return refusedOf(p, sum(sidecars)), true
	}
	for i := range sidecars {
		refused += refusedOf(p, &sidecars[i])
	}
	return refused, true
}

// Events is how many events publishers sent.
func Events(sidecars []fleet.Hour) (n float64) {
	for i := range sidecars {
		for _, slot := range sidecars[i] {
			n += float64(slot.Events)
		}
	}
	return n
}

// sum is the hour of all sidecars together, whose busiest seconds may be the same.
func sum(sidecars []fleet.Hour) *fleet.Hour {
	var all fleet.Hour
	for i := range sidecars {
		for j, slot := range sidecars[i] {
			all[j].Events += slot.Events
			all[j].Peak += slot.Peak
		}
	}
	return &all
}

// refusedOf lets an hour through one token bucket. A publish that may wait finds a token as long as no more
// wait than the rate fills meanwhile, which is a larger bucket.
func refusedOf(p *policy.Publish, hour *fleet.Hour) (refused float64) {
	size := float64(p.Burst)
	if p.OnLimit == policy.LimitWait {
		size += p.Rate * p.MaxWait.Seconds()
	}
	tokens := size
	send := func(events, seconds float64) {
		left := tokens + p.Rate*seconds - events
		refused += max(-left, 0)
		tokens = min(max(left, 0), size)
	}
	for _, slot := range hour {
		send(float64(slot.Peak), 1)
		send(float64(slot.Events-slot.Peak), (fleet.HourSlot - time.Second).Seconds())
	}
	return refused
}

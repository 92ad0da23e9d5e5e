package group

import (
	"math"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/limit"
)

// The policy's limits of a group are for all of its members on all sidecars
// together. A sidecar keeps to the part of them that its partitions are of all:
// no partition has two owners, so the parts never come to more than the whole,
// and nobody has to be asked.

// resolve is what the policy makes of what a member asked for.
func (g *Group) resolve(o wire.SubscribeOptions) Options {
	eff := g.cfg.Policy(g.topic)
	d := eff.Delivery
	if most := eff.Groups.Of(g.name).MaxInflight; most > 0 {
		d.MaxInflight = most
	}
	return Resolve(o, d)
}

// owns is how many partitions this sidecar delivers from.
func (g *Group) owns() (n int) {
	for _, p := range g.parts {
		if p.own == owned {
			n++
		}
	}
	return n
}

// room is how many events more the group's limit lets it have in flight here. A
// sidecar that has partitions may have one.
func (g *Group) room() int {
	switch {
	case g.limits.Paused:
		return 0
	case g.limits.MaxInflight == 0:
		return math.MaxInt
	}
	room := max(1, g.limits.MaxInflight*g.owns()/max(1, len(g.parts)))
	for _, m := range g.members {
		room -= m.count
	}
	return max(0, room)
}

// tune follows the rate and the partitions. The bucket starts full, and gains
// nothing when its rate grows.
func (g *Group) tune(now time.Time) {
	if g.limits.Rate == 0 {
		g.token = limit.Charge{}
		return
	}
	owns := g.owns()
	if owns == 0 {
		return // nothing is delivered, and 0 would be no limit
	}
	r := limit.OneSecond(g.limits.Rate * float64(owns) / float64(len(g.parts)))
	if g.token.Bucket == nil {
		g.token = limit.Charge{Bucket: limit.NewBucket(r, now), N: 1}
	}
	g.token.Bucket.Retune(r, now)
}

// takeToken takes a token for a delivery, or says when to ask again.
func (g *Group) takeToken(now time.Time) (wait time.Duration, ok bool) {
	if g.token.Bucket == nil {
		return 0, true
	}
	charges := [1]limit.Charge{g.token}
	v := limit.TakeAll(charges[:], now)
	g.token = charges[0]
	return v.Wait, v.OK
}

// refundToken gives back what takeToken took last.
func (g *Group) refundToken(now time.Time) {
	if g.token.Bucket == nil {
		return
	}
	charges := [1]limit.Charge{g.token}
	limit.RefundAll(charges[:], now)
}

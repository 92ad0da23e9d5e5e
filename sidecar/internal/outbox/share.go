package outbox

import (
	"strconv"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/roster"
)

// Topic is the topic of the groups as which sidecars announce outboxes, and of signals about them.
// It is reserved, so no application's group is mistaken for an outbox.
const Topic = "_outbox"

// announce tells the other sidecars of the log that this one drains the outbox.
func (d *Drainer) announce(outbox string) {
	g := eventlog.GroupName{Topic: Topic, Group: outbox}
	was := d.group.Swap(&g)
	if was != nil && *was == g {
		return
	}
	if was != nil { // the owner's document was dropped
		d.cfg.Roster.Leave(*was)
	}
	if d.cfg.Roster.Join(g); d.cfg.Roster.IsAlone() { // else the next look divides
		d.divide()
	}
}

// divide divides the shards among the sidecars that drain the outbox.
func (d *Drainer) divide() {
	g, v := d.group.Load(), d.cfg.Roster.View()
	if g == nil || !v.Known() {
		return
	}
	names := append([]string{v.Name}, v.Others(*g)...)
	var mine shardSet
	for shard := range Shards {
		if roster.Owner(names, g.Group+"/"+strconv.Itoa(shard)) == v.Name {
			mine |= 1 << shard
		}
	}
	if was := shardSet(d.mine.Swap(uint32(mine))); mine&^was != 0 {
		d.owner.wake.Set()
		d.wake.Set()
	}
}

// usable are the shards that this drainer may work with now.
func (d *Drainer) usable() shardSet {
	if now := d.cfg.Clock.Now(); !d.owner.valid(now) || !d.cfg.Roster.Valid(now) {
		return 0
	}
	return shardSet(d.mine.Load())
}

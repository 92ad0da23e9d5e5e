package group

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/roster"
)

// ownership is which partitions of its topic a group has here, and which it is to
// have. It asks the roster, and never the store: what is stored of the partitions
// (latest, by partition) is what a balance has read. The group's mutex guards it.
type ownership struct {
	group    eventlog.GroupName
	roster   *roster.Roster
	parts    partitions // all of the topic; nil before they are known
	created  bool       // every partition has had an epoch
	complete bool       // everything is here that is to be, when last looked
	doubt    bool       // the store may say otherwise of what is owned here, and what is not
}

// ownerState is what this sidecar has of a partition; doc.go draws it.
type ownerState uint8

const (
	foreign  ownerState = iota // somebody else's, or nobody's
	owned                      // delivered from, while the roster is valid
	draining                   // somebody else is to have it: nothing new is delivered
	leaving                    // drained: the next save says that it is released
)

// DrainWait is how long a partition that is to go elsewhere waits for what its
// members have in flight; what is left then goes back without counting.
const DrainWait = 3 * time.Second

// errTakenOver answers what was settled too late: the partition was taken over
// before it was saved.
var errTakenOver = fmt.Errorf("another sidecar has taken over: %w", errors.Join(eventlog.ErrFenced, eventlog.ErrUnavailable))

// idle reports whether this sidecar has none of the partitions, for sure.
func (o *ownership) idle() bool {
	return !o.doubt && !slices.ContainsFunc(o.parts, func(p *partition) bool { return p.own != foreign || p.tried > 0 })
}

// todo is what a balance has to do in the store.
type todo struct {
	doubt   bool  // ask whether another sidecar has taken something
	missing []int // partitions to be taken
	absent  []int // of the others those that are not here, if there is doubt
	frozen  []int // partitions owned by a life of this sidecar that is over
}

// plan compares what is owned with what is to be, and does what needs no store. used
// says that the group has members here.
func (o *ownership) plan(st *roster.Standing, view *roster.View, used bool, now time.Time) (x todo, changed bool) {
	x.doubt, o.doubt = o.doubt, false
	due := o.due(view, used)
	for i, p := range o.parts {
		switch mine := due(p); {
		case mine && p.own == foreign:
			x.missing = append(x.missing, i)
		case x.doubt && p.own == foreign:
			x.absent = append(x.absent, i)
		case mine && p.own == draining:
			p.own, changed = owned, true
		case !mine && p.own == owned:
			p.own, p.drainDue, changed = draining, now.Add(DrainWait), true
		}
		if p.own == owned && p.life != st.ID {
			x.frozen = append(x.frozen, i)
		}
	}
	return x, o.completed(len(x.missing) == 0) || changed
}

// completed takes note of whether everything is here that is to be, and reports
// whether that is new: members without a partition are told so.
func (o *ownership) completed(is bool) (newly bool) {
	newly = is && !o.complete
	o.complete = is
	return newly
}

// due tells which partitions this sidecar is to have: of the sidecars that have
// members of the group each gets some. While there are none, everybody keeps
// what it has.
func (o *ownership) due(view *roster.View, used bool) func(*partition) bool {
	others := view.Others(o.group)
	switch {
	case !view.Known() || !used && len(others) == 0:
		return func(p *partition) bool { return p.own == owned }
	case !used || len(others) == 0:
		return func(*partition) bool { return used }
	}
	names := append([]string{view.Name}, others...)
	prefix := o.group.Topic + "\x00" + o.group.Group + "\x00"
	return func(p *partition) bool {
		return roster.Owner(names, prefix+strconv.Itoa(p.Index)) == view.Name
	}
}

// superseded finds the partitions that others have taken over. found says that
// there are some, or were for what this sidecar has heard: those it has renewed
// itself, and goes on owning.
func (o *ownership) superseded(latest []eventlog.Epoch) (lost []*partition, found bool) {
	for i, e := range latest {
		p := o.parts[i]
		if e.Number >= p.tried {
			p.tried = 0
		}
		if p.own == foreign || e.Number <= p.epoch {
			continue
		}
		found = true
		if e.Number == p.epoch+1 && e.Owner != p.life && !e.Released && o.roster.Ours(e.Owner) {
			p.renew(e.Number, e.Owner) // the answer got lost
		} else {
			lost = append(lost, p)
		}
	}
	return lost, found
}

// orphans are those of the partitions that the store says are this sidecar's, or
// that it may say so of once a take whose answer got lost is executed: until
// somebody has that number. Nobody else can have them before they are taken
// again and released.
func (o *ownership) orphans(of []int, latest []eventlog.Epoch) (orphans []int) {
	for _, i := range of {
		if e := latest[i]; !e.Released && o.roster.Ours(e.Owner) || o.parts[i].tried > e.Number {
			orphans = append(orphans, i)
		}
	}
	return orphans
}

func (o *ownership) epochOf(partition int, number uint64, life string) eventlog.Epoch {
	return eventlog.Epoch{
		GroupPartition: eventlog.GroupPartition{Topic: o.group.Topic, Group: o.group.Group, Partition: partition},
		Number:         number, Owner: life,
	}
}

// after is the epoch that goes on from another one.
func (o *ownership) after(e eventlog.Epoch, life string) eventlog.Epoch {
	next := o.epochOf(e.Partition, e.Number+1, life)
	next.Inherit, next.Progress = true, e.Progress
	return next
}

// renewals are the next epochs of partitions that this sidecar owned until its life
// was over.
func (o *ownership) renewals(st *roster.Standing, frozen []int, latest []eventlog.Epoch) (next []eventlog.Epoch) {
	for _, i := range frozen {
		if p := o.parts[i]; p.own == owned && p.life != st.ID && latest[i].Number == p.epoch {
			next = append(next, o.after(latest[i], st.ID))
		}
	}
	return next
}

// free are the next epochs of the missing partitions that nobody owns any more.
func (o *ownership) free(st *roster.Standing, view *roster.View, missing []int, latest []eventlog.Epoch, now time.Time) (next []eventlog.Epoch) {
	for _, i := range missing {
		e, p := latest[i], o.parts[i]
		if p.owner != e.Owner {
			p.owner, p.ownerSince = e.Owner, now
		}
		// What is this process's own, but not in its hands, is from a take
		// whose answer got lost.
		if e.Number > 0 && !e.Deleted && (e.Released || o.roster.Ours(e.Owner) || view.Gone(e.Owner, p.ownerSince)) {
			next = append(next, o.after(e, st.ID))
			continue
		}
		if _, alive := view.Alive(e.Owner); !alive {
			o.roster.Ask(e.Owner) // a later view knows
		}
	}
	return next
}

// delivers reports whether events of the partition may be handed out at now.
func (p *partition) delivers(st *roster.Standing, now time.Time) bool {
	return p.own == owned && p.life == st.ID && st.Valid(now)
}

// renew goes on owning a partition in a later life: since this sidecar has had
// the epoch before too, nobody else can have had the partition in between.
func (p *partition) renew(number uint64, life string) {
	p.epoch, p.life, p.dirty = number, life, true
}

// abandon forgets a partition that was taken over, without saving. It returns
// who waits for progress that is lost with it.
func (g *Group) abandon(p *partition) (waiters []func(error)) {
	g.drop(p)
	if p.dirty {
		waiters, g.saver.waiters = g.saver.waiters, nil
	}
	p.restore(eventlog.Progress{}, time.Time{})
	g.disown(p)
	return waiters
}

func (g *Group) disown(p *partition) {
	g.dispatch.revoke(p)
	p.own, p.epoch, p.life, p.dirty = foreign, 0, "", false
}

// finishDrains takes off the partitions that are drained, or have waited for
// long enough.
func (g *Group) finishDrains(now time.Time) {
	for _, p := range g.own.parts {
		if p.own != draining || now.Before(p.drainDue) && p.busy() {
			continue
		}
		for e := range p.all() {
			if e.state == inflight {
				g.dispatch.giveBack(e)
			}
		}
		g.park(p)
		g.dispatch.revoke(p)
		p.own, p.dirty = leaving, true
	}
}

// busy reports whether something of the partition is in flight, or on its way
// to the dead letter topic.
func (p *partition) busy() bool {
	for e := range p.all() {
		if e.state == inflight || e.state == deadLettering {
			return true
		}
	}
	return false
}

// park forgets what was fetched of a partition but keeps its progress.
func (g *Group) park(p *partition) {
	now := g.cfg.Clock.Now()
	pr := p.progress(now)
	g.drop(p)
	p.restore(pr, now)
}

func (g *Group) drop(p *partition) {
	p.generation++
	for _, e := range g.dispatch.drop(p) {
		g.saver.deadLettered(e, errTakenOver)
	}
}

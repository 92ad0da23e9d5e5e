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

// ownership knows the partitions of its topic that a group has here, and the ones that are due
// here. It asks the roster, and never the store: a balance reads the latest epochs (latest, by
// partition) and passes them. The group's mutex guards it.
type ownership struct {
	group    eventlog.GroupName
	roster   *roster.Roster
	parts    partitions // all of the topic; nil before they are known
	created  bool       // every partition has had an epoch
	complete bool       // all partitions that are due here were here at the last look
	doubt    bool       // the store may have owners that are not known here
}

// ownerState is this sidecar's hold on a partition; doc.go draws the changes.
type ownerState uint8

const (
	foreign  ownerState = iota // another sidecar's, or without an owner
	owned                      // delivered from, while the roster is valid
	draining                   // due at another sidecar: nothing new is delivered
	leaving                    // drained: the next save releases it
)

// DrainWait is how long a partition that is due elsewhere waits for its events in flight. After
// that the remaining events go back without counting an attempt.
const DrainWait = 3 * time.Second

// errTakenOver answers late settlements: another sidecar took the partition over before they were
// saved.
var errTakenOver = fmt.Errorf("another sidecar has taken over: %w", errors.Join(eventlog.ErrFenced, eventlog.ErrUnavailable))

// idle reports whether this sidecar certainly has none of the partitions.
func (o *ownership) idle() bool {
	return !o.doubt && !slices.ContainsFunc(o.parts, func(p *partition) bool { return p.own != foreign || p.tried > 0 })
}

// todo is a balance's work in the store.
type todo struct {
	doubt   bool  // ask whether another sidecar has taken a partition
	missing []int // partitions that are due here, and another sidecar's
	absent  []int // the other partitions that are not here, if there is doubt
	frozen  []int // partitions owned by a life of this sidecar that is over
}

// plan compares the owned partitions with those that are due here, and begins and ends drains,
// which needs no store. used says that the group has members here.
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

// completed notes whether all partitions that are due here are here, and reports whether that is
// new: members without a partition learn it then.
func (o *ownership) completed(is bool) (newly bool) {
	newly = is && !o.complete
	o.complete = is
	return newly
}

// due returns which partitions are due here: they are divided among the sidecars that have members
// of the group. If none has members, every sidecar keeps its partitions.
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

// superseded finds the partitions that others have taken over. found says that the store has such
// epochs, or later epochs of this sidecar's own. The latter come from a renewal whose answer was
// lost: the sidecar still owns those partitions.
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

// orphans are partitions that are this sidecar's in the store, though not here, or that may become
// so: a take whose answer was lost may still be executed, until its number is taken. No other
// sidecar can have them before this one takes them again and releases them.
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

// after is the epoch that follows another one.
func (o *ownership) after(e eventlog.Epoch, life string) eventlog.Epoch {
	next := o.epochOf(e.Partition, e.Number+1, life)
	next.Inherit, next.Progress = true, e.Progress
	return next
}

// renewals are the next epochs of partitions that this sidecar owned until its life was over.
func (o *ownership) renewals(st *roster.Standing, frozen []int, latest []eventlog.Epoch) (next []eventlog.Epoch) {
	for _, i := range frozen {
		if p := o.parts[i]; p.own == owned && p.life != st.ID && latest[i].Number == p.epoch {
			next = append(next, o.after(latest[i], st.ID))
		}
	}
	return next
}

// free are the next epochs of the missing partitions without a live owner.
func (o *ownership) free(st *roster.Standing, view *roster.View, missing []int, latest []eventlog.Epoch, now time.Time) (next []eventlog.Epoch) {
	for _, i := range missing {
		e, p := latest[i], o.parts[i]
		if p.owner != e.Owner {
			p.owner, p.ownerSince = e.Owner, now
		}
		// An epoch of this process's own that is not here is from a take whose answer got lost.
		if e.Number > 0 && !e.Deleted && (e.Released || o.roster.Ours(e.Owner) || view.Gone(e.Owner, p.ownerSince)) {
			next = append(next, o.after(e, st.ID))
			continue
		}
		if _, alive := view.Alive(e.Owner); !alive {
			o.roster.Ask(e.Owner) // a later view may know
		}
	}
	return next
}

// delivers reports whether events of the partition may be handed out at now.
func (p *partition) delivers(st *roster.Standing, now time.Time) bool {
	return p.own == owned && p.life == st.ID && st.Valid(now)
}

// renew continues to own a partition in a later life: this sidecar also had the epoch before, so no
// other can have had the partition in between.
func (p *partition) renew(number uint64, life string) {
	p.epoch, p.life, p.dirty = number, life, true
}

// abandon forgets a partition that was taken over, without saving. It returns the callers that wait
// for progress that is lost.
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

// finishDrains ends the drains of partitions that are drained, or have waited for DrainWait.
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

// busy reports whether events of the partition are in flight, or on their way to the dead letter
// topic.
func (p *partition) busy() bool {
	for e := range p.all() {
		if e.state == inflight || e.state == deadLettering {
			return true
		}
	}
	return false
}

// park forgets the fetched events of a partition but keeps its progress.
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

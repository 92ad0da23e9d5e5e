package ownership

import (
	"slices"
	"strconv"
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/roster"
)

// Table knows the partitions of its topic that a group has here, and the ones that are assigned here. It
// asks the roster, and never the store: a balance reads the latest epochs (latest, by partition) and
// passes them. The group's mutex guards it.
type Table struct {
	Group    eventlog.GroupName
	Roster   *roster.Roster
	Parts    []*Partition // all of the topic; nil before they are known
	Created  bool         // every partition has had an epoch
	Complete bool         // all partitions that are assigned here were here at the last look
	Doubt    bool         // the store may have owners that are not known here
}

// Partition is what this sidecar has of one partition.
type Partition struct {
	index         int
	State         State
	Epoch         uint64    // while it is not foreign: the one that this sidecar has
	Life          string    // under which it was taken
	DrainDeadline time.Time // while it is draining: when it is given up at the latest

	// Only free uses these: the life that had it at the last query, and since when that is known.
	owner      string
	ownerSince time.Time
	lostAt     time.Time // when another sidecar was last seen to have taken it over
	// Tried is the highest epoch that a take without an answer may have inserted, or may still
	// insert; 0: no such epoch is above the latest.
	Tried uint64
}

// State is this sidecar's hold on a partition; doc.go draws the changes.
type State uint8

const (
	Foreign  State = iota // another sidecar's, or without an owner
	Owned                 // delivered from, while the roster is valid
	Draining              // assigned to another sidecar: nothing new is delivered
	Leaving               // drained: the next save releases it
)

// DrainWait is how long a partition that is assigned elsewhere waits for its events in flight. After
// that the remaining events go back without counting an attempt.
const DrainWait = 3 * time.Second

// Load makes the partitions known; none is owned yet.
func (o *Table) Load(partitions int) {
	o.Parts = make([]*Partition, partitions)
	for i := range o.Parts {
		o.Parts[i] = &Partition{index: i}
	}
}

// Owned is how many partitions this sidecar delivers from.
func (o *Table) Owned() (n int) {
	for _, p := range o.Parts {
		if p.State == Owned {
			n++
		}
	}
	return n
}

// Any reports whether this sidecar has one of the partitions.
func (o *Table) Any() bool {
	return slices.ContainsFunc(o.Parts, func(p *Partition) bool { return p.State != Foreign })
}

// Idle reports whether this sidecar certainly has none of the partitions.
func (o *Table) Idle() bool {
	return !o.Doubt && !slices.ContainsFunc(o.Parts, func(p *Partition) bool { return p.State != Foreign || p.Tried > 0 })
}

// Todo is a balance's work in the store.
type Todo struct {
	Doubt   bool  // ask whether another sidecar has taken a partition
	Missing []int // partitions that are assigned here, and another sidecar's
	Absent  []int // the other partitions that are not here, if there is doubt
	Frozen  []int // partitions owned by a life of this sidecar that is over
}

// Plan compares the owned partitions with those that are assigned here, and begins and ends drains,
// which needs no store. used says that the group has members here.
func (o *Table) Plan(st *roster.Standing, view *roster.View, used bool, now time.Time) (x Todo, changed bool) {
	x.Doubt, o.Doubt = o.Doubt, false
	assigned := o.assigned(view, used)
	for i, p := range o.Parts {
		switch mine := assigned(p); {
		case mine && p.State == Foreign:
			x.Missing = append(x.Missing, i)
		case x.Doubt && p.State == Foreign:
			x.Absent = append(x.Absent, i)
		case mine && p.State == Draining:
			p.State, changed = Owned, true
		case !mine && p.State == Owned:
			p.State, p.DrainDeadline, changed = Draining, now.Add(DrainWait), true
		}
		if p.State == Owned && p.Life != st.ID {
			x.Frozen = append(x.Frozen, i)
		}
	}
	return x, o.Completed(len(x.Missing) == 0) || changed
}

// Completed notes whether all partitions that are assigned here are here, and reports whether that is
// new: members without a partition learn it then.
func (o *Table) Completed(is bool) (newly bool) {
	newly = is && !o.Complete
	o.Complete = is
	return newly
}

// assigned returns which partitions are assigned here: they are divided among the sidecars that have
// members of the group. If none has members, every sidecar keeps its partitions.
func (o *Table) assigned(view *roster.View, used bool) func(*Partition) bool {
	others := view.Others(o.Group)
	switch {
	case !view.Known() || !used && len(others) == 0:
		return func(p *Partition) bool { return p.State == Owned }
	case !used || len(others) == 0:
		return func(*Partition) bool { return used }
	}
	names := append([]string{view.Name}, others...)
	prefix := o.Group.Topic + "\x00" + o.Group.Group + "\x00"
	return func(p *Partition) bool {
		return roster.Owner(names, prefix+strconv.Itoa(p.index)) == view.Name
	}
}

// Superseded finds the partitions that others have taken over, and those of which this sidecar has a
// later epoch by a renewal whose answer was lost.
func (o *Table) Superseded(latest []eventlog.Epoch, now time.Time) (lost, renewed []int) {
	for i, e := range latest {
		p := o.Parts[i]
		if e.Number >= p.Tried {
			p.Tried = 0
		}
		if p.State == Foreign || e.Number <= p.Epoch {
			continue
		}
		if e.Number == p.Epoch+1 && e.Owner != p.Life && !e.Released && o.Roster.Ours(e.Owner) {
			p.Renew(e.Number, e.Owner)
			renewed = append(renewed, i)
		} else {
			p.lostAt = now
			lost = append(lost, i)
		}
	}
	return lost, renewed
}

// Orphans are partitions that are this sidecar's in the store, though not here, or that may become
// so: a take whose answer was lost may still be executed, until its number is taken. No other
// sidecar can have them before this one takes them again and releases them.
func (o *Table) Orphans(of []int, latest []eventlog.Epoch) (orphans []int) {
	for _, i := range of {
		if e := latest[i]; !e.Released && o.Roster.Ours(e.Owner) || o.Parts[i].Tried > e.Number {
			orphans = append(orphans, i)
		}
	}
	return orphans
}

func (o *Table) EpochOf(partition int, number uint64, life string) eventlog.Epoch {
	return eventlog.Epoch{
		GroupPartition: eventlog.GroupPartition{Topic: o.Group.Topic, Group: o.Group.Group, Partition: partition},
		Number:         number, Owner: life,
	}
}

// After is the epoch that follows another one.
func (o *Table) After(e eventlog.Epoch, life string) eventlog.Epoch {
	next := o.EpochOf(e.Partition, e.Number+1, life)
	next.Inherit, next.Progress = true, e.Progress
	return next
}

// KeptBy is the epoch of a partition that follows another one with the same owner, who is not asked.
func (o *Table) KeptBy(e eventlog.Epoch, partition int) eventlog.Epoch {
	next := o.EpochOf(partition, e.Number+1, e.Owner)
	next.Released, next.Kept = e.Released || e.Number == 0, !e.Released && e.Number > 0
	return next
}

// Renewals are the next epochs of partitions that this sidecar owned until its life was over.
func (o *Table) Renewals(st *roster.Standing, frozen []int, latest []eventlog.Epoch) (next []eventlog.Epoch) {
	for _, i := range frozen {
		if p := o.Parts[i]; p.State == Owned && p.Life != st.ID && latest[i].Number == p.Epoch {
			next = append(next, o.After(latest[i], st.ID))
		}
	}
	return next
}

// retakeAfter is the least time between the loss of a partition and taking it back from a life that
// counts as gone. Sidecars that hold each other for dead, against all rules, would else take it from
// one another as fast as the store answers.
const retakeAfter = 500 * time.Millisecond

// Free are the next epochs of the missing partitions without a live owner.
func (o *Table) Free(
	st *roster.Standing, view *roster.View, missing []int, latest []eventlog.Epoch, now time.Time,
) (next []eventlog.Epoch) {
	for _, i := range missing {
		e, p := latest[i], o.Parts[i]
		if p.owner != e.Owner {
			p.owner, p.ownerSince = e.Owner, now
		}
		// An epoch of this process's own that is not here is from a take whose answer got lost.
		free := e.Released || o.Roster.Ours(e.Owner) || view.Gone(e.Owner, p.ownerSince) && now.Sub(p.lostAt) >= retakeAfter
		if free && e.Number > 0 && !e.Deleted {
			next = append(next, o.After(e, st.ID))
			continue
		}
		if _, alive := view.Alive(e.Owner); !alive {
			o.Roster.Ask(e.Owner) // a later view may know
		}
	}
	return next
}

// Delivers reports whether events of the partition may be handed out at now.
func (p *Partition) Delivers(st *roster.Standing, now time.Time) bool {
	return p.State == Owned && p.Life == st.ID && st.Valid(now)
}

// Adopt begins to own a partition under an epoch that was taken.
func (p *Partition) Adopt(e eventlog.Epoch) { p.State, p.Epoch, p.Life = Owned, e.Number, e.Owner }

// Disown ends the ownership of a partition.
func (p *Partition) Disown() { p.State, p.Epoch, p.Life = Foreign, 0, "" }

// Renew continues to own a partition in a later life: this sidecar also had the epoch before, so no
// other can have had the partition in between.
func (p *Partition) Renew(number uint64, life string) {
	p.Epoch, p.Life = number, life
}

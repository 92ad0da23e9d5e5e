package group

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/roster"
)

// lookAgain is how long a partition that is due here but still somebody else's
// is left alone, unless something is heard of it.
const lookAgain = time.Second

// balance finds out which partitions this sidecar is to have, lets go of the
// others and takes those that are free. It asks the store only if something is
// missing or in doubt.
func (g *Group) balance() {
	g.moving.Lock()
	defer g.moving.Unlock()
	st, view := g.cfg.Roster.Standing(), g.cfg.Roster.View()
	todo := g.plan(st, view, g.cfg.Clock.Now())
	if !todo.doubt && len(todo.missing) == 0 && len(todo.frozen) == 0 {
		return
	}
	may := view.Known() && st.Valid(g.cfg.Clock.Now())
	if !may && !todo.doubt {
		g.lookLater(false)
		return
	}
	latest, err := g.latest(g.cfg.Context)
	if err != nil {
		g.failed("ask who owns its partitions", err)
		g.lookLater(todo.doubt)
		return
	}
	if g.abandonTaken(latest) { // and there may be more to take now
		g.balancer.Wake()
	}
	if g.recreateDeleted(todo.missing, latest) {
		g.balancer.Wake()
		return
	}
	orphans := g.orphans(todo.absent, latest)
	missing := append(todo.missing, orphans...)
	doubt := len(g.orphans(missing, latest)) > 0 // what is missing here may be due elsewhere when it looks again
	if !may {
		if len(missing) > 0 || len(todo.frozen) > 0 {
			g.lookLater(doubt)
		}
		return
	}
	renewed := g.renewAll(g.cfg.Context, st, todo.frozen, latest)
	switch taken := g.takeAll(g.cfg.Context, st, view, missing, latest); {
	case !taken || !renewed:
		g.lookLater(doubt)
	case len(orphans) > 0:
		g.balancer.Wake() // lets go of them in order
	}
}

// todo is what a balance has to do in the store.
type todo struct {
	doubt   bool  // ask whether another sidecar has taken something
	missing []int // partitions to be taken
	absent  []int // of the others those that are not here, if there is doubt
	frozen  []int // partitions owned by a life of this sidecar that is over
}

// plan compares what is owned with what is to be, and does what needs no store.
func (g *Group) plan(st *roster.Standing, view *roster.View, now time.Time) (x todo) {
	g.mu.Lock()
	defer g.mu.Unlock()
	x.doubt, g.doubt = g.doubt, false
	if g.stopped {
		return todo{}
	}
	due := g.due(view)
	for i, p := range g.parts {
		switch mine := due(p); {
		case mine && p.own == foreign:
			x.missing = append(x.missing, i)
		case x.doubt && p.own == foreign:
			x.absent = append(x.absent, i)
		case mine && p.own == draining:
			p.own = owned
			g.worker.Wake()
		case !mine && p.own == owned:
			g.drain(p, now)
			g.worker.Wake()
		}
		if p.own == owned && p.life != st.ID {
			x.frozen = append(x.frozen, i)
		}
	}
	g.content(len(x.missing) == 0)
	return x
}

// due tells which partitions this sidecar is to have: of the sidecars that have
// members of the group each gets some. While there are none, everybody keeps
// what it has.
func (g *Group) due(view *roster.View) func(*partition) bool {
	others := view.Others(eventlog.GroupName{Topic: g.topic, Group: g.name})
	switch {
	case !view.Known() || len(g.dispatch.members) == 0 && len(others) == 0:
		return func(p *partition) bool { return p.own == owned }
	case len(g.dispatch.members) == 0:
		return func(*partition) bool { return false }
	case len(others) == 0:
		return func(*partition) bool { return true }
	}
	names := append([]string{view.Name}, others...)
	prefix := g.topic + "\x00" + g.name + "\x00"
	return func(p *partition) bool {
		return roster.Owner(names, prefix+strconv.Itoa(p.Index)) == view.Name
	}
}

// content takes note of whether everything is here that is to be.
func (g *Group) content(is bool) {
	if is && !g.complete {
		g.dispatch.assignDue = true // members without a partition are told so
		g.worker.Wake()
	}
	g.complete = is
}

// latest asks for the highest epoch of every partition; the zero value stands
// for those without one.
func (g *Group) latest(ctx context.Context) ([]eventlog.Epoch, error) {
	stored, err := g.cfg.Log.LatestEpochs(ctx, g.topic, g.name)
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	n := len(g.parts)
	g.mu.Unlock()
	return byPartition(stored, n), nil
}

func byPartition(stored []eventlog.Epoch, n int) []eventlog.Epoch {
	all := make([]eventlog.Epoch, n)
	for _, e := range stored {
		if e.Partition < n {
			all[e.Partition] = e
		}
	}
	return all
}

// abandonTaken abandons what others have taken over, and reports whether there was any.
func (g *Group) abandonTaken(latest []eventlog.Epoch) (lost bool) {
	var waiters []func(error)
	found := false
	g.mu.Lock()
	for i, e := range latest {
		p := g.parts[i]
		if e.Number >= p.tried {
			p.tried = 0
		}
		if p.own == foreign || e.Number <= p.epoch {
			continue
		}
		found = true
		g.saver.again = time.Time{} // what failed to be saved for this need not wait
		if e.Number == p.epoch+1 && e.Owner != p.life && !e.Released && g.cfg.Roster.Ours(e.Owner) {
			p.renew(e.Number, e.Owner) // it was renewed here, and the answer got lost
			continue
		}
		lost = true
		g.cfg.Logger.Info("another sidecar has taken over", "topic", g.topic, "group", g.name, "partition", i, "owner", e.Owner)
		waiters = append(waiters, g.abandon(p)...)
	}
	g.mu.Unlock()
	answerAll(waiters, errTakenOver)
	if found {
		g.worker.Wake()
	}
	return lost
}

// recreateDeleted begins the group again where another sidecar has deleted it though it
// has members here, who had come just then: it starts where the first of them
// asked for. It reports whether it has done so.
func (g *Group) recreateDeleted(missing []int, latest []eventlog.Epoch) bool {
	if !slices.ContainsFunc(missing, func(i int) bool { return latest[i].Deleted }) {
		return false
	}
	g.mu.Lock()
	g.created = false
	var o wire.SubscribeOptions
	if len(g.dispatch.members) > 0 {
		o = g.dispatch.members[0].requested
	}
	g.mu.Unlock()
	if err := g.create(g.cfg.Context, o); err != nil {
		g.failed("begin again, since it was deleted", err)
		g.lookLater(true)
		return false
	}
	return true
}

// orphans are those of the partitions that the store says are this sidecar's, or
// that it may say so of once a take whose answer got lost is executed: until
// somebody has that number. Nobody else can have them before they are taken
// again and released.
func (g *Group) orphans(partitions []int, latest []eventlog.Epoch) (orphans []int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, i := range partitions {
		if e, p := latest[i], g.parts[i]; !e.Released && g.cfg.Roster.Ours(e.Owner) || p.tried > e.Number {
			orphans = append(orphans, i)
		}
	}
	return orphans
}

// epochOf is an epoch that is to be taken.
func (g *Group) epochOf(partition int, number uint64, life string) eventlog.Epoch {
	return eventlog.Epoch{
		GroupPartition: eventlog.GroupPartition{Topic: g.topic, Group: g.name, Partition: partition},
		Number:         number, Owner: life,
	}
}

// renewAll takes the next epoch of partitions that this sidecar owned until its
// life was over. It reports whether nothing is left of that.
func (g *Group) renewAll(ctx context.Context, st *roster.Standing, frozen []int, latest []eventlog.Epoch) bool {
	var next []eventlog.Epoch
	g.mu.Lock()
	for _, i := range frozen {
		if p := g.parts[i]; p.own == owned && p.life != st.ID && latest[i].Number == p.epoch {
			e := g.epochOf(i, p.epoch+1, st.ID)
			e.Inherit, e.Progress = true, latest[i].Progress
			next = append(next, e)
		}
	}
	g.mu.Unlock()
	if len(next) == 0 {
		return true
	}
	errs := g.cfg.Log.TakeEpochs(ctx, next)
	done := true
	g.mu.Lock()
	for i, e := range next {
		p := g.parts[e.Partition]
		switch {
		case errors.Is(errs[i], eventlog.ErrEpochTaken):
			g.doubt = true
			g.balancer.Wake()
		case errs[i] != nil:
			done, g.doubt, p.tried = false, true, max(p.tried, e.Number)
		case p.own != foreign && p.epoch+1 == e.Number:
			p.renew(e.Number, e.Owner)
			g.dispatch.assignDue = true
		}
	}
	g.mu.Unlock()
	g.worker.Wake()
	return done
}

// takeAll takes the missing partitions that are free, and reports whether those
// were all.
func (g *Group) takeAll(ctx context.Context, st *roster.Standing, view *roster.View, missing []int, latest []eventlog.Epoch) bool {
	next := g.free(st, view, missing, latest, g.cfg.Clock.Now())
	all := len(next) == len(missing)
	if len(next) == 0 {
		return all
	}
	taken := make([]uint64, len(latest)) // epochs by partition
	won, sure := false, true
	for i, err := range g.cfg.Log.TakeEpochs(ctx, next) {
		if err == nil {
			taken[next[i].Partition], won = next[i].Number, true
			continue
		}
		all, sure = false, false // an earlier try may have won, and be late
		if !errors.Is(err, eventlog.ErrEpochTaken) {
			g.try(next[i])
		}
	}
	if !sure {
		g.refreshOwners()
	}
	if !won {
		return false
	}
	inherited, err := g.latest(ctx)
	if err == nil {
		var extents []eventlog.Extent
		if extents, err = g.cfg.Log.Extents(ctx, g.topic); err == nil {
			g.adoptAll(taken, inherited, extents)
			g.mu.Lock()
			g.content(all)
			g.mu.Unlock()
			return all
		}
	}
	g.failed("read the progress of what it has taken", err) // it is ours, and taken again
	g.refreshOwners()
	return false
}

// try takes note of a take that may be executed, now or later.
func (g *Group) try(e eventlog.Epoch) {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.parts[e.Partition]
	p.tried = max(p.tried, e.Number)
}

// free is the next epochs of the missing partitions that nobody owns any more.
func (g *Group) free(st *roster.Standing, view *roster.View, missing []int, latest []eventlog.Epoch, heard time.Time) []eventlog.Epoch {
	var next []eventlog.Epoch
	for _, i := range missing {
		e, p := latest[i], g.parts[i]
		if p.rival != e.Owner {
			p.rival, p.rivalHeard = e.Owner, heard
		}
		// What is this process's own, but not in its hands, is from a take
		// whose answer got lost.
		if e.Number > 0 && !e.Deleted && (e.Released || g.cfg.Roster.Ours(e.Owner) || view.Gone(e.Owner, p.rivalHeard)) {
			n := g.epochOf(i, e.Number+1, st.ID)
			n.Inherit, n.Progress = true, e.Progress
			next = append(next, n)
			continue
		}
		if _, alive := view.Alive(e.Owner); !alive {
			g.cfg.Roster.Ask(e.Owner) // a later view knows
		}
	}
	return next
}

// adoptAll begins with the partitions that were taken.
func (g *Group) adoptAll(taken []uint64, inherited []eventlog.Epoch, extents []eventlog.Extent) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, e := range inherited {
		if p := g.parts[i]; taken[i] != 0 && e.Number == taken[i] && p.own == foreign {
			g.adopt(p, e, extents[i].Head)
		}
	}
	g.worker.Wake()
}

// refreshOwners makes the next balance ask who owns what.
func (g *Group) refreshOwners() {
	g.mu.Lock()
	g.doubt = true
	g.mu.Unlock()
}

// lookLater balances again after a while, and asks then if there is doubt.
func (g *Group) lookLater(doubt bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.doubt = g.doubt || doubt
	if !g.stopped {
		g.lookout.Reset(lookAgain - time.Duration(rand.Int64N(int64(lookAgain)/4)))
	}
}

// failed tells of a store that does not answer, except for a stop.
func (g *Group) failed(what string, err error) {
	if g.cfg.Context.Err() == nil {
		g.cfg.Logger.Warn("consumer group cannot "+what, "topic", g.topic, "group", g.name, "error", err)
	}
}

// suspect lets the group ask soon whether somebody has taken over what it owns.
func (g *Group) suspect() {
	g.lookForRedrives()
	g.refreshOwners()
	g.balancer.Wake()
}

// looked follows a look around of the roster.
func (g *Group) looked(changed bool) {
	g.mu.Lock()
	lapsed := g.lapsed
	g.mu.Unlock()
	if lapsed {
		g.worker.Wake() // it may be valid again
	}
	if changed {
		g.balancer.Wake()
	}
}

// check lets the group ask whether it still owns what it has; false says that
// it has nothing.
func (g *Group) check() bool {
	g.mu.Lock()
	owns := g.parts.any()
	g.mu.Unlock()
	if owns {
		g.suspect()
	}
	return owns
}

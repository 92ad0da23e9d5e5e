package group

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/group/dispatch"
	"github.com/sluice-bus/sluice/sidecar/internal/group/ownership"
	"github.com/sluice-bus/sluice/sidecar/internal/roster"
)

// balance compares the partitions that this sidecar has with those that are assigned here, begins to
// drain the others and takes the free ones. It asks the store only if a partition is missing or in
// doubt.
func (g *Group) balance() {
	g.moving.Lock()
	defer g.moving.Unlock()
	st, view := g.cfg.Roster.Standing(), g.cfg.Roster.View()
	todo := g.plan(st, view)
	if !todo.Doubt && len(todo.Missing) == 0 && len(todo.Frozen) == 0 {
		g.unanswered.remove(g.id)
		return
	}
	may := view.Known() && st.Valid(g.cfg.Clock.Now())
	if !may && !todo.Doubt {
		g.lookLater(false)
		return
	}
	latest, err := g.latest(g.cfg.Context)
	if err != nil {
		if g.cfg.Context.Err() == nil {
			g.unanswered.add(g.id, err)
		}
		g.lookLater(todo.Doubt)
		return
	}
	g.unanswered.remove(g.id)
	if g.abandonTaken(latest) { // and there may be more to take now
		g.balancer.Wake()
	}
	if g.recreateDeleted(todo.Missing, latest) {
		g.balancer.Wake()
		return
	}
	g.mu.Lock()
	orphans := g.own.Orphans(todo.Absent, latest)
	missing := append(todo.Missing, orphans...)
	doubt := len(g.own.Orphans(missing, latest)) > 0 // the next look may find it assigned elsewhere
	g.mu.Unlock()
	if !may {
		if len(missing) > 0 || len(todo.Frozen) > 0 {
			g.lookLater(doubt)
		}
		return
	}
	renewed := g.renewAll(g.cfg.Context, st, todo.Frozen, latest)
	switch taken := g.takeAll(g.cfg.Context, st, view, missing, latest); {
	case !taken || !renewed:
		g.lookLater(doubt)
	case len(orphans) > 0:
		g.balancer.Wake() // lets go of them in order
	}
}

func (g *Group) plan(st *roster.Standing, view *roster.View) ownership.Todo {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stopped {
		return ownership.Todo{}
	}
	x, changed := g.own.Plan(st, view, len(g.members) > 0, g.cfg.Clock.Now())
	if changed {
		g.dispatch.NeedsDivision = true
		g.worker.Wake()
	}
	return x
}

// abandonTaken abandons the partitions that others have taken over, and reports whether there were
// any.
func (g *Group) abandonTaken(latest []eventlog.Epoch) bool {
	g.mu.Lock()
	lost, renewed := g.own.Superseded(latest, g.cfg.Clock.Now())
	for _, i := range renewed {
		g.parts[i].Dirty = true
		g.parts[i].Withdraw()
	}
	for _, i := range lost {
		p := g.parts[i]
		g.cfg.Logger.Info("another sidecar has taken over",
			"topic", g.id.Topic, "group", g.id.Group, "partition", i, "owner", latest[i].Owner)
		g.abandon(p)
		g.own.Doubt = g.own.Doubt || g.cfg.Roster.Ours(latest[i].Owner) // it was kept for this sidecar: an orphan now
	}
	found := len(lost)+len(renewed) > 0
	if found {
		g.saver.retryAt = time.Time{} // a save that failed because of this need not wait
	}
	g.mu.Unlock()
	if found {
		g.worker.Wake()
	}
	return len(lost) > 0
}

// recreateDeleted creates the group again if another sidecar deleted it just as members arrived
// here: it starts where the first member asked for. It reports whether it has created the group.
func (g *Group) recreateDeleted(missing []int, latest []eventlog.Epoch) bool {
	if !slices.ContainsFunc(missing, func(i int) bool { return latest[i].Deleted }) {
		return false
	}
	g.mu.Lock()
	g.own.Created = false
	var o wire.SubscribeOptions
	if len(g.members) > 0 {
		o = g.members[0].window.Requested
	}
	g.mu.Unlock()
	if err := g.create(g.cfg.Context, o); err != nil {
		g.warn("begin again, since it was deleted", err)
		g.lookLater(true)
		return false
	}
	return true
}

// takeEpochs takes epochs, and returns those that it got. After a failure the next balance asks the
// store: another sidecar has taken the epoch, or the store has executed, or may still execute, a
// take whose answer was lost.
func (g *Group) takeEpochs(ctx context.Context, next []eventlog.Epoch) (won []eventlog.Epoch, err error) {
	if len(next) == 0 {
		return nil, nil
	}
	errs := g.cfg.Log.TakeEpochs(ctx, next)
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, e := range next {
		if errs[i] == nil {
			won = append(won, e)
		} else if g.own.Doubt = true; !errors.Is(errs[i], eventlog.ErrEpochTaken) {
			p := g.own.Parts[e.Partition]
			p.Tried = max(p.Tried, e.Number)
		}
	}
	return won, errors.Join(errs...)
}

// renewAll takes the next epoch of partitions that this sidecar owned until its life was over. It
// reports whether no such partition is left to renew.
func (g *Group) renewAll(ctx context.Context, st *roster.Standing, frozen []int, latest []eventlog.Epoch) bool {
	g.mu.Lock()
	next := g.own.Renewals(st, frozen, latest)
	g.mu.Unlock()
	if len(next) == 0 {
		return true
	}
	won, err := g.takeEpochs(ctx, next)
	if errors.Is(err, eventlog.ErrEpochTaken) {
		g.balancer.Wake()
	}
	g.mu.Lock()
	for _, e := range won {
		if p := g.parts[e.Partition]; p.own.State != ownership.Foreign && p.own.Epoch+1 == e.Number {
			p.own.Renew(e.Number, e.Owner)
			p.Withdraw()
			p.Dirty, g.dispatch.NeedsDivision = true, true
		}
	}
	g.mu.Unlock()
	g.worker.Wake()
	return err == nil
}

// takeAll takes the missing partitions that are free, and reports whether it got all missing ones.
func (g *Group) takeAll(ctx context.Context, st *roster.Standing, view *roster.View, missing []int, latest []eventlog.Epoch) bool {
	g.mu.Lock()
	next := g.own.Free(st, view, missing, latest, g.cfg.Clock.Now())
	g.mu.Unlock()
	won, err := g.takeEpochs(ctx, next)
	all := len(next) == len(missing) && err == nil
	if len(won) == 0 {
		return all
	}
	inherited, err := g.latest(ctx)
	if err == nil {
		var extents []eventlog.Extent
		if extents, err = g.cfg.Log.Extents(ctx, g.id.Topic); err == nil {
			g.adopt(won, inherited, extents, all)
			return all
		}
	}
	g.warn("read the progress of the partitions taken", err) // it is ours, and is taken again
	g.refreshOwners()
	return false
}

// adopt begins to own partitions whose epochs were taken; all says that no other partition is
// missing.
func (g *Group) adopt(won, inherits []eventlog.Epoch, extents []eventlog.Extent, all bool) {
	now, ended := g.cfg.Clock.Now(), g.cfg.Roster.View().Ended
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, e := range won {
		p, last := g.parts[e.Partition], inherits[e.Partition]
		if p.own.State == ownership.Foreign && last.Number == e.Number {
			p.own.Adopt(last)
			p.Dirty = false
			p.Head = max(p.Head, extents[p.Index].Head)
			p.Restore(dispatch.Inherit(last.Progress, ended, extents[p.Index].Head, now), now)
		}
	}
	g.own.Completed(all)
	g.dispatch.NeedsDivision = true
	g.worker.Wake()
}

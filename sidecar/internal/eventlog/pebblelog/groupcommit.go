package pebblelog

import (
	"context"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// groupCommit is the new events of batches that become one change: one frame of the journal, one batch of the index.
// It holds the claims and the turns of its members from join to apply.
type groupCommit struct {
	log     *Log
	members []*appending
	change  change
	index   indexer
	tallied tallied
}

// join decides on a batch, and makes its new events, if there are some, part of the commit. False without an error says
// that another append, or a member, holds what the batch needs.
func (g *groupCommit) join(ctx context.Context, a *appending) (decided bool, err error) {
	wait := len(g.members) == 0
	if a.unclaim, err = a.topic.claims.acquire(ctx, a.ids, wait); err != nil || a.unclaim == nil {
		return false, err
	}
	switch err = a.decide(ctx); {
	case err != nil:
	case len(a.fresh)+len(a.later) == 0:
		decided = true
	default:
		decided, err = a.lock(ctx, wait)
		if !decided {
			break
		}
		if err = g.add(a); err == nil {
			return true, nil
		}
		a.part.turn.Unlock()
	}
	a.unclaim()
	return decided, err
}

// add makes a batch, whose claims and turn are held, a member.
func (g *groupCommit) add(a *appending) error {
	if g.index.batch == nil {
		g.index.batch = g.log.db.NewBatch()
	}
	a.first, a.last, a.order = a.part.last+1, a.part.last+uint64(len(a.fresh)), a.part.order
	// This may fail, and comes before anything of the batch is in the change.
	if err := a.strays().raise(g.log, g.index.batch); err != nil {
		return err
	}
	g.members = append(g.members, a)
	a.encode(&g.change, &g.index)
	if delta := a.schedule(&g.change); delta.Events != 0 {
		if g.tallied == nil {
			g.tallied = tallied{}
		}
		g.tallied[a.topic] = g.tallied[a.topic].Plus(delta)
	}
	return nil
}

// strays are the new events that are out of order.
func (a *appending) strays() (h highest) {
	order := a.order
	for n, i := range a.fresh {
		r := a.batch[i]
		if order.take(r)&flagOutOfOrder == 0 {
			continue
		}
		if h == nil {
			h = highest{}
		}
		h.add(nodeOf(a.topic.id, a.partition, 0, a.first+uint64(n)), eventlog.Point{TS: r.TS, ID: r.ID})
	}
	return h
}

// lock takes the partition's turn, unless the topic is gone.
func (a *appending) lock(ctx context.Context, wait bool) (locked bool, err error) {
	if locked = a.part.turn.TryLock(); !locked && wait {
		select {
		case a.part.turn <- struct{}{}:
			locked = true
		case <-ctx.Done():
			err = ctx.Err()
		case <-a.log.space.isFull(): // who has it may wait for room
			err = &eventlog.DiskFullError{}
		}
	}
	if locked && a.topic.gone.Load() {
		a.part.turn.Unlock()
		return false, eventlog.NotFound("topic %q", a.topic.name)
	}
	return locked, err
}

// encode adds the new events, with their seqs, and the entries that find them.
func (a *appending) encode(ch *change, index *indexer) {
	if len(a.fresh) == 0 {
		return
	}
	if ch.events == nil {
		ch.events = newRunWriter()
	}
	ch.events.begin(a.topic.id, a.partition, a.first)
	index.topic = a.topic.id
	for n, i := range a.fresh {
		r := a.batch[i]
		flags := a.order.take(r)
		if flags&flagOutOfOrder == 0 && a.timed(r) {
			flags |= flagTimedID
		}
		ch.events.add(r, flags)
		index.add(r, location{partition: a.partition, seq: a.first + uint64(n)}, flags)
	}
	ch.events.finish()
}

// apply makes the change visible in the index, and starts its sync. It gives back what the members hold.
func (g *groupCommit) apply(ctx context.Context) {
	if g.index.batch == nil {
		return
	}
	g.change.indexed = g.index.batch
	defer g.change.free()
	if len(g.members) == 0 {
		return
	}
	if g.change.events != nil {
		g.change.events.end()
	}
	members := g.members
	g.tallied.begin()
	x, err := g.log.commits.apply(ctx, &g.change, func() {
		for _, a := range members {
			a.part.head.Store(a.last)
		}
	})
	g.tallied.end(err == nil)
	for _, a := range members {
		if a.commit, a.err = x, err; err == nil {
			a.part.last, a.part.order = a.last, a.order
			for n, i := range a.fresh {
				a.out[i] = eventlog.Outcome{Partition: a.partition, Seq: a.first + uint64(n), TS: a.batch[i].TS}
			}
		}
		a.part.turn.Unlock()
		a.unclaim() // a look-up finds the ids now
	}
}

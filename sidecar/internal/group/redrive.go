package group

import (
	"context"
	"errors"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/group/dispatch"
	"github.com/sluice-bus/sluice/sidecar/internal/group/ownership"
	"github.com/sluice-bus/sluice/sidecar/internal/retention"
)

// Redriven says that the group has new redrives: its sidecars look for them.
func (m *Manager) Redriven(topic, name string) {
	if g := m.loaded(topic, name); g != nil {
		g.lookForRedrives()
	}
	m.cfg.tellMoved(topic, name)
}

// lookForRedrives makes the next turn with room ask for redrives.
func (g *Group) lookForRedrives() {
	g.mu.Lock()
	for _, p := range g.parts {
		p.Redrive.Look = true
	}
	g.mu.Unlock()
	g.worker.Wake()
}

// redrivesToFetch are the partitions that may have new redrives, and have room for them.
func (g *Group) redrivesToFetch(now time.Time) (parts []*partition) {
	if g.stopped || g.lapsed || g.watch == nil || len(g.members) == 0 || g.redriveDue.After(now) || g.dispatch.Want() <= 0 {
		return nil
	}
	for _, p := range g.parts {
		if p.own.State == ownership.Owned && p.Redrive.Wanted() {
			parts = append(parts, p)
		}
	}
	return parts
}

// redriving is a read of one partition's redrives.
type redriving struct {
	*partition
	was  int // the partition's generation
	have map[string]bool
	rs   []eventlog.Redrive
	full bool // there may be more
}

func (g *Group) fetchRedrives(ctx context.Context) {
	g.mu.Lock()
	parts := g.redrivesToFetch(g.cfg.Clock.Now())
	list := make([]*redriving, len(parts))
	for i, p := range parts {
		list[i] = &redriving{partition: p, was: p.Generation, have: p.Redrive.Begin()}
	}
	exactlyOnce := g.dispatch.ExactlyOnce()
	g.mu.Unlock()
	if len(list) == 0 {
		return
	}
	dead, over, err := g.readRedrives(ctx, list, exactlyOnce)
	g.mu.Lock()
	defer g.mu.Unlock()
	if err != nil {
		if ctx.Err() == nil {
			g.cfg.Logger.Warn("consumer group cannot read its redrives", "topic", g.topic, "group", g.name, "error", err)
		}
		g.redriveDue = g.cfg.Clock.Now().Add(retryAfterFailure)
		for _, r := range list {
			r.Redrive.Look = true
		}
		return
	}
	for _, r := range list {
		if r.was != r.Generation || r.own.State != ownership.Owned || len(g.members) == 0 {
			r.Redrive.Look = true
		} else {
			g.dispatch.AdmitRedrives(r.Partition, r.rs, r.full, dead, func(x eventlog.Redrive) bool {
				return over[x.Letter] || g.dispatch.ExactlyOnce() && g.saver.isMarked(dead[x.Letter].ID)
			}, g.cfg.Clock.Now())
		}
	}
}

// readRedrives reads the redrives of partitions. Its first query usually finds none. dead has the
// events of redrives whose dead letters exist; the other redrives are ended. over has the settled
// letters.
func (g *Group) readRedrives(ctx context.Context, list []*redriving, exactlyOnce bool) (dead map[string]*eventlog.Record, over map[string]bool, err error) {
	const most = 2 * dispatch.RedrivesAhead
	all, err := g.cfg.Log.ListRedrives(ctx, g.topic, g.name, -1, most)
	if err != nil {
		return nil, nil, err
	}
	var letters []string
	var void []eventlog.Redrive
	for _, r := range list {
		of := all
		if len(all) == most {
			if of, err = g.cfg.Log.ListRedrives(ctx, g.topic, g.name, r.Index, most); err != nil {
				return nil, nil, err
			}
			r.full = len(of) == most
		}
		r.rs = firstOfEach(of, r.Index)
		for _, x := range r.rs {
			if !r.have[x.Letter] {
				letters = append(letters, x.Letter)
			}
		}
	}
	if dead, err = deadEvents(ctx, g.cfg.Log, g.topic, letters); err != nil {
		return nil, nil, err
	}
	if over, err = g.redrivesOver(ctx, dead, exactlyOnce); err != nil {
		return nil, nil, err
	}
	for _, r := range list {
		for _, x := range r.rs {
			if !r.have[x.Letter] && dead[x.Letter] == nil {
				void = append(void, x)
				r.full = true // the next one may be for the same event
			}
		}
	}
	if len(void) > 0 {
		err = g.cfg.Log.EndRedrives(ctx, g.topic, void)
	}
	return dead, over, err
}

// redrivesOver finds the settled letters: an earlier owner appended the next dead letter but died
// before it saved that, or the group acked the event.
func (g *Group) redrivesOver(ctx context.Context, dead map[string]*eventlog.Record, exactlyOnce bool) (map[string]bool, error) {
	var letters, next, ids []string
	for letter, rec := range dead {
		letters, next, ids = append(letters, letter), append(next, eventlog.NextLetter(letter)), append(ids, rec.ID)
	}
	again, err := lookupDead(ctx, g.cfg.Log, g.topic, next)
	if err != nil {
		return nil, err
	}
	var marked map[string]bool
	if exactlyOnce {
		if marked, err = g.marked(ctx, ids); err != nil {
			return nil, err
		}
	}
	over := map[string]bool{}
	for i, letter := range letters {
		over[letter] = again[i] != nil || marked[ids[i]]
	}
	return over, nil
}

// lookupDead finds dead letters of a topic by id; nil for a missing one.
func lookupDead(ctx context.Context, log Log, topic string, letters []string) ([]*eventlog.Record, error) {
	if len(letters) == 0 {
		return nil, nil
	}
	found, err := log.LookupEach(ctx, topic+wire.DeadLetterSuffix, letters)
	if errors.Is(err, eventlog.ErrNotFound) { // the topic does not exist
		return make([]*eventlog.Record, len(letters)), nil
	}
	return found, err
}

// firstOfEach are the redrives of a partition. If there are two of one dead letter, it returns the
// earlier one, which is about to be removed.
func firstOfEach(all []eventlog.Redrive, partition int) (rs []eventlog.Redrive) {
	for _, r := range all {
		n := len(rs)
		switch {
		case r.Partition != partition:
		case n > 0 && rs[n-1].Seq == r.Seq && eventlog.StableLetterID(rs[n-1].Letter) == eventlog.StableLetterID(r.Letter):
			if eventlog.Deaths(r.Letter) < eventlog.Deaths(rs[n-1].Letter) {
				rs[n-1] = r
			}
		default:
			rs = append(rs, r)
		}
	}
	return rs
}

// deadEvents are the events of the existing dead letters: the topic's event, or else the dead
// letter's copy.
func deadEvents(ctx context.Context, log Log, topic string, letters []string) (map[string]*eventlog.Record, error) {
	found, err := lookupDead(ctx, log, topic, letters)
	if err != nil {
		return nil, err
	}
	events := map[string]*eventlog.Record{}
	var dead []eventlog.Dead
	var ids []string
	for _, rec := range found {
		if rec == nil {
			continue
		}
		if d, ok := eventlog.ReadDead(rec); ok {
			dead, ids = append(dead, d), append(ids, d.Event.ID)
		}
	}
	if len(ids) == 0 {
		return events, nil
	}
	originals, err := log.LookupEach(ctx, topic, ids)
	if err != nil {
		return nil, err
	}
	for i, d := range dead {
		if o := originals[i]; o != nil && o.Partition == d.Event.Partition && o.Seq == d.Event.Seq {
			d.Event = o
		}
		rec := *d.Event
		rec.Headers = rec.Headers.With(wire.HeaderRedriven, d.ID)
		events[d.Letter.ID] = &rec
	}
	return events, nil
}

// end removes redrives that are settled and saved as settled, unless that save failed: first the
// dead letters, and then the redrives. After a failure it tries again.
func (g *Group) end(rs []eventlog.Redrive, failed error) error {
	ctx := g.cfg.Context
	letters := make([]string, len(rs))
	for i, r := range rs {
		letters[i] = r.Letter
	}
	err := failed
	if err == nil {
		rules := retention.Rules(g.cfg.Policy(g.topic + wire.DeadLetterSuffix))
		_, err = g.cfg.Log.Remove(ctx, g.topic+wire.DeadLetterSuffix, letters, rules, g.cfg.Clock.Now().UnixMilli())
		if err == nil || errors.Is(err, eventlog.ErrNotFound) {
			err = g.cfg.Log.EndRedrives(ctx, g.topic, rs)
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if err != nil {
		if failed == nil && ctx.Err() == nil {
			g.cfg.Logger.Warn("consumer group cannot remove settled dead letters", "topic", g.topic, "group", g.name, "error", err)
		}
		g.saver.ended = append(g.saver.ended, rs...)
		g.saver.endAgain = g.cfg.Clock.Now().Add(retryAfterFailure)
		g.worker.Wake()
		return err
	}
	gone := map[string]bool{}
	for _, letter := range letters {
		gone[letter] = true
	}
	for _, p := range g.parts {
		if p.Redrive.Gone(gone) {
			g.worker.Wake()
		}
	}
	return nil
}

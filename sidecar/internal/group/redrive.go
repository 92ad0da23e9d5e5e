package group

import (
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/retention"
)

// redrivesAhead bounds the redriven dead letters of a partition that are in memory.
const redrivesAhead = 512

// redriveQueue is the redriven dead letters of a partition: they are independent of the cursor, and
// delivered like other events. A redrive inserts them into the store, where they stay until their
// dead letters are gone; the owner of the partition reads them there. Their state so far is part of
// its progress.
//
// An ack is saved first (done), and the dead letter is removed only after that: an owner that was
// fenced removes nothing. The ack is answered after the removal, so no list shows an acked event.
// If an event dies again, its next dead letter is appended, under the next id, before the earlier
// one is removed.
type redriveQueue struct {
	// entries are those in memory, by arrival, until their dead letters are gone.
	entries []*entry
	// known is the stored progress of others, by letter.
	known map[string]knownRedrive
	// look says that the store may have further redrives.
	look bool
	// more says that the store has redrives that are not in memory.
	more bool
}

// knownRedrive is a redrive that is not in memory, and when it is due.
type knownRedrive struct {
	eventlog.RedriveProgress
	due time.Time
}

func (q *redriveQueue) restore(rs []eventlog.RedriveProgress, now time.Time) {
	*q = redriveQueue{known: map[string]knownRedrive{}, look: true}
	for _, r := range rs {
		q.known[r.Letter] = knownRedrive{r, dueAt(r.Until, now)}
	}
}

// progress is the progress to save.
func (q *redriveQueue) progress(now time.Time) (rs []eventlog.RedriveProgress) {
	for _, e := range q.entries {
		r := eventlog.RedriveProgress{
			Seq: e.seq, Letter: e.letter, Attempts: e.attempts,
			Out: e.state == inflight, Unsure: e.unsure, Done: e.state == settled,
		}
		if e.state == delayed {
			r.Until, r.Left = untilDue(e.due, now)
		}
		if r.Attempts > 0 || r.Done || r.Until != 0 {
			rs = append(rs, r)
		}
	}
	for _, letter := range slices.Sorted(maps.Keys(q.known)) {
		k := q.known[letter]
		if !k.due.IsZero() {
			k.Until, k.Left = untilDue(k.due, now)
		}
		rs = append(rs, k.RedriveProgress)
	}
	return rs
}

// toEnd returns the redrives that were settled since its last call.
func (q *redriveQueue) toEnd(topic, group string, partition int) (rs []eventlog.Redrive) {
	for _, e := range q.entries {
		if e.state == settled && !e.ending {
			e.ending = true
			rs = append(rs, eventlog.Redrive{
				GroupPartition: eventlog.GroupPartition{Topic: topic, Group: group, Partition: partition}, Seq: e.seq, Letter: e.letter,
			})
		}
	}
	return rs
}

// endAgain makes toEnd return all of them again.
func (q *redriveQueue) endAgain() {
	for _, e := range q.entries {
		e.ending = false
	}
}

// open is the number of redrives in memory that are not settled.
func (q *redriveQueue) open() (n int) {
	for _, e := range q.entries {
		if e.state != settled {
			n++
		}
	}
	return n
}

// all are the partition's events in memory, the redriven ones too.
func (p *partition) all() iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		for _, es := range [][]*entry{p.entries, p.redrive.entries} {
			for _, e := range es {
				if !yield(e) {
					return
				}
			}
		}
	}
}

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
	for _, p := range g.own.parts {
		p.redrive.look = true
	}
	g.mu.Unlock()
	g.worker.Wake()
}

// redrivesToFetch are the partitions that may have new redrives, and have room for them.
func (g *Group) redrivesToFetch(now time.Time) (parts []*partition) {
	if g.stopped || g.lapsed || g.watch == nil || len(g.dispatch.members) == 0 || g.redriveDue.After(now) || g.dispatch.want() <= 0 {
		return nil
	}
	for _, p := range g.own.parts {
		if p.own == owned && p.redrive.look && p.redrive.open() < redrivesAhead/2 {
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
		p.redrive.look = false
		list[i] = &redriving{partition: p, was: p.generation, have: map[string]bool{}}
		for _, e := range p.redrive.entries {
			list[i].have[e.letter] = true
		}
	}
	exactlyOnce := g.dispatch.members.exactlyOnce()
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
			r.redrive.look = true
		}
		return
	}
	for _, r := range list {
		if r.was != r.generation || r.own != owned || len(g.dispatch.members) == 0 {
			r.redrive.look = true
		} else {
			g.admitRedrives(r, dead, over)
		}
	}
}

// readRedrives reads the redrives of partitions. Its first query usually finds none. dead has the
// events of redrives whose dead letters exist; the other redrives are ended. over has the settled
// letters.
func (g *Group) readRedrives(ctx context.Context, list []*redriving, exactlyOnce bool) (dead map[string]*eventlog.Record, over map[string]bool, err error) {
	const most = 2 * redrivesAhead
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

func (g *Group) admitRedrives(r *redriving, dead map[string]*eventlog.Record, over map[string]bool) {
	l := &r.redrive
	listed := map[string]bool{}
	l.more = r.full
	for _, x := range r.rs {
		listed[x.Letter] = true
		rec := dead[x.Letter]
		if r.have[x.Letter] || rec == nil {
			continue
		}
		if l.open() >= redrivesAhead || g.dispatch.held >= g.cfg.Bounds.HeldBytes {
			l.more = true
			break
		}
		rec.Partition, rec.Seq = x.Partition, x.Seq // older dead letters do not name it
		k := l.known[x.Letter]
		delete(l.known, x.Letter)
		e := &entry{rec: rec, part: r.partition, seq: x.Seq, index: -1, letter: x.Letter, attempts: k.Attempts, unsure: k.Unsure, due: k.due}
		l.entries = append(l.entries, e)
		if k.Done || over[x.Letter] || g.saver.isMarked(rec.ID) && g.dispatch.members.exactlyOnce() {
			e.state, e.rec = settled, nil
			r.dirty = true
			continue
		}
		g.dispatch.admit(e, false, g.cfg.Clock.Now())
	}
	if !l.more { // redrives that are no longer in the store are settled
		maps.DeleteFunc(l.known, func(letter string, _ knownRedrive) bool { return !listed[letter] })
	}
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
	for _, p := range g.own.parts {
		l := &p.redrive
		before := len(l.entries)
		l.entries = slices.DeleteFunc(l.entries, func(e *entry) bool { return e.state == settled && gone[e.letter] })
		maps.DeleteFunc(l.known, func(letter string, _ knownRedrive) bool { return gone[letter] })
		if len(l.entries) < before && l.more {
			l.look = true
			g.worker.Wake()
		}
	}
	return nil
}

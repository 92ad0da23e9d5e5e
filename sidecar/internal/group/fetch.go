package group

import (
	"context"
	"slices"
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/group/deadletter"
	"github.com/sluice-bus/sluice/sidecar/internal/group/dispatch"
	"github.com/sluice-bus/sluice/sidecar/internal/group/ownership"
	"github.com/sluice-bus/sluice/sidecar/internal/reader"
)

// fetch reads as many events as members have room for in addition to the ready ones. Only the
// worker fetches. So a partition's Next moves only here and in drop, and the generation shows
// whether drop has moved it.
func (g *Group) fetch(ctx context.Context) {
	for range pagesPerTurn {
		g.mu.Lock()
		f := g.nextFetch(g.cfg.Clock.Now())
		g.mu.Unlock()
		if f == nil {
			return
		}
		err := f.read(ctx, g)
		g.mu.Lock()
		g.admit(f, err)
		g.mu.Unlock()
	}
}

// fetching is one read from the log, of one partition or of several.
type fetching struct {
	parts  []*fetchingPart
	bounds eventlog.Bounds
	// exactlyOnce asks for marked: the ids of read events that the group acked before.
	exactlyOnce bool
	marked      map[string]bool
}

type fetchingPart struct {
	*partition
	place eventlog.Place
	was   int // the partition's generation
	page  reader.Page

	attempts []eventlog.AttemptRange // the partition's
	since    int64
	dead     map[uint64]bool // the events of the page that have a dead letter already
}

// eachReader is a log that reads several partitions at once; see eventlog.Shared.
type eachReader interface {
	ReadEach(ctx context.Context, topic string, places []eventlog.Place, b eventlog.Bounds) ([][]*eventlog.Record, error)
}

// nextFetch picks the partitions to read next; nil if there is nothing to read, or no room. A
// partition whose next events are in the tail is read from there. Other partitions are read
// together if the log can do that.
func (g *Group) nextFetch(now time.Time) *fetching {
	p := g.nextToFetch(now)
	if g.stopped || p == nil {
		return nil
	}
	g.fetchAt = p.Index
	room := g.cfg.Bounds.HeldBytes - g.dispatch.Bytes
	if g.dispatch.NoMemory() {
		room = 1 // one event, so that other groups never stop this one
	}
	most := g.cfg.Bounds.Lookahead - p.Ahead
	if g.dispatch.LooksAhead() { // one whole read beyond the bounds instead of many small ones
		most, room = g.cfg.Bounds.FetchEvents, g.cfg.Bounds.FetchBytes
	}
	f := &fetching{bounds: eventlog.Bounds{
		Events: min(g.dispatch.Demand(), g.cfg.Bounds.FetchEvents, most),
		Bytes:  min(g.cfg.Bounds.FetchBytes, room),
	}, exactlyOnce: g.dispatch.ExactlyOnce()}
	first := f.add(p)
	first.page.Records = g.watch.Read(p.Index, p.Next, f.bounds)
	if _, ok := g.cfg.Log.(eachReader); !ok || len(first.page.Records) > 0 || p.Vain() > aloneAfter {
		return f
	}
	for i := range g.parts {
		o := g.parts[(p.Index+1+i)%len(g.parts)]
		if o == p || len(f.parts) >= f.bounds.Events || !g.fetchable(o, now) || o.Vain() > aloneAfter {
			continue
		}
		if len(g.watch.Read(o.Index, o.Next, eventlog.Bounds{Events: 1})) == 0 {
			f.add(o)
		}
	}
	return f
}

func (f *fetching) add(p *partition) *fetchingPart {
	fp := &fetchingPart{
		partition: p, place: eventlog.Place{Partition: p.Index, Seq: p.Next}, was: p.Generation,
		attempts: p.Attempts, since: p.Since,
	}
	f.parts = append(f.parts, fp)
	return fp
}

func (f *fetching) read(ctx context.Context, g *Group) (err error) {
	if p := f.parts[0]; len(f.parts) == 1 {
		p.page, err = reader.Read(ctx, g.cfg.Log, g.id.Topic, p.page.Records, p.place.Partition, p.place.Seq, f.bounds)
	} else {
		places := make([]eventlog.Place, len(f.parts))
		for i, p := range f.parts {
			places[i] = p.place
		}
		var each [][]*eventlog.Record
		each, err = g.cfg.Log.(eachReader).ReadEach(ctx, g.id.Topic, places, f.bounds)
		for i := range each {
			f.parts[i].page = reader.Page{Records: each[i], Next: f.parts[i].place.Seq}
		}
	}
	for _, p := range f.parts {
		if err == nil {
			err = p.lookForDead(ctx, g)
		}
	}
	if err != nil || !f.exactlyOnce {
		return err
	}
	var ids []string
	for _, p := range f.parts {
		for _, rec := range p.page.Records {
			ids = append(ids, rec.ID)
		}
	}
	f.marked, err = g.marked(ctx, ids)
	return err
}

// lookForDead finds the events of the page that an earlier owner dead-lettered, but had not settled
// when it died. They were delivered before.
func (p *fetchingPart) lookForDead(ctx context.Context, g *Group) error {
	var letters []string
	var seqs []uint64
	for _, rec := range p.page.Records {
		if slices.ContainsFunc(p.attempts, func(r eventlog.AttemptRange) bool { return dispatch.Holds(rec.Seq)(r.SeqRange) }) {
			letters = append(letters, deadletter.FirstID(rec, g.id.Group, p.since))
			seqs = append(seqs, rec.Seq)
		}
	}
	if len(letters) == 0 {
		return nil
	}
	found, err := deadletter.Find(ctx, g.cfg.Log, g.id.Topic, letters)
	p.dead = map[uint64]bool{}
	for i, rec := range found {
		p.dead[seqs[i]] = rec != nil
	}
	return err
}

// nextToFetch picks the partition to read next, in rotation; nil if there is nothing to read, or no
// room.
func (g *Group) nextToFetch(now time.Time) *partition {
	g.noMemory = false
	if g.watch == nil || g.lapsed || g.dispatch.Demand() <= 0 {
		return nil
	}
	if g.noMemory = g.dispatch.Bytes > 0 && g.dispatch.NoMemory(); g.noMemory {
		return nil
	}
	for i := range g.parts {
		at := (g.fetchAt + 1 + i) % len(g.parts)
		if p := g.parts[at]; g.fetchable(p, now) {
			return p
		}
	}
	return nil
}

// fetchable reports whether there is something to read of the partition, and room for it.
func (g *Group) fetchable(p *partition, now time.Time) bool {
	return p.own.State == ownership.Owned && p.Readable(g.watch, now) && p.Ahead < g.cfg.Bounds.Lookahead
}

func (g *Group) admit(f *fetching, err error) {
	if err != nil {
		g.cfg.Logger.Warn("consumer group cannot read its topic", "topic", g.id.Topic, "group", g.id.Group,
			"partition", f.parts[0].Index, "more_partitions", len(f.parts)-1, "error", err)
	}
	for _, p := range f.parts {
		p.unread = err
		switch {
		case err != nil:
			p.Failed(g.cfg.Clock.Now())
		case p.was == p.Generation && len(g.members) > 0:
			g.admitPage(p, f.marked)
		}
	}
}

// admitPage takes in a page of a partition; marked has the ids that the group acked before.
func (g *Group) admitPage(p *fetchingPart, marked map[string]bool) {
	pg := p.page
	for _, rec := range pg.Records {
		if e := p.Fetched(rec); e != nil {
			acked := marked != nil && (marked[rec.ID] || g.saver.isMarked(rec.ID))
			g.dispatch.Admit(e, acked || p.dead[rec.Seq] || !g.dispatch.Passes(rec), g.cfg.Clock.Now())
		}
	}
	if len(pg.Records) == 0 && p.Empty(pg.Next, g.cfg.Clock.Now()) { // nothing is below it
		p.PassOver(pg.Next)
		p.Dirty = true
	}
	if p.PassedOver > 0 {
		g.metrics().PassedOver(int(p.PassedOver))
		p.PassedOver = 0
	}
}

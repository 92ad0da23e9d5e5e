package group

import (
	"context"
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

const (
	// retryAfterFailure is the pause before the store is asked again.
	retryAfterFailure = 250 * time.Millisecond
	// retryWhenBehind is the pause before the log is asked again for events that
	// it has announced and does not show yet. It doubles, up to retryAfterFailure.
	retryWhenBehind = 5 * time.Millisecond
	// pagesPerTurn bounds how long acks and deadlines wait for a group that
	// reads through events that its filters do not let pass.
	pagesPerTurn = 16
)

// fetch reads as many events as members have room for beyond those that are
// ready. Only the worker fetches, so a partition's next moves here alone, but
// for drop, which the generation tells.
func (g *Group) fetch(ctx context.Context) {
	for range pagesPerTurn {
		g.mu.Lock()
		p := g.nextToFetch(g.cfg.Clock.Now())
		if g.stopped || p == nil {
			g.mu.Unlock()
			return
		}
		g.fetchAt = p.index
		b := eventlog.Bounds{
			Events: min(g.want(), g.cfg.Bounds.FetchEvents, g.cfg.Bounds.Lookahead-len(p.entries)),
			Bytes:  min(g.cfg.Bounds.FetchBytes, g.cfg.Bounds.HeldBytes-g.held),
		}
		from, generation, watch := p.next, p.generation, g.watch
		exactlyOnce := g.exactlyOnce()
		g.mu.Unlock()

		pg, err := readPage(ctx, g.cfg.Log, g.topic, watch.Read(p.index, from, b), p.index, from, b)
		var marked []bool
		if err == nil && exactlyOnce && len(pg.recs) > 0 {
			marked, err = g.marked(ctx, pg.recs)
		}

		g.mu.Lock()
		switch {
		case err != nil:
			g.cfg.Logger.Warn("consumer group cannot read its topic", "topic", g.topic, "group", g.name, "partition", p.index, "error", err)
			p.readDue = g.cfg.Clock.Now().Add(retryAfterFailure)
		case generation == p.generation && len(g.members) > 0:
			g.take(p, pg, marked)
		}
		g.mu.Unlock()
	}
}

// want is how many events more than those that are ready members have room
// for.
func (g *Group) want() int {
	room := 0
	for _, m := range g.members {
		room += m.room()
	}
	return room - (len(g.ready) - g.stuck)
}

// nextToFetch picks the partition to read next, in rotation; nil if there is
// nothing to read, or no room.
func (g *Group) nextToFetch(now time.Time) *partition {
	if g.watch == nil || g.lapsed || g.held >= g.cfg.Bounds.HeldBytes || g.want() <= 0 {
		return nil
	}
	for i := range g.parts {
		at := (g.fetchAt + 1 + i) % len(g.parts)
		if p := g.parts[at]; p.own == owned && p.readable(g.watch, now) && len(p.entries) < g.cfg.Bounds.Lookahead {
			return p
		}
	}
	return nil
}

// take admits a page. marked, when given, tells the ids that the group acked
// before.
func (g *Group) take(p *partition, pg page, marked []bool) {
	for i, rec := range pg.recs {
		if e := p.fetched(rec); e != nil {
			g.admit(e, marked != nil && (marked[i] || g.isMarked(rec.ID)) || !g.wanted(rec))
		}
	}
	if len(pg.recs) == 0 && p.skipTo(pg.next, g.cfg.Clock.Now()) {
		p.dirty = true
	}
	if p.passed > 0 {
		g.metrics.PassedOver(int(p.passed))
		p.passed = 0
	}
}

func (g *Group) exactlyOnce() bool {
	for _, m := range g.members {
		if m.opts.ExactlyOnce {
			return true
		}
	}
	return false
}

// marked asks the store which events the group acked before.
func (g *Group) marked(ctx context.Context, recs []*eventlog.Record) ([]bool, error) {
	ids := make([]string, len(recs))
	for i, rec := range recs {
		ids[i] = rec.ID
	}
	return g.cfg.Log.Marked(ctx, g.topic, g.name, ids, g.cfg.Clock.Now().UnixMilli())
}

// isMarked reports whether an id was acked and its mark is not saved yet.
func (g *Group) isMarked(id string) bool {
	_, ok := g.marks[id]
	return ok
}

// page is what a read found: events, or the seq to go on at when there were
// none.
type page struct {
	recs []*eventlog.Record
	next uint64
}

// readPage reads from the log where the tail had nothing. When the log has
// nothing either, retention or compaction has removed what was announced, and
// the partition's extent, as it was before the log was read, says where to go
// on.
func readPage(ctx context.Context, log eventlog.Reader, topic string, tail []*eventlog.Record, part int, from uint64, b eventlog.Bounds) (page, error) {
	if len(tail) > 0 {
		return page{recs: tail}, nil
	}
	recs, err := log.Read(ctx, topic, part, from, b)
	if err != nil || len(recs) > 0 {
		return page{recs: recs}, err
	}
	extents, err := log.Extents(ctx, topic)
	if err != nil {
		return page{}, err
	}
	recs, err = log.Read(ctx, topic, part, from, b)
	return page{recs: recs, next: extents[part].Head + 1}, err
}

package group

import (
	"context"
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// turn moves the group on: fetch, assign, save, answer, send.
func (g *Group) turn() {
	ctx := g.cfg.Context
	g.fetch(ctx)

	g.mu.Lock()
	if g.stopped {
		g.mu.Unlock()
		return
	}
	now := time.Now()
	g.expire(now)
	if wait := g.saveDue.Sub(now); wait > 0 {
		g.alarm.Reset(wait)
		g.mu.Unlock()
		return
	}
	g.assign(now)
	save := g.collect()
	members := g.members
	graves := g.burying
	g.burying = nil
	g.mu.Unlock()

	err := save.store(ctx, g.cfg.Log)
	g.saved(save, err)
	for _, m := range members {
		m.flush()
	}
	for _, e := range graves {
		g.dig(e)
	}

	g.mu.Lock()
	defer g.mu.Unlock()
	g.rest()
}

// rest ends a turn: it parks a group without members, sets the alarm for what
// is due next, and asks for another turn where this one stopped at a bound.
func (g *Group) rest() {
	if len(g.members) == 0 && g.joining == 0 && g.graves == 0 && g.watch != nil {
		g.forget((*partition).park)
		g.watch.Close()
		g.watch = nil
	}
	if g.again {
		g.worker.wake()
	}
	var due time.Time
	if len(g.timers) > 0 {
		due = g.timers[0].due
	}
	for _, t := range []time.Time{g.paceDue, g.saveDue} {
		if !t.IsZero() && (due.IsZero() || t.Before(due)) {
			due = t
		}
	}
	if due.IsZero() {
		g.alarm.Stop()
		return
	}
	g.alarm.Reset(time.Until(due))
}

// room is how many events members could be assigned now.
func (g *Group) room() int {
	n := 0
	for _, m := range g.members {
		if m.started && !m.paused && m.sink.Room() {
			n += max(0, m.opts.MaxInflight-m.count)
		}
	}
	return n
}

// fetch reads as many events as members have room for beyond those that are
// ready. Only the worker fetches, so a partition's next moves here alone, but
// for forget, which the generation tells.
func (g *Group) fetch(ctx context.Context) {
	for {
		g.mu.Lock()
		want := g.room() - (len(g.ready) - g.stuck)
		p := g.nextToFetch()
		if g.stopped || want <= 0 || p == nil {
			g.mu.Unlock()
			return
		}
		from, generation, watch := p.next, g.generation, g.watch
		exactlyOnce := g.exactlyOnce()
		g.mu.Unlock()

		b := eventlog.Bounds{Events: min(want, g.cfg.Bounds.FetchEvents), Bytes: g.cfg.Bounds.FetchBytes}
		pg, err := readPage(ctx, g.cfg.Log, g.topic, watch.Read(p.index, from, b), p.index, from, b)
		var marked []bool
		if err == nil && exactlyOnce && len(pg.recs) > 0 {
			marked, err = g.marked(ctx, pg.recs)
		}

		g.mu.Lock()
		if err != nil {
			g.cfg.Logger.Warn("consumer group cannot read its topic", "topic", g.topic, "group", g.name, "partition", p.index, "error", err)
			g.saveDue = time.Now().Add(retryAfterFailure)
			g.mu.Unlock()
			return
		}
		if generation == g.generation {
			g.take(p, pg, marked)
		}
		g.mu.Unlock()
	}
}

// page is what a read found: events, or the seq to go on at when there were
// none.
type page struct {
	recs []*eventlog.Record
	next uint64
}

// after is the seq behind the page.
func (pg page) after(from uint64) uint64 {
	if n := len(pg.recs); n > 0 {
		return pg.recs[n-1].Seq + 1
	}
	return max(from, pg.next)
}

// readPage reads from the log where the tail had nothing. When the log has
// nothing either, retention or compaction has removed what was announced, and
// the partition's extent says where to go on.
func readPage(ctx context.Context, log eventlog.Reader, topic string, tail []*eventlog.Record, part int, from uint64, b eventlog.Bounds) (page, error) {
	if len(tail) > 0 {
		return page{recs: tail}, nil
	}
	extents, err := log.Extents(ctx, topic)
	if err != nil {
		return page{}, err
	}
	recs, err := log.Read(ctx, topic, part, from, b)
	return page{recs: recs, next: extents[part].Head + 1}, err
}

func (g *Group) marked(ctx context.Context, recs []*eventlog.Record) ([]bool, error) {
	ids := make([]string, len(recs))
	for i, rec := range recs {
		ids[i] = rec.ID
	}
	return g.cfg.Log.Marked(ctx, g.topic, g.name, ids, time.Now().UnixMilli())
}

// take admits a page. marked, when given, tells the ids that the group acked
// before.
func (g *Group) take(p *partition, pg page, marked []bool) {
	if len(pg.recs) == 0 {
		p.dirty = p.dirty || pg.next > p.next
		p.next = pg.after(p.next)
		p.advance()
	}
	p.head = max(p.head, p.next-1)
	for i, rec := range pg.recs {
		if e := p.fetched(rec); e != nil {
			g.admit(e, marked != nil && marked[i] || !g.wanted(rec))
		}
	}
}

// nextToFetch picks the partition to read next, in rotation.
func (g *Group) nextToFetch() *partition {
	if g.watch == nil || g.held >= g.cfg.Bounds.HeldBytes {
		return nil
	}
	for range g.parts {
		g.fetchAt = (g.fetchAt + 1) % len(g.parts)
		p := g.parts[g.fetchAt]
		p.head = max(p.head, g.watch.Head(p.index))
		if p.next <= p.head && len(p.entries) < g.cfg.Bounds.Lookahead {
			return p
		}
	}
	return nil
}

func (g *Group) exactlyOnce() bool {
	for _, m := range g.members {
		if m.opts.ExactlyOnce {
			return true
		}
	}
	return false
}

// assign gives ready events to members with room, in rotation, until either
// runs out.
func (g *Group) assign(now time.Time) {
	g.retune()
	g.paceDue, g.again, g.stuck = time.Time{}, false, 0
	free := 0
	for _, m := range g.members {
		m.prepare()
		free += m.free
	}
	var kept []*entry
	for i, e := range g.ready {
		if free <= 0 {
			kept = append(kept, g.ready[i:]...)
			break
		}
		switch {
		case e.state != ready:
			continue
		case g.ordered && !g.keys.first(e):
			e.state, g.again = waiting, true
			continue
		case g.inflight[e.rec.ID] != nil:
			e.state, e.twin, g.again = waiting, true, true
			g.twins = append(g.twins, e)
			continue
		}
		m, wanted := g.pick(e)
		switch {
		case !wanted:
			g.settle(e, false)
			g.again = true
		case m == nil:
			kept = append(kept, e)
			g.stuck++
		case e.attempts >= m.opts.MaxAttempts:
			g.bury(e, "delivery attempts used up")
			g.again = true
		case !m.pace(now, &g.paceDue):
			free -= m.free
			m.free = 0
			kept = append(kept, e)
		default:
			before := m.free
			g.lend(e, m)
			free -= before - m.free
		}
	}
	g.ready = kept
}

// retune applies a changed policy to the members.
func (g *Group) retune() {
	eff := g.cfg.Policy(g.topic)
	if eff == g.policy {
		return
	}
	g.policy = eff
	for _, m := range g.members {
		m.opts = Resolve(m.requested, eff.Delivery)
	}
}

// prepare computes what this turn may assign to the member.
func (m *Member) prepare() {
	m.free, m.budget = 0, turnBytes
	if m.started && !m.paused && m.sink.Room() {
		m.free = max(0, m.opts.MaxInflight-m.count)
	}
}

// pace takes a delivery token; without one due becomes the time to try again.
func (m *Member) pace(now time.Time, due *time.Time) bool {
	wait, ok := m.pacer.Take(now)
	m.starved = !ok
	if ok {
		return true
	}
	if at := now.Add(wait); due.IsZero() || at.Before(*due) {
		*due = at
	}
	return false
}

// pick finds the next member in rotation that has room for the event. wanted
// is false if no member's filter lets it pass.
func (g *Group) pick(e *entry) (m *Member, wanted bool) {
	for i := range g.members {
		at := (g.rotation + i) % len(g.members)
		c := g.members[at]
		if !c.opts.Filter.Matches(&e.rec.Event) {
			continue
		}
		wanted = true
		if c.free > 0 {
			g.rotation = at + 1
			return c, true
		}
	}
	return nil, wanted
}

// lend puts an event in flight at a member. It is sent once its attempt is
// saved.
func (g *Group) lend(e *entry, m *Member) {
	g.leases++
	e.state, e.member, e.sent, e.lease = inflight, m, false, g.leases
	e.attempts++
	e.part.dirty = true
	g.inflight[e.rec.ID] = e
	m.count++
	m.free--
	m.out = append(m.out, assignment{e, e.lease})
	if m.budget -= e.rec.Size(); m.budget <= 0 {
		m.free, g.again = 0, true
	}
}

// flush sends what was assigned, unless it was taken back meanwhile.
func (m *Member) flush() {
	m.send.Lock()
	defer m.send.Unlock()
	g := m.group
	g.mu.Lock()
	out := m.out
	m.out = nil
	now := time.Now()
	ds := make([]Delivery, 0, len(out))
	again := 0
	for _, a := range out {
		e := a.entry
		if e.state != inflight || e.lease != a.lease {
			continue
		}
		if m.paused || m.closed {
			g.giveBack(e)
			continue
		}
		e.sent = true
		g.timers.set(e, now.Add(m.opts.AckTimeout))
		if e.attempts > 1 {
			again++
		}
		ds = append(ds, Delivery{Record: e.rec, Attempt: e.attempts, AckTimeout: m.opts.AckTimeout})
	}
	g.mu.Unlock()
	if len(ds) == 0 {
		return
	}
	g.metrics.Delivered(len(ds))
	if again > 0 {
		g.metrics.Redelivered(again)
	}
	m.sink.Deliver(ds)
}

// dig hands a dead letter over.
func (g *Group) dig(e *entry) {
	g.mu.Lock()
	if e.state != burying {
		g.mu.Unlock()
		return
	}
	rec := deadLetter(e, g.name, time.Now())
	g.mu.Unlock()
	g.cfg.DeadLetters.Bury(g.cfg.Context, rec, func(err error) { g.buried(e, err) })
}

package federation

import (
	"context"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/sluice-bus/sluice/internal/budget"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/replay"
)

// stream is one answer: a goroutine for each part reads ahead, the stream merges the parts, and
// hands out each event once.
type stream struct {
	fleet *Fleet
	plan  *plan
	parts []*part // first those of stores, whose copies of equal events count
	merge merge
	seen  *seen
	// askable are the parts that may hold a suspect, too.
	askable []*part
	waiting lookahead
	ahead   int // bytes that the parts may read ahead, of the client's memory

	ctx     context.Context
	cancel  context.CancelFunc
	readers sync.WaitGroup
	closed  bool

	moving bool  // the merge's top was handed out, so the merge moves first
	live   int   // parts that have not ended
	err    error // the error of Next from now on
	last   eventlog.Point
	given  bool // the (ts, id) of the last event
}

func newStream(f *Fleet, p *plan) *stream {
	return &stream{fleet: f, plan: p, merge: merge{desc: p.query.Scan.Descending}, seen: newSeen(f.cfg.Remembered, p.query.Share)}
}

// mayBePartial returns an error if a part is missing and the answer must be complete.
func (s *stream) mayBePartial() error {
	if s.plan.alone {
		return nil
	}
	return s.plan.refusal(s.fleet.cfg.Logger)
}

// start opens the parts, first all spools, then the stores. It returns when each part has its first
// event, has ended or is missing. The package comment explains the order.
func (s *stream) start(ctx context.Context) error {
	s.ctx, s.cancel = context.WithCancel(ctx)
	logs, spools := s.newParts()
	s.parts = slices.Concat(logs, spools)
	s.run(spools)
	for _, p := range spools {
		<-p.begun // or its end
	}
	s.run(logs)
	return s.meet()
}

// newParts makes the parts that the plan has.
func (s *stream) newParts() (logs, spools []*part) {
	c, q := &s.fleet.cfg, s.plan.query
	common := partConfig{
		log: c.Logger, slow: [2]time.Duration{c.SlowAfter, c.SlowEvery}, opening: make(chan struct{}, atOnce),
		share: s.share(), maxLine: c.MaxLine, ask: ask{topic: q.Topic, scan: q.Scan},
	}
	for _, st := range s.plan.stores {
		p := common
		p.name, p.cursor, p.store, p.sources = "store of "+st.sources[0].short(), storePart(st.id), st.id, st.sources
		p.ask.part, p.ask.scan.After, p.rank = replay.PartLog, storeAfter(q, st), len(logs)
		if q.Limit > 0 {
			p.ask.limit = q.Limit + 1 // one event more shows whether a next page exists
		}
		logs = append(logs, newPart(p))
	}
	for _, sp := range s.plan.spools {
		p := common
		p.name, p.cursor, p.store, p.sources = "spool of "+sp.short(), spoolPart(sp.short()), sp.storeID(), []*sidecar{sp}
		p.ask.part, p.ask.scan.After, p.rank = replay.PartSpool, spoolAfter(q, sp), len(logs)+len(spools)
		spools = append(spools, newPart(p))
	}
	return logs, spools
}

// share is what each part may read ahead.
func (s *stream) share() int64 {
	parts := int64(len(s.plan.stores) + len(s.plan.spools))
	budget := s.fleet.cfg.BufferBytes
	if limit := int64(s.plan.query.Limit); limit > 0 {
		budget = min(budget, parts*limit*pagedEventBytes)
	}
	return max(minShare, budget/max(1, parts))
}

// takeMemory takes what the parts may read ahead.
func (s *stream) takeMemory() error {
	ahead := int(s.share()) * (len(s.plan.stores) + len(s.plan.spools))
	if err := s.plan.query.Share.TryTake(ahead); err != nil {
		return err
	}
	s.ahead = ahead
	return nil
}

func (s *stream) giveMemory() {
	s.plan.query.Share.Give(s.ahead + s.seen.counted)
	s.ahead, s.seen.counted = 0, 0
}

// pagedEventBytes is how many bytes are read ahead for each event of a page.
const pagedEventBytes = 1 << 10

func (s *stream) run(parts []*part) {
	for _, p := range parts {
		s.readers.Go(func() { p.run(s.ctx) })
	}
}

// meet waits for the parts' first events.
func (s *stream) meet() error {
	var met []*part
	gaps := len(s.plan.gaps)
	for _, p := range s.parts {
		more, err := p.next()
		switch {
		case s.ctx.Err() != nil:
			return s.ctx.Err()
		case err != nil:
			s.plan.gaps = append(s.plan.gaps, s.gapOf(p, err))
			continue // it is not one of the parts
		case more:
			s.merge.add(p)
			s.live++
		}
		met = append(met, p)
		if !p.empty {
			s.askable = append(s.askable, p)
		}
	}
	if len(s.plan.gaps) > gaps {
		if err := s.plan.refusal(s.fleet.cfg.Logger); err != nil {
			return err
		}
	}
	s.parts = met
	return nil
}

// gapOf is the gap that a failed part leaves.
func (s *stream) gapOf(p *part, err error) gap {
	if p.ask.part == replay.PartSpool {
		return spoolGap(p.sources[0], err)
	}
	i := slices.IndexFunc(s.plan.stores, func(st *storePlan) bool { return st.id == p.store })
	return storeGap(s.plan.stores[i], err)
}

// Next returns the next event of the whole fleet.
func (s *stream) Next() (eventlog.Point, []byte, error) {
	if s.err != nil {
		return eventlog.Point{}, nil, s.err
	}
	p, text, err := s.once()
	if err != nil {
		s.err = err
		return eventlog.Point{}, nil, err
	}
	s.last, s.given = p, true
	return p, text, nil
}

// once returns the next event that was not handed out before.
func (s *stream) once() (eventlog.Point, []byte, error) {
	for {
		if h := s.waiting.next(); h != nil {
			h.part.taken++
			return h.place, h.text, nil
		}
		p, suspect, err := s.unique()
		if err != nil {
			return eventlog.Point{}, nil, err
		}
		if !suspect {
			p.taken++
			return eventlog.Point{TS: p.ts, ID: p.id}, p.text(), nil
		}
		if err := s.lookAhead(p); err != nil {
			return eventlog.Point{}, nil, err
		}
	}
}

// unique moves the merge to the next event that the stream does not remember. That event is the
// head of its part until the next call. suspect says that the other parts have to be asked whether
// the event was handed out.
func (s *stream) unique() (p *part, suspect bool, err error) {
	for {
		if s.moving {
			if err := s.move(); err != nil {
				return nil, false, err
			}
		}
		if p = s.merge.top(); p == nil {
			return nil, false, io.EOF
		}
		s.moving = true
		// No part has an id twice. So the last remaining part is compared only with the events of
		// the other parts.
		known, maybe := false, false
		if s.live > 1 || s.seen.any() {
			known, maybe = s.seen.look(p.id, s.live > 1)
		}
		if !known {
			return p, (maybe || s.plan.query.Continued) && s.othersMayHave(p), nil
		}
	}
}

// othersMayHave reports whether any part but p may have an event of p's.
func (s *stream) othersMayHave(p *part) bool {
	return len(s.askable) > 1 || len(s.askable) == 1 && s.askable[0] != p
}

// move moves past the merge's top.
func (s *stream) move() error {
	s.moving = false
	p := s.merge.top()
	before := len(s.merge.heap)
	if err := s.merge.next(); err != nil {
		return s.broken(p, err)
	}
	s.live -= before - len(s.merge.heap)
	return nil
}

// broken is the error of a stream after one of its parts failed midway.
func (s *stream) broken(p *part, err error) error {
	if cause := s.ctx.Err(); cause != nil {
		return cause
	}
	s.fleet.cfg.Logger.Error("a replay of the fleet failed: a part of it failed midway",
		"part", p.name, "topic", s.plan.query.Topic, "events", p.taken, "error", err)
	if s.plan.alone {
		return err
	}
	s.plan.gaps = append(s.plan.gaps, s.gapOf(p, err))
	return partialFleet(s.plan.gaps)
}

// Ready reports whether Next returns without waiting for a part.
func (s *stream) Ready() bool {
	if s.err != nil || s.waiting.more() {
		return true
	}
	p := s.merge.top()
	return p == nil || !s.moving || !p.waits()
}

// Missing names the sidecars whose parts are missing.
func (s *stream) Missing() []string { return names(s.plan.gaps) }

// Behind lists the parts for the cursor of the page that ends here.
func (s *stream) Behind() []replay.Behind {
	if !s.given {
		return s.plan.behind(s.parts, nil)
	}
	last := s.last
	return s.plan.behind(s.parts, &last)
}

// Parts counts the events of each part so far.
func (s *stream) Parts() []replay.PartCount {
	out := make([]replay.PartCount, 0, len(s.parts))
	for _, p := range s.parts {
		out = append(out, replay.PartCount{Part: p.name, Events: p.taken})
	}
	return out
}

// Close ends the stream and waits for its readers.
func (s *stream) Close() {
	if s.closed {
		return
	}
	s.closed = true
	s.stop()
	s.err = io.ErrClosedPipe
	s.plan.query.Share.Leave(budget.FleetReplays)
}

func (s *stream) stop() {
	defer s.giveMemory()
	if s.cancel == nil {
		return // it was never started
	}
	s.cancel()
	s.readers.Wait()
	for _, p := range s.parts {
		p.discard()
	}
}

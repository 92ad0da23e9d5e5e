package federation

import (
	"context"
	"io"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/replay"
)

// lookahead holds events that have left the merge ahead of time, so that many are looked up in
// other parts at once.
type lookahead struct {
	events []aheadEvent
	texts  []byte // of all of them
	at     int    // the next to hand out
}

// aheadEvent is an event of a lookahead.
type aheadEvent struct {
	part  *part
	place eventlog.Point
	end   int // the end of its text in texts
	text  []byte
	ask   bool
	drop  bool
}

// aheadBytes bounds the text of a lookahead, except for the last event.
const aheadBytes = 1 << 20

func (l *lookahead) more() bool { return l.at < len(l.events) }

// next is the next event to hand out; nil when there is none.
func (l *lookahead) next() *aheadEvent {
	for l.more() {
		h := &l.events[l.at]
		l.at++
		if !h.drop {
			return h
		}
	}
	return nil
}

func (l *lookahead) add(p *part, ask bool) {
	l.texts = append(l.texts, p.text()...)
	l.events = append(l.events, aheadEvent{part: p, place: eventlog.Point{TS: p.ts, ID: p.id}, end: len(l.texts), ask: ask})
}

// lookAhead removes events from the merge, beginning with p's head, and looks up the suspects. It
// may leave no event to hand out.
func (s *stream) lookAhead(p *part) error {
	l := &s.waiting
	l.events, l.texts, l.at = l.events[:0], l.texts[:0], 0
	most := replay.MaxPeerIDs
	if limit := s.plan.query.Limit; limit > 0 {
		most = min(most, limit)
	}
	suspect := true
	for {
		l.add(p, suspect)
		if len(l.events) >= most || len(l.texts) >= aheadBytes {
			break
		}
		var err error
		if p, suspect, err = s.unique(); err == io.EOF {
			break // the next call gets it again
		}
		if err != nil {
			return err
		}
	}
	start := 0
	for i := range l.events {
		h := &l.events[i]
		h.text, start = l.texts[start:h.end], h.end
	}
	return s.lookUp(l.events)
}

// lookUp asks every other part for the suspects, and drops those that were handed out before.
func (s *stream) lookUp(list []aheadEvent) error {
	work, ctx := errgroup.WithContext(s.ctx)
	work.SetLimit(atOnce)
	drops := make([][]bool, len(s.askable))
	for i, other := range s.askable {
		var ids []string
		var at []int
		for j := range list {
			if list[j].ask && list[j].part != other {
				ids, at = append(ids, list[j].place.ID), append(at, j)
			}
		}
		if len(ids) == 0 {
			continue
		}
		drops[i] = make([]bool, len(list))
		work.Go(func() error {
			times, err := s.times(ctx, other, ids)
			for k, ts := range times {
				drops[i][at[k]] = ts != nil && s.handedOut(other, list[at[k]].place, *ts)
			}
			return err
		})
	}
	if err := work.Wait(); err != nil {
		return err
	}
	for j := range list {
		list[j].drop = slices.ContainsFunc(drops, func(d []bool) bool { return d != nil && d[j] })
	}
	return nil
}

// times asks the part's sidecars until one answers.
func (s *stream) times(ctx context.Context, p *part, ids []string) (out []*int64, err error) {
	err = anyOf(p.sources, func(m *sidecar) error {
		out, err = m.times(ctx, p.ask.part, s.plan.query.Topic, s.plan.query.Scan.Key, ids)
		return err
	})
	if err == nil {
		return out, nil
	}
	if cause := s.ctx.Err(); cause != nil {
		return nil, cause
	}
	if ctx.Err() != nil {
		return nil, err // another part failed first
	}
	s.fleet.cfg.Logger.Error("a replay of the fleet failed: a part of it cannot say which events it has",
		"part", p.name, "topic", s.plan.query.Topic, "error", err)
	return nil, partialFleet([]gap{s.gapOf(p, err)})
}

// handedOut reports whether the copy of an event that another part has at ts came, or would have
// come, before the one at place.
func (s *stream) handedOut(other *part, place eventlog.Point, ts int64) bool {
	q := s.plan.query
	copied := eventlog.Point{TS: ts, ID: place.ID}
	start := q.Start
	if !q.Continued {
		start = q.Scan.After
	}
	outside := ts < q.Scan.MinTS || ts > q.Scan.Upper()
	if outside || start != nil && !precedes(*start, copied, q.Scan.Descending) {
		return false // it is not part of the replay
	}
	if precedes(copied, place, q.Scan.Descending) {
		return true
	}
	// If place is of a part that was behind, an earlier page may have read the other part further.
	begun := other.after()
	return begun != nil && !precedes(*begun, copied, q.Scan.Descending)
}

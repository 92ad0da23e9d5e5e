package follower

import (
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// merger puts the partitions of a follower together: of the first events that it has of each, the
// lowest in (ts, id) order is next. So stored events come in (ts, id) order as far as each
// partition is in that order, and a client that resumes behind an event that it has seen misses
// none of the events stored by then.
type merger struct {
	heads [][]*eventlog.Record // by partition: read, not merged
}

func newMerger(partitions int) *merger {
	return &merger{heads: make([][]*eventlog.Record, partitions)}
}

// next picks the partition whose first event is the next one; -1: there is none.
func (x *merger) next() int {
	best := -1
	var low eventlog.Point
	for i, recs := range x.heads {
		if len(recs) == 0 {
			continue
		}
		if at := (eventlog.Point{TS: recs[0].TS, ID: recs[0].ID}); best < 0 || at.Compare(low) < 0 {
			best, low = i, at
		}
	}
	return best
}

// readMerged is read for a follower that merges. Nothing is merged while a
// partition that has more could not be read.
func (f *Follower) readMerged() bool {
	again, ready := f.fillHeads(f.cfg.Clock.Now())
	if again || !ready {
		return again
	}
	for size := 0; size < f.cfg.TurnBytes; {
		i := f.merger.next()
		if i < 0 {
			break
		}
		rec := f.merger.heads[i][0]
		f.merger.heads[i] = f.merger.heads[i][1:]
		f.hold([]*eventlog.Record{rec})
		size += rec.Size()
		if len(f.merger.heads[i]) == 0 && f.parts[i].Readable(f.watch, f.cfg.Clock.Now()) {
			break // what it has next may come before the others'
		}
	}
	return len(f.pending) > 0
}

// fillHeads reads a page of every partition that has more and of which nothing
// is left. again: a page added nothing, and another may; ready: no partition is
// missing.
func (f *Follower) fillHeads(now time.Time) (again, ready bool) {
	ready = true
	for i, p := range f.parts {
		if len(f.merger.heads[i]) > 0 {
			continue
		}
		if !p.Readable(f.watch, now) {
			ready = ready && p.Due(now).IsZero()
			continue
		}
		b := eventlog.Bounds{Events: f.cfg.FetchEvents, Bytes: max(f.cfg.TurnBytes/len(f.parts), 1)}
		recs, ok := f.readPart(p, b, now)
		f.merger.heads[i] = recs
		again = again || ok && len(recs) == 0
		ready = ready && ok
	}
	if !ready {
		f.retry(now)
	}
	return again, ready
}

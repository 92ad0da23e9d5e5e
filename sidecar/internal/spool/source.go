package spool

import (
	"context"
	"errors"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// Source is the log and the spool as one, for replays: its methods keep the promises of
// eventlog.Reader's. An event that only the spool has is marked Spooled and has no Partition and
// Seq.
type Source struct {
	spool *Log
	log   Reader
}

// Source merges the spool with the log that it is drained into.
func (l *Log) Source(log Reader) *Source { return &Source{spool: l, log: log} }

// Lookup finds an event by id: the log's, where both have it.
func (s *Source) Lookup(ctx context.Context, topic, id string) (*eventlog.Record, error) {
	t := s.spool.find(topic)
	if t == nil || !t.spooling.Load() {
		return s.log.Lookup(ctx, topic, id)
	}
	// The spool is read first, so that an event that moves meanwhile is found.
	waiting, err := s.spool.cfg.Store.Lookup(ctx, topic, id)
	if err != nil && !errors.Is(err, eventlog.ErrNotFound) {
		return nil, err
	}
	stored, err := s.log.Lookup(ctx, topic, id)
	if waiting != nil && waiting.DeliverAt == 0 && errors.Is(err, eventlog.ErrNotFound) {
		return marked(waiting), nil
	}
	return stored, err
}

// Scan returns a page of both, ordered by (ts, id), each id once. An event that moves from the
// spool to the log between two pages, or while one is read, is not missed.
func (s *Source) Scan(ctx context.Context, topic string, q eventlog.ScanQuery, b eventlog.Bounds) ([]*eventlog.Record, error) {
	for {
		t := s.spool.find(topic)
		if t == nil || !t.spooling.Load() {
			return s.log.Scan(ctx, topic, q, b)
		}
		waiting, err := s.spool.cfg.Store.Scan(ctx, topic, q, b)
		if err != nil && !errors.Is(err, eventlog.ErrNotFound) {
			return nil, err
		}
		stored, err := s.log.Scan(ctx, topic, q, b)
		if err != nil && !errors.Is(err, eventlog.ErrNotFound) {
			return nil, err
		}
		merged := merge(waiting, stored, q.Descending, b)
		if len(merged) == 0 {
			return nil, nil
		}
		last := pointOf(merged[len(merged)-1].rec)
		page, err := s.resolve(ctx, topic, q.Key, merged)
		if err != nil || len(page) > 0 {
			return page, err
		}
		q.After = &last // an empty page would be the end
	}
}

// found is an event of one of the two.
type found struct {
	rec     *eventlog.Record
	waiting bool // only the spool's scan has it
}

// merge merges two pages, up to the bounds, and up to the end of the page that ends first: either
// page may be cut, and the events behind its last one are not known.
func merge(waiting, stored []*eventlog.Record, descending bool, b eventlog.Bounds) []found {
	before := func(x, y *eventlog.Record) bool {
		c := pointOf(x).Compare(pointOf(y))
		return c < 0 != descending && c != 0
	}
	// An empty page is the end of its source, and so does not limit the other page.
	noneWaiting, noneStored := len(waiting) == 0, len(stored) == 0
	var out []found
	bytes := 0
	for len(out) == 0 || len(out) < b.Events && (b.Bytes == 0 || bytes < b.Bytes) {
		var next found
		switch {
		case len(waiting) == 0 && !noneWaiting, len(stored) == 0 && !noneStored, noneWaiting && noneStored:
			return out
		case noneStored || !noneWaiting && before(waiting[0], stored[0]):
			next, waiting = found{waiting[0], true}, waiting[1:]
		case noneWaiting || before(stored[0], waiting[0]):
			next, stored = found{stored[0], false}, stored[1:]
		default: // both have it
			next, waiting, stored = found{stored[0], false}, waiting[1:], stored[1:]
		}
		out = append(out, next)
		bytes += next.rec.Size()
	}
	return out
}

// parallelLookups bounds the look-ups at once of one page.
const parallelLookups = 8

// resolve looks up in the log the events that only the spool had. An event that has just moved is
// returned as the log has it. An event whose id the log has at another ts is a repeated publish,
// and is left out.
func (s *Source) resolve(ctx context.Context, topic string, key *string, merged []found) ([]*eventlog.Record, error) {
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(parallelLookups)
	page := make([]*eventlog.Record, len(merged))
	for i, f := range merged {
		if !f.waiting {
			page[i] = f.rec
			continue
		}
		work.Go(func() error {
			stored, err := s.log.Lookup(ctx, topic, f.rec.ID)
			switch {
			case errors.Is(err, eventlog.ErrNotFound):
				if f.rec.DeliverAt == 0 { // a scheduled event is not readable yet
					page[i] = marked(f.rec)
				}
			case err != nil:
				return err
			case stored.TS == f.rec.TS && (key == nil || stored.Key == *key):
				page[i] = stored
			}
			return nil
		})
	}
	if err := work.Wait(); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(page, func(r *eventlog.Record) bool { return r == nil }), nil
}

// marked is a copy of the spool's record as readers see it.
func marked(r *eventlog.Record) *eventlog.Record {
	c := *r
	c.Partition, c.Seq, c.Spooled = 0, 0, true
	return &c
}

func pointOf(r *eventlog.Record) eventlog.Point { return eventlog.Point{TS: r.TS, ID: r.ID} }

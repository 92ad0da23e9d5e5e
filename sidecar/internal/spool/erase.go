package spool

import (
	"context"
	"errors"
	"slices"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// erasePage bounds the events that Erase reads at a time.
var erasePage = eventlog.Bounds{Events: 1000, Bytes: 1 << 20}

// Erase removes the waiting events of a topic for which wanted returns true; with a key, only
// events of that key. It returns their number; the removal is durable. Events that had left the
// spool before the call are in the log when it returns, except for events whose append got no
// answer. The marks in the store cover these, and events in the spools of other sidecars: see
// erasures.
func (l *Log) Erase(
	ctx context.Context, topic string, key *string, wanted func(*eventlog.Record) bool, r eventlog.Retention,
) (erased int, err error) {
	t := l.find(topic)
	if t == nil || !t.spooling.Load() {
		return 0, nil
	}
	if err := t.drain.Lock(ctx); err != nil { // no page is on its way to the log
		return 0, err
	}
	defer t.drain.Unlock()
	for {
		var seqs []uint64
		var size int64
		for page, err := range eventlog.Pages(ctx, l.cfg.Store, topic, eventlog.ScanQuery{Key: key}, erasePage) {
			if errors.Is(err, eventlog.ErrNotFound) {
				return erased, nil
			}
			if err != nil {
				return erased, err
			}
			for _, rec := range page {
				if wanted(rec) {
					seqs, size = append(seqs, rec.Seq), size+int64(rec.Size())
				}
			}
			if len(seqs) >= erasePage.Events {
				break
			}
		}
		if len(seqs) == 0 {
			return erased, nil
		}
		if _, err := l.cfg.Store.Erase(ctx, topic, queue, seqs, r, l.cfg.Clock.Now().UnixMilli()); err != nil {
			return erased, err
		}
		l.account.give(t, len(seqs), size)
		erased += len(seqs)
	}
}

// Erasures are the methods of the store's log that erasures need; see eventlog.
type Erasures interface {
	Marked(ctx context.Context, topic, group string, ids []string, now int64) ([]bool, error)
	LookupEach(ctx context.Context, topic string, ids []string) ([]*eventlog.Record, error)
	Erase(ctx context.Context, topic string, partition int, seqs []uint64, r eventlog.Retention, now int64) (removed int, err error)
	Cancel(ctx context.Context, topic, id string) error
}

// erasures is what a drain knows about erased events of its topic. The holder of the topic's drain
// owns it.
//
// The drain compares a page with the marks before it appends the page, so that no reader gets an
// erased event, and again after that. An erasure first makes its mark and then searches the log. So
// the events that this search missed were appended after the mark, and the second look finds the
// mark. Each look covers the page before and the next page, while a page is being appended, and so
// costs the drain no extra time. Events remain that were erased between an append and the second
// look, if the process ends in between.
type erasures struct {
	unverified []*eventlog.Record // appended since the last look
	ahead      map[uint64]bool    // whether events of the next page are erased, by seq
}

// knows reports whether the last look covered all of a page.
func (e *erasures) knows(page []*eventlog.Record) bool {
	return !slices.ContainsFunc(page, func(rec *eventlog.Record) bool { _, known := e.ahead[rec.Seq]; return !known })
}

// look removes from the log the events that were erased since they were appended, and finds out
// which events of the next page are erased.
func (l *Log) look(ctx context.Context, t *topic, next []*eventlog.Record) error {
	e := &t.erasures
	e.ahead = nil
	if len(e.unverified)+len(next) == 0 {
		return nil
	}
	appended := len(e.unverified)
	erased, err := eventlog.Erased(ctx, l.cfg.Erasures.Marked, t.name, slices.Concat(e.unverified, next))
	if err != nil {
		return err
	}
	if err := l.eraseLogged(ctx, t, chosen(e.unverified, erased[:appended], true)); err != nil {
		return err
	}
	e.unverified, e.ahead = nil, make(map[uint64]bool, len(next))
	for i, rec := range next {
		e.ahead[rec.Seq] = erased[appended+i]
	}
	return nil
}

// chosen are the elements whose flag has that value.
func chosen[E any](all []E, flags []bool, is bool) (some []E) {
	for i, e := range all {
		if flags[i] == is {
			some = append(some, e)
		}
	}
	return some
}

// withoutErased returns the events of a page that are not erased. It erases the others from the
// log, since an append without an answer may have stored them.
func (l *Log) withoutErased(ctx context.Context, t *topic, page []*eventlog.Record) (rest []*eventlog.Record, err error) {
	if !t.erasures.knows(page) {
		if err := l.look(ctx, t, page); err != nil {
			return nil, err
		}
	}
	flags := make([]bool, len(page))
	for i, rec := range page {
		flags[i] = t.erasures.ahead[rec.Seq]
	}
	gone := chosen(page, flags, true)
	if len(gone) == 0 {
		return page, nil
	}
	l.cfg.Logger.Info("events of the spool do not come into the log: they were erased", "topic", t.name, "events", len(gone))
	return chosen(page, flags, false), l.eraseLogged(ctx, t, gone)
}

// unerased returns the refused events that are not erased.
func (l *Log) unerased(ctx context.Context, t *topic, all []dead) ([]dead, error) {
	if l.cfg.Erasures == nil || len(all) == 0 {
		return all, nil
	}
	recs := make([]*eventlog.Record, len(all))
	for i := range all {
		recs[i] = all[i].rec
	}
	erased, err := eventlog.Erased(ctx, l.cfg.Erasures.Marked, t.name, recs)
	if err != nil {
		return nil, err
	}
	return chosen(all, erased, false), nil
}

// eraseLogged erases events that may be in the log. An event of the same id that was accepted at
// another time is another event.
func (l *Log) eraseLogged(ctx context.Context, t *topic, gone []*eventlog.Record) error {
	if len(gone) == 0 {
		return nil
	}
	ids := make([]string, len(gone))
	for i, rec := range gone {
		ids[i] = rec.ID
		if rec.DeliverAt == 0 {
			continue
		}
		if err := l.cfg.Erasures.Cancel(ctx, t.name, rec.ID); err != nil && !errors.Is(err, eventlog.ErrNotFound) {
			return err
		}
	}
	logged, err := l.cfg.Erasures.LookupEach(ctx, t.name, ids)
	if errors.Is(err, eventlog.ErrNotFound) {
		return nil
	}
	some := false
	keep := eventlog.Retention{DedupeWindowMS: max(l.cfg.Policies.Load().Topic(t.name).Dedupe.Window.Milliseconds(), 1)}
	for i, rec := range logged {
		if err != nil || rec == nil || rec.AcceptedAt != gone[i].AcceptedAt {
			continue
		}
		some = true
		_, err = l.cfg.Erasures.Erase(ctx, t.name, rec.Partition, []uint64{rec.Seq}, keep, l.cfg.Clock.Now().UnixMilli())
	}
	if some && l.cfg.Erased != nil {
		l.cfg.Erased(t.name)
	}
	return err
}

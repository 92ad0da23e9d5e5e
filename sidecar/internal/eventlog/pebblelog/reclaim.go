package pebblelog

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"

	"github.com/sluice-bus/sluice/internal/pause"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/pebblelog/journal"
)

// Segments of the journal leave the disk in this order:
//
//  1. A closed segment of which at least half is removed events is read; what is still there is moved to the
//     journal's end, run by run, under the same seqs. Of a segment without events that are there nothing is moved.
//  2. A commit says in the index that the segment is dropped. It is synced, and then the index is flushed, so that
//     no start needs the segment any more.
//  3. The file is removed, unless a snapshot is open, which may know earlier places; then the next call does it.
//
// Retention, truncation and deletion remove the events of a partition up to its floor, so the floors say how much of
// a segment is gone, by a summary of its runs that is made once. Compaction and erasure remove single events, which
// are counted here; the count only says what is worthwhile, so a restart may forget it.
type reclaim struct {
	log     *Log
	wake    pause.Wake
	stop    context.CancelFunc
	stopped chan struct{}

	running sync.Mutex // held by run

	mu        sync.Mutex
	removed   map[uint64]int64 // bytes of single events by segment
	summaries map[uint64][]runsOf
}

// runsOf is what a segment has of one partition.
type runsOf struct {
	topic     uint32
	partition int
	last      uint64
	bytes     int64
}

func startReclaim(l *Log) *reclaim {
	ctx, cancel := context.WithCancel(context.Background())
	r := &reclaim{
		log: l, wake: pause.NewWake(), stop: cancel, stopped: make(chan struct{}),
		removed: map[uint64]int64{}, summaries: map[uint64][]runsOf{},
	}
	go func() {
		defer close(r.stopped)
		for {
			select {
			case <-r.wake:
			case <-ctx.Done():
				return
			}
			if err := r.run(ctx); err != nil && ctx.Err() == nil {
				l.health.log.Warn("segments of the journal could not be reclaimed", "folder", l.dir, "error", err)
			}
		}
	}()
	return r
}

func (r *reclaim) end() {
	r.stop()
	<-r.stopped
}

// cleared counts an event that was removed from a run. If it was erased, the whole segment counts as removed, so that
// it is rewritten.
func (r *reclaim) cleared(x *run, erased bool) {
	base := r.log.journal.SegmentOf(x.place)
	r.mu.Lock()
	defer r.mu.Unlock()
	if erased {
		r.removed[base] = journal.SegmentSize
	}
	r.removed[base] += int64(x.size / x.span)
}

// run reclaims the segments that are worthwhile.
func (r *reclaim) run(ctx context.Context) error {
	r.running.Lock()
	defer r.running.Unlock()
	l := r.log
	bases, end := l.journal.Closed()
	var dropped []uint64
	for i, base := range bases {
		if ctx.Err() != nil {
			break
		}
		next := end
		if i+1 < len(bases) && bases[i+1] < end {
			next = bases[i+1]
		}
		size, err := l.segmentSize(base, next)
		if err != nil {
			return err
		}
		if size == segmentDropped { // a snapshot was open
			dropped = append(dropped, base)
			continue
		}
		gone, err := r.gone(base, base+size)
		if err != nil {
			return err
		}
		if gone*2 < int64(size) {
			continue
		}
		if err := r.empty(ctx, base, base+size); err != nil {
			return err
		}
		dropped = append(dropped, base)
	}
	return r.drop(ctx, dropped)
}

// segmentSize is what the index knows of a closed segment; next is where the one after it begins, unless that was
// dropped.
func (l *Log) segmentSize(base, next uint64) (uint64, error) {
	size, err := l.storedSeq(segmentKey(base))
	if size == 0 {
		size = next - base
	}
	return size, err
}

// gone is how many bytes of a segment are of no use any more.
func (r *reclaim) gone(base, end uint64) (int64, error) {
	l := r.log
	r.mu.Lock()
	gone, of := r.removed[base], r.summaries[base]
	r.mu.Unlock()
	if of == nil {
		var err error
		if of, err = l.summarize(base, end); err != nil {
			return 0, err
		}
		r.mu.Lock()
		r.summaries[base] = of
		r.mu.Unlock()
	}
	topics := l.catalog.byID()
	there := int64(0)
	for _, x := range of {
		t := topics[x.topic]
		if t == nil || x.partition >= len(t.partitions) {
			continue
		}
		part, err := l.partition(t, x.partition)
		if err != nil {
			return 0, err
		}
		if part.floor.Load() < x.last {
			there += x.bytes
		}
	}
	return max(int64(end-base)-there, 0) + gone, nil
}

// summarize reads a closed segment.
func (l *Log) summarize(base, end uint64) ([]runsOf, error) {
	type place struct {
		topic     uint32
		partition int
	}
	sums := map[place]*runsOf{}
	err := l.journal.Frames(base, end, func(f journal.Frame, body []byte) error {
		runs, _, err := frameRuns(body, f.Body)
		for i := range runs {
			x := &runs[i]
			at := place{x.topic, x.partition}
			if sums[at] == nil {
				sums[at] = &runsOf{topic: x.topic, partition: x.partition}
			}
			sums[at].last = max(sums[at].last, x.last())
			sums[at].bytes += int64(x.size)
		}
		return err
	})
	of := make([]runsOf, 0, len(sums))
	for _, x := range sums {
		of = append(of, *x)
	}
	return of, err
}

// empty moves what is there of a segment.
func (r *reclaim) empty(ctx context.Context, base, end uint64) error {
	l := r.log
	topics := l.catalog.byID()
	return l.journal.Frames(base, end, func(f journal.Frame, body []byte) error {
		runs, _, err := frameRuns(body, f.Body)
		for i := range runs {
			if t := topics[runs[i].topic]; err == nil && t != nil {
				err = l.move(ctx, t, &runs[i])
			}
		}
		return err
	})
}

// move moves what is there of one run to the journal's end.
func (l *Log) move(ctx context.Context, t *topic, x *frameRun) error {
	if err := t.sweeping.Lock(ctx); err != nil {
		return err
	}
	defer t.sweeping.Unlock()
	value, found, err := l.get(x.key(nil))
	if err != nil || !found {
		return err
	}
	now, err := decodeRun(x.topic, x.partition, x.key(nil), value)
	if err != nil || now.place != x.place {
		return failed(err)
	}
	for floor := t.partitions[x.partition].floor.Load(); now.first <= floor && floor < now.last(); floor-- {
		now.live &^= 1 << (floor - now.first)
	}
	records, err := runRecords(nil, &now, x.records)
	if err != nil {
		return err
	}
	identity := identitySum(x.topic, x.partition, x.first)
	var moved []byte
	for i := range records {
		if !records[i].whole(identity, x.records) {
			return damaged(l.journal, &now, records[i].seq, records[i].start)
		}
		moved = append(moved, x.records[records[i].start:records[i].start+4+len(records[i].sum)]...)
	}
	w := runWriter{runs: []run{now}}
	to := &w.runs[0]
	to.size = len(moved)
	w.body = appendRunHeader(binary.AppendUvarint(nil, 1), runMoved, to)
	to.place = uint64(len(w.body))
	w.body = append(w.body, moved...)
	if err := l.space.check(); err != nil {
		return err
	}
	_, err = l.commits.apply(ctx, &change{events: &w}, nil)
	return err
}

// drop drops segments that have nothing any more.
func (r *reclaim) drop(ctx context.Context, bases []uint64) error {
	if len(bases) == 0 {
		return nil
	}
	l := r.log
	b := l.db.NewBatch()
	for _, base := range bases {
		_ = b.Set(segmentKey(base), binary.AppendUvarint(nil, segmentDropped), nil)
	}
	if err := l.commitSynced(ctx, b); err != nil {
		return err
	}
	flushed, err := l.db.AsyncFlush()
	if err != nil {
		return err
	}
	select {
	case <-flushed:
	case <-ctx.Done():
		return ctx.Err()
	}
	if l.hasSnapshots() {
		return nil
	}
	var errs []error
	forget := l.db.NewBatch()
	for _, base := range bases {
		errs = append(errs, l.journal.Drop(base))
		_ = forget.Delete(segmentKey(base), nil)
		r.mu.Lock()
		delete(r.removed, base)
		delete(r.summaries, base)
		r.mu.Unlock()
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return l.commits.applyUnsynced(ctx, forget)
}

func (l *Log) hasSnapshots() (open bool) {
	l.snapshots.Range(func(_, _ any) bool {
		open = true
		return false
	})
	return open
}

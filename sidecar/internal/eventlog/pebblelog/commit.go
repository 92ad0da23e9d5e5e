package pebblelog

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"runtime"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"

	"github.com/sluice-bus/sluice/internal/pause"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/pebblelog/journal"
)

// committer writes changes in two steps. apply adds a change to the journal and puts it into the index, in the
// order of the calls. One goroutine then syncs the journal and announces the durable commits, in the same order.
// Other calls apply their changes meanwhile, and one sync serves all that was applied before it.
//
// The index itself is never synced. It never has more than the journal: guardedFS syncs the journal before a table
// of the index. At a start the journal brings it up to date, from the position that it has under kindPosition.
type committer struct {
	db      *pebble.DB
	journal *journal.Journal
	health  *health
	space   *space

	// turn serializes apply.
	turn    pause.Mutex
	segment uint64 // the last one that the index knows, or noSegment; guarded by turn
	// slots has an element for each commit without a result.
	slots chan struct{}
	// applied are the commits that wait for their sync, in the order of the journal. Sending needs the turn, and a
	// slot so as not to block.
	applied chan *commit
	stopped chan struct{}
	// wedged says that Pebble panicked in a commit and still holds its locks.
	wedged atomic.Bool
}

// change is what a commit does.
type change struct {
	// entries go into the journal and the index; nil: none.
	entries *pebble.Batch
	// events, if there are some, go into the journal, and indexed, with an entry for each run, into the index.
	events  *runWriter
	indexed *pebble.Batch
}

// free lets the memory of a change that was applied, or refused, be used again, except for its entries.
func (ch *change) free() {
	if ch.events != nil {
		ch.events.free()
	}
	_ = ch.indexed.Close()
}

// commit is one change under way; err may be read once done is closed.
type commit struct {
	// durable, if any, is called in commit order once the change is synced.
	durable func()
	done    chan struct{}
	err     error
}

// noSegment stands for the base of none.
const noSegment = math.MaxUint64

// maxUnsynced bounds the commits that wait for their sync.
const maxUnsynced = 1024

func newCommitter(db *pebble.DB, j *journal.Journal, segment uint64, h *health, room *space) *committer {
	c := &committer{
		db: db, journal: j, segment: segment, health: h, space: room,
		turn:    pause.NewMutex(),
		slots:   make(chan struct{}, maxUnsynced),
		applied: make(chan *commit, maxUnsynced),
		stopped: make(chan struct{}),
	}
	go c.awaitSyncs()
	return c
}

// apply makes the change, if there is one, visible in the index and starts its sync. If the context ends before
// the change's turn, nothing is applied.
func (c *committer) apply(ctx context.Context, ch *change, durable func()) (*commit, error) {
	select {
	case c.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-c.space.isFull():
		return nil, &eventlog.DiskFullError{}
	}
	err := c.turn.Lock(ctx)
	if err == nil {
		defer c.turn.Unlock()
		err = c.write(ch)
	}
	if err != nil {
		<-c.slots
		return nil, err
	}
	x := &commit{durable: durable, done: make(chan struct{})}
	c.applied <- x
	return x, nil
}

// applyUnsynced makes the entries visible. They become durable with the next synced change at the latest.
func (c *committer) applyUnsynced(ctx context.Context, entries *pebble.Batch) error {
	if err := c.turn.Lock(ctx); err != nil {
		return err
	}
	defer c.turn.Unlock()
	return c.write(&change{entries: entries})
}

// save is applyUnsynced, and the entries survive a kill of the process when it returns nil.
func (c *committer) save(ctx context.Context, entries *pebble.Batch) error {
	if err := c.applyUnsynced(ctx, entries); err != nil {
		return err
	}
	if err := c.journal.Flush(ctx); err != nil {
		return cmp.Or(c.health.err(), err)
	}
	return nil
}

// write adds the change to the journal, and then to the index; turn is held.
func (c *committer) write(ch *change) (err error) {
	if err := c.health.err(); err != nil || ch == nil {
		return err
	}
	// Pebble reports a failed commit by Fatalf or a panic, rarely by an error.
	defer func() {
		if p := recover(); p != nil {
			c.wedged.Store(true)
			c.health.fail(fmt.Errorf("commit: %v", p))
		}
		if err != nil {
			c.health.fail(err)
		}
		err = c.health.err()
	}()
	segment, err := c.put(ch)
	if err == nil && segment != c.segment {
		err = c.note(segment)
	}
	return err
}

// put is write, and returns the segment that has the change.
func (c *committer) put(ch *change) (segment uint64, err error) {
	events, runs := noRuns, []run(nil)
	if ch.events != nil {
		events, runs = ch.events.bytes(), ch.events.runs
	}
	var entries []byte
	if ch.entries != nil && !ch.entries.Empty() {
		entries = ch.entries.Repr()
	}
	frame, err := c.journal.Append(events, entries)
	if err != nil {
		return 0, err
	}
	b := ch.indexed
	switch {
	case b == nil && entries != nil:
		b = ch.entries
	case b == nil:
		b = c.db.NewBatch()
	case entries != nil:
		if err := b.Apply(ch.entries, nil); err != nil {
			return 0, err
		}
	}
	if err := indexRuns(b, runs, frame.Body); err != nil {
		return 0, err
	}
	if err := c.place(b, frame.End); err != nil {
		return 0, err
	}
	return frame.Segment, c.db.Apply(b, pebble.NoSync)
}

// noRuns is the list of runs of a change without events.
var noRuns = []byte{0}

// indexRuns adds the entries of runs, whose places are relative to a position.
func indexRuns(b *pebble.Batch, runs []run, at uint64) error {
	var key, value []byte
	for i := range runs {
		runs[i].place += at
		key, value = runs[i].key(key[:0]), runs[i].value(value[:0])
		if err := b.Set(key, value, nil); err != nil {
			return err
		}
	}
	return nil
}

// place notes up to which position the index has everything.
func (c *committer) place(b *pebble.Batch, at uint64) error {
	return b.Set([]byte{kindPosition}, binary.AppendUvarint(nil, at), nil)
}

// note tells the index of the segment that is written to, and of the size of the one before it. It has the index
// flushed, so that a start after a kill replays a segment or two, however little of their events is in the index.
func (c *committer) note(segment uint64) error {
	b := c.db.NewBatch()
	noteSegments(b, c.segment, segment)
	c.segment = segment
	if _, err := c.put(&change{entries: b}); err != nil {
		return err
	}
	_, err := c.db.AsyncFlush()
	return err
}

// noteSegments adds the entries of a segment that ends where the next one begins, and of that.
func noteSegments(b *pebble.Batch, segment, next uint64) {
	if segment != noSegment {
		_ = b.Set(segmentKey(segment), binary.AppendUvarint(nil, next-segment), nil)
	}
	_ = b.Set(segmentKey(next), binary.AppendUvarint(nil, 0), nil)
}

// awaitSyncs waits for the syncs, in order. The store's health decides: a sync that succeeds after a failed one
// proves nothing.
func (c *committer) awaitSyncs() {
	defer close(c.stopped)
	var group []*commit
	for x := range c.applied {
		if len(group) > 1 {
			runtime.Gosched() // what can run already runs first: its changes get into this sync, and cost none of their own
		}
		group = append(group[:0], x)
		for n := len(c.applied); n > 0; n-- {
			group = append(group, <-c.applied)
		}
		_ = c.journal.Sync() // it has told health of its error
		for _, x := range group {
			if x.err = c.health.err(); x.err == nil && x.durable != nil {
				x.durable()
			}
			<-c.slots
			close(x.done)
		}
	}
}

// wait returns once the commit is durable. If the context ends first, or the disk has no room, the
// commit continues and its outcome is not known.
func (c *committer) wait(ctx context.Context, x *commit) error {
	select {
	case <-x.done:
		return x.err
	case <-ctx.Done():
		return unknown(ctx.Err())
	case <-c.space.isFull():
		return unknown(&eventlog.DiskFullError{})
	}
}

// barrier returns once everything that was applied by apply before is durable, so that the caller may return
// what it has read from the index.
func (c *committer) barrier(ctx context.Context) error {
	if len(c.slots) == 0 {
		return c.health.err()
	}
	return c.sync(ctx)
}

// sync returns once everything that was applied before is durable.
func (c *committer) sync(ctx context.Context) error {
	if !c.journal.Unsynced() {
		return c.health.err()
	}
	x, err := c.apply(ctx, nil, nil)
	if err != nil {
		return err
	}
	select {
	case <-x.done:
		return x.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// stop waits until every commit has its outcome; no more are applied.
func (c *committer) stop() {
	close(c.applied)
	<-c.stopped
}

// unknown says that a write's outcome is not known because its context ended.
func unknown(err error) error {
	return fmt.Errorf("%w: gave up waiting: %w", eventlog.ErrUnavailable, err)
}

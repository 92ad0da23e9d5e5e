package pebblelog

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"

	"github.com/sluice-bus/sluice/internal/pause"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// committer writes batches to the disk in two steps. apply puts a batch into Pebble's memtable and
// write-ahead log, in the order of the calls. One goroutine then waits for the syncs, in the same
// order, and announces the durable commits. Other calls apply their batches meanwhile, and one sync
// of Pebble serves all batches applied before it.
type committer struct {
	db     *pebble.DB
	health *health
	space  *space

	// turn serializes apply. Pebble could apply several batches at once. But when the write-ahead
	// log has failed, it panics while it holds its own locks: one caller survives that, callers
	// that wait for these locks would not.
	turn pause.Mutex
	// slots has an element for each commit without a result.
	slots chan struct{}
	// applied are the commits that wait for their sync, in the order of the write-ahead log.
	// Sending needs the turn, and a slot so as not to block.
	applied chan *commit
	stopped chan struct{}
	// wedged says that Pebble panicked in a commit and still holds its locks.
	wedged atomic.Bool
}

// commit is one batch under way; err may be read once done is closed.
type commit struct {
	batch *pebble.Batch // nil for a barrier
	// durable, if any, is called in commit order once the batch is synced.
	durable func()
	done    chan struct{}
	err     error
}

// maxUnsynced bounds the commits that wait for their sync.
const maxUnsynced = 1024

func newCommitter(db *pebble.DB, h *health, room *space) *committer {
	c := &committer{
		db: db, health: h, space: room,
		turn:    pause.NewMutex(),
		slots:   make(chan struct{}, maxUnsynced),
		applied: make(chan *commit, maxUnsynced),
		stopped: make(chan struct{}),
	}
	go c.awaitSyncs()
	return c
}

// apply makes the batch, if there is one, visible in Pebble and starts its sync. It owns the batch
// from then on. If the context ends before the batch's turn, nothing is applied.
func (c *committer) apply(ctx context.Context, b *pebble.Batch, durable func()) (*commit, error) {
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
		err = c.health.err()
	}
	if err == nil && b != nil {
		err = c.hand(func() error { return c.db.ApplyNoSyncWait(b, pebble.Sync) })
	}
	if err != nil {
		<-c.slots
		return nil, err
	}
	x := &commit{batch: b, durable: durable, done: make(chan struct{})}
	c.applied <- x
	return x, nil
}

// applyUnsynced makes the batch visible. It becomes durable with the next synced batch at the
// latest. The caller closes the batch.
func (c *committer) applyUnsynced(ctx context.Context, b *pebble.Batch) error {
	if err := c.turn.Lock(ctx); err != nil {
		return err
	}
	defer c.turn.Unlock()
	if err := c.health.err(); err != nil {
		return err
	}
	return c.hand(func() error { return c.db.Apply(b, pebble.NoSync) })
}

// hand gives a batch to Pebble. Pebble reports a failed commit by Fatalf or a panic, rarely by an
// error.
func (c *committer) hand(apply func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			c.wedged.Store(true)
			c.health.fail(fmt.Errorf("commit: %v", p))
			err = c.health.err()
		}
	}()
	if err := apply(); err != nil {
		c.health.fail(err)
	}
	return c.health.err()
}

// awaitSyncs waits for the syncs, in order. The store's health decides: a sync that succeeds after
// a failed one proves nothing.
func (c *committer) awaitSyncs() {
	defer close(c.stopped)
	for x := range c.applied {
		if x.batch != nil {
			if err := x.batch.SyncWait(); err != nil {
				c.health.fail(err)
			}
		}
		if x.err = c.health.err(); x.err == nil && x.durable != nil {
			x.durable()
		}
		if x.batch != nil && x.err == nil {
			x.batch.Close()
		}
		<-c.slots
		close(x.done)
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

// barrier returns once everything that was applied before is durable, so that the caller may return
// what it has read from Pebble.
func (c *committer) barrier(ctx context.Context) error {
	if len(c.slots) == 0 {
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

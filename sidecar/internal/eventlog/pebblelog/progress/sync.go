package progress

import (
	"context"
	"fmt"
)

// round is one sync and all that wait for it; err may be read once done is
// closed.
type round struct {
	done chan struct{}
	err  error
}

// Sync returns nil once everything that was put before the call survives a
// power cut. Calls that come while a sync is under way share the next one. A
// call whose context ends returns its error, and the sync goes on.
func (j *Journal) Sync(ctx context.Context) error {
	j.mu.Lock()
	if j.err != nil || j.synced == j.written {
		defer j.mu.Unlock()
		return j.err
	}
	if j.next == nil {
		j.next = &round{done: make(chan struct{})}
	}
	r := j.next
	j.mu.Unlock()
	j.wake.Set()
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// syncLoop does all syncs and rewrites, one after the other.
func (j *Journal) syncLoop() {
	defer close(j.stopped)
	for range j.wake {
		j.mu.Lock()
		r, full, err := j.next, j.full(), j.err
		j.next = nil
		j.mu.Unlock()
		switch {
		case err != nil:
		case full:
			err = j.rewrite()
		case r != nil:
			err = j.sync()
		}
		if r != nil {
			r.err = err
			close(r.done)
		}
	}
}

// sync makes durable what has been written to the file.
func (j *Journal) sync() error {
	j.mu.Lock()
	file, upTo := j.file, j.written
	j.mu.Unlock()
	if err := file.SyncData(); err != nil {
		return j.poison(fmt.Errorf("sync %s: %w", j.path, err))
	}
	j.mu.Lock()
	j.synced = upTo
	j.mu.Unlock()
	return nil
}

package progress

import (
	"context"
	"fmt"
)

// round is one sync that several calls may wait for; err may be read once done is closed.
type round struct {
	done chan struct{}
	err  error
}

// Sync returns nil once all earlier Puts survive a power cut. Calls during a sync share the next
// one. A call whose context ends returns the context's error, and the sync continues.
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

// sync makes the written records durable.
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

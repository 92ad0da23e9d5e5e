package mongolog

import (
	"sync"
	"time"
)

// batcher writes one batch at a time. Calls that arrive meanwhile form the next batch. The number
// of callers bounds the batch, since each caller waits for its answer.
type batcher[T any] struct {
	mu      sync.Mutex
	waiting []T
	running bool
}

// add makes the item part of the next batch. The next batch waits for linger after the previous
// one: callers that were just answered may have more.
func (b *batcher[T]) add(l *Log, item T, linger time.Duration, write func([]T)) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.running && !l.spawn(func() { b.run(l, linger, write) }) {
		return errClosed
	}
	b.running = true
	b.waiting = append(b.waiting, item)
	return nil
}

// run writes batch after batch until nothing waits.
func (b *batcher[T]) run(l *Log, linger time.Duration, write func([]T)) {
	for first := true; ; first = false {
		if !first {
			l.opts.Clock.Sleep(l.ctx, linger)
		}
		b.mu.Lock()
		items := b.waiting
		b.waiting = nil
		b.running = len(items) > 0
		b.mu.Unlock()
		if len(items) == 0 {
			return
		}
		write(items)
	}
}

package core

import (
	"sync"
	"time"
)

// Batcher writes one batch at a time. Calls that arrive meanwhile form the next batch. The number
// of callers bounds the batch, since each caller waits for its answer.
type Batcher[T any] struct {
	mu      sync.Mutex
	waiting []T
	running bool
}

// Add makes the item part of the next batch. The next batch waits for linger after the previous
// one: callers that were just answered may have more.
func (b *Batcher[T]) Add(s *Store, item T, linger time.Duration, write func([]T)) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.running && !s.Spawn(func() { b.run(s, linger, write) }) {
		return ErrClosed
	}
	b.running = true
	b.waiting = append(b.waiting, item)
	return nil
}

// run writes batch after batch until nothing waits.
func (b *Batcher[T]) run(s *Store, linger time.Duration, write func([]T)) {
	for first := true; ; first = false {
		if !first {
			s.Clock.Sleep(s.lasting, linger)
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

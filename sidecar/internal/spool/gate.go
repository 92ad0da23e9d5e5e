package spool

import (
	"context"
	"sync"
)

// gate is how batches get into a topic's spool. The drainer shuts it to be alone
// with the topic. It is a read-write lock whose waits can be cancelled; one
// goroutine at a time shuts it.
type gate struct {
	mu     sync.Mutex
	inside int
	opens  chan struct{} // closed when the gate opens; nil while it is open
	empty  chan struct{} // closed when the last one inside leaves; nil: there is no waiter
}

// enter waits until the gate is open. Without an error leave has to follow.
func (g *gate) enter(ctx context.Context) error {
	for {
		g.mu.Lock()
		opens := g.opens
		if opens == nil {
			g.inside++
		}
		g.mu.Unlock()
		if opens == nil {
			return nil
		}
		select {
		case <-opens:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside--
	if g.inside == 0 && g.empty != nil {
		close(g.empty)
		g.empty = nil
	}
}

// shut admits no more appends and waits until all have left. Without an error open has to follow.
func (g *gate) shut(ctx context.Context) error {
	g.mu.Lock()
	g.opens = make(chan struct{})
	var empty chan struct{}
	if g.inside > 0 {
		empty = make(chan struct{})
		g.empty = empty
	}
	g.mu.Unlock()
	if empty == nil {
		return nil
	}
	select {
	case <-empty:
		return nil
	case <-ctx.Done():
		g.open()
		return ctx.Err()
	}
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.opens)
	g.opens, g.empty = nil, nil
}

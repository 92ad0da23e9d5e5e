package catalog

import (
	"context"
	"sync"

	"github.com/sluice-bus/sluice/internal/pause"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// Turns lets one call run at a time. Changes go before checks, which only read: a change that comes interrupts the check that
// runs, and the check begins again after it. So no check holds up a change, however long it takes.
type Turns struct {
	turn pause.Mutex

	mu        sync.Mutex
	changes   int                // that run or wait
	interrupt context.CancelFunc // of the check that runs; nil: none
}

// maxInterrupted is how often a check begins.
const maxInterrupted = 5

// NewTurns returns Turns in which no call runs.
func NewTurns() *Turns { return &Turns{turn: pause.NewMutex()} }

// Change calls f. The error is f's, or the context's if that ends before.
func (t *Turns) Change(ctx context.Context, f func() error) error {
	t.mu.Lock()
	t.changes++
	if t.interrupt != nil {
		t.interrupt()
	}
	t.mu.Unlock()
	defer func() {
		t.mu.Lock()
		t.changes--
		t.mu.Unlock()
	}()
	if err := t.turn.Lock(ctx); err != nil {
		return err
	}
	defer t.turn.Unlock()
	return f()
}

// Check calls f with a context that ends when a change comes. It calls f again then; the error is overloaded where changes come
// again and again.
func (t *Turns) Check(ctx context.Context, f func(context.Context) error) error {
	for range maxInterrupted {
		interrupted, err := t.try(ctx, f)
		if !interrupted || ctx.Err() != nil {
			return err
		}
	}
	e := wire.Errorf(wire.Overloaded, "changes of policies go first, and have interrupted this check %d times; try again", maxInterrupted)
	e.RetryAfter = retryAfter
	return e
}

func (t *Turns) try(ctx context.Context, f func(context.Context) error) (interrupted bool, _ error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if err := t.lockAfterChanges(ctx, stop); err != nil {
		return false, err
	}
	err := f(ctx)
	t.mu.Lock()
	t.interrupt = nil
	t.mu.Unlock()
	t.turn.Unlock()
	return ctx.Err() != nil, err
}

// lockAfterChanges takes the turn once no change runs or waits.
func (t *Turns) lockAfterChanges(ctx context.Context, interrupt context.CancelFunc) error {
	for {
		if err := t.turn.Lock(ctx); err != nil {
			return err
		}
		t.mu.Lock()
		if t.changes == 0 {
			t.interrupt = interrupt
			t.mu.Unlock()
			return nil
		}
		t.mu.Unlock()
		t.turn.Unlock() // a change waits for it
	}
}

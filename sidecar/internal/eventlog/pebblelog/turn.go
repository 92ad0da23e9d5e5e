package pebblelog

import "context"

// turn is a mutex that a caller can give up waiting for.
type turn chan struct{}

func newTurn() turn { return make(turn, 1) }

// take waits for the turn; give ends it.
func (t turn) take(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (t turn) give() { <-t }

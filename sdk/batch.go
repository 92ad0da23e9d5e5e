package sluice

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-bus/sluice/sdk/option"
)

// A BatchHandler handles events together. When it returns nil all are acked; a [BatchErrors] has
// the error of each event; any other error counts for every event. [Handler] describes the effect
// of an error. Events without an error are acked meanwhile. The context ends as that of a [Handler]
// that has all of the events; [WithPropagator] adds nothing to it.
type BatchHandler func(ctx context.Context, batch []*Message) error

// BatchErrors are the errors of a batch's events, in order; nil acks the event.
type BatchErrors []error

func (e BatchErrors) Error() string {
	failed, first := 0, error(nil)
	for _, err := range e {
		if err != nil {
			failed++
			if first == nil {
				first = err
			}
		}
	}
	return fmt.Sprintf("%d of %d events failed, the first with: %v", failed, len(e), first)
}

// Unwrap returns the errors.
func (e BatchErrors) Unwrap() []error { return e }

const (
	defaultBatchEvents = 100
	defaultBatchWait   = 100 * time.Millisecond
)

// SubscribeBatch is [Client.Subscribe] with a handler that takes several events at a time, no two
// of one key: the next event of a key comes in a later batch. Batches are handled one after the
// other, or as many at a time as [option.Concurrency] says.
func (c *Client) SubscribeBatch(ctx context.Context, topic, group string, handler BatchHandler,
	opts ...option.Subscribe) (*Subscription, error) {
	if handler == nil {
		return nil, fmt.Errorf("%w: the handler of a subscription", ErrNil)
	}
	cfg := newSubscribeConfig(opts)
	if cfg.Batch == 0 {
		cfg.Batch, cfg.BatchWait = defaultBatchEvents, defaultBatchWait
	}
	if most := cfg.Wire.MaxInflight; most != nil {
		cfg.Batch = min(cfg.Batch, max(*most, 1))
	}
	cfg.batchHandler = handler
	return c.subscribe(ctx, topic, group, cfg)
}

// gather waits until there is a whole batch, or the first event of it has waited long enough. It
// returns false if another handler's goroutine waits already.
func (s *Subscription) gather() bool {
	if s.config.Batch <= 1 || len(s.ready) >= s.config.Batch {
		return true
	}
	if s.gathering {
		return false
	}
	s.gathering = true
	over := false
	timer := time.AfterFunc(s.config.BatchWait, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		over = true
		s.changed.Broadcast()
	})
	mayGrow := func() bool {
		room := len(s.ready) < s.config.Batch && !s.full()
		ending := s.paused || s.draining || s.stopping
		return len(s.ready) > 0 && room && !over && !ending
	}
	for mayGrow() {
		s.changed.Wait()
	}
	timer.Stop()
	s.gathering = false
	return !s.paused && !s.stopping
}

// each returns the error of each event of a batch, given the error of its handler.
func each(err error, n int) BatchErrors {
	if errs, ok := asType[BatchErrors](err); ok && len(errs) == n {
		return errs
	} else if ok {
		err = fmt.Errorf("sluice: a batch of %d events has %d results: %w", n, len(errs), err)
	}
	return slices.Repeat(BatchErrors{err}, n)
}

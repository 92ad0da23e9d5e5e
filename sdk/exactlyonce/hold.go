package exactlyonce

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-bus/sluice/sdk/internal/pause"
)

// hold runs f, which runs the effect and marks it, and extends the claim meanwhile. The context of
// f ends when the claim is lost. Where f fails, or panics, the claim is released.
func (h *Handler) hold(ctx context.Context, c *Claim, f func(ctx context.Context) error) (err error) {
	held, cancel := context.WithCancelCause(ctx)
	stopped, stop := context.WithCancel(context.WithoutCancel(ctx))
	expiry := time.AfterFunc(c.Remaining(), func() { cancel(ErrLeaseLost) })
	extended := make(chan struct{})
	extending := time.AfterFunc(c.lease/extendPart, func() { // most effects have run by then
		defer close(extended)
		h.extend(stopped, c, expiry, cancel)
	})
	settled := false
	defer func() {
		stop()
		if !extending.Stop() {
			<-extended
		}
		expiry.Stop()
		cancel(nil)
		if !settled {
			// The lease runs out by itself if this fails.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), h.opts.Timeout)
			defer cancel()
			_ = h.release(ctx, c)
		}
	}()
	err = f(held)
	if cause := context.Cause(held); err != nil && (errors.Is(cause, ErrLeaseLost) || errors.Is(cause, ErrFenced)) && !errors.Is(err, cause) {
		err = fmt.Errorf("exactlyonce: %q: %w: %w", c.ID, cause, err)
	}
	settled = err == nil || errors.Is(err, ErrFenced) || errors.Is(err, ErrNotMarked)
	return err
}

// extend extends the claim until ctx ends or the claim is lost. It calls cancel if it is lost.
func (h *Handler) extend(ctx context.Context, c *Claim, expiry *time.Timer, cancel func(cause error)) {
	every := c.lease / extendPart
	kept := time.Now()
	for {
		wait := every
		began := time.Now()
		switch err := h.beat(ctx, c); {
		case errors.Is(err, ErrFenced):
			cancel(err)
			return
		case err != nil: // once more, soon
			wait = every / 4
		case c.hold(began):
			expiry.Reset(c.Remaining())
		}
		if c.Err() != nil {
			cancel(ErrLeaseLost)
			return
		}
		if c.slot.Number > 1 && time.Since(kept) > keepLonger/4 {
			if h.keepChain(ctx, c) == nil {
				kept = time.Now()
			}
		}
		if !pause.For(ctx, wait) {
			return
		}
	}
}

// beat extends the claim in the store, and checks whether another process has fenced it: the clock
// of a machine that was suspended does not always show that.
func (h *Handler) beat(ctx context.Context, c *Claim) error {
	ctx, cancel := context.WithTimeout(ctx, c.lease/extendPart)
	defer cancel()
	c.beat++ // also if this fails: it may have come through
	err := h.store.Extend(ctx, c.slot, Beat{Number: c.beat, ExpireAt: time.Now().Add(h.keep())})
	if err != nil {
		return err
	}
	next, err := h.store.Get(ctx, c.slot.Next())
	switch {
	case errors.Is(err, ErrNotFound):
		return nil
	case err != nil:
		return err
	case next.Owner == c.owner: // the mark
		return nil
	}
	return ErrFenced
}

// keepChain keeps the claims before this one, while a long effect runs.
func (h *Handler) keepChain(ctx context.Context, c *Claim) error {
	ctx, cancel := context.WithTimeout(ctx, c.lease/extendPart)
	defer cancel()
	_, err := h.store.Keep(ctx, c.slot, time.Now().Add(h.keep()))
	return err
}

// release gives the claim up, so that others need not wait for its end.
func (h *Handler) release(ctx context.Context, c *Claim) error {
	return h.store.Extend(ctx, c.slot, Beat{Number: c.beat, Released: true, ExpireAt: time.Now().Add(h.keep())})
}

package exactlyonce

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-bus/sluice/sdk/internal/pause"
)

// complete marks the claim's effect: the mark takes the slot behind the claim, as a later claim
// would. The first of the two gets the slot; no clock decides. The caller's context may have ended:
// the effect has run.
func (h *Handler) complete(ctx context.Context, c *Claim) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), h.opts.Timeout)
	defer cancel()
	pauses := newPauses()
	for {
		err := h.store.Insert(ctx, h.doneRecord(c))
		if err == nil {
			return nil
		}
		switch next, getErr := h.store.Get(ctx, c.slot.Next()); {
		case getErr != nil: // not there, not yet readable, or unknown for now
		case next.Owner == c.owner:
			return nil // an earlier try, whose answer was lost
		default:
			return fmt.Errorf("exactlyonce: %q: %w", c.ID, ErrFenced)
		}
		if !pause.For(ctx, pauses.Step()) {
			return fmt.Errorf("exactlyonce: %q: %w: %w", c.ID, ErrNotMarked, err)
		}
	}
}

func (h *Handler) doneRecord(c *Claim) Record {
	return Record{Slot: c.slot.Next(), Kind: KindDone, Owner: c.owner, ExpireAt: time.Now().Add(h.opts.TTL)}
}

// transact runs the effect and inserts the mark in one transaction. The mark's slot alone decides
// the outcome.
func (h *Handler) transact(ctx context.Context, tx Transactor, c *Claim, effect func(context.Context) error) (committed bool, err error) {
	var failed, taken bool
	err = tx.Transact(ctx, func(ctx context.Context) error {
		failed, taken = true, false
		if err := c.Err(); err != nil { // again, and too late
			return err
		}
		if err := effect(ctx); err != nil {
			return err
		}
		failed = false
		// Last, so that another owner of the lease need not wait for a transaction that was paused
		// in the middle.
		err := tx.Insert(ctx, h.doneRecord(c))
		taken = errors.Is(err, ErrExists)
		return err
	})
	if err == nil {
		return true, nil
	}
	if failed {
		return false, err
	}
	return h.resolve(ctx, c, taken, err)
}

// resolve finds the outcome of a transaction that failed with err, in the mark's insert or after
// it.
func (h *Handler) resolve(ctx context.Context, c *Claim, taken bool, cause error) (committed bool, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), h.opts.Timeout)
	defer cancel()
	pauses := newPauses()
	for {
		next, err := h.store.Get(ctx, c.slot.Next())
		switch {
		case err == nil && next.Owner == c.owner:
			return true, nil
		case err == nil && next.Kind == KindDone:
			return false, nil // somebody else's
		case err == nil:
			return false, fmt.Errorf("exactlyonce: %q: %w", c.ID, ErrFenced)
		case errors.Is(err, ErrNotFound) && !taken:
			// Not committed, or not yet: then the slot behind the claim decides between it and the
			// next claim.
			return false, fmt.Errorf("exactlyonce: %q is not committed: %w", c.ID, cause)
		}
		if !pause.For(ctx, pauses.Step()) {
			return false, fmt.Errorf("exactlyonce: %q: it is not known whether it is committed: %w: %w", c.ID, cause, err)
		}
	}
}

// mark puts a mark at the end of the key's chain.
func (h *Handler) mark(ctx context.Context, key string, ttl time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, h.opts.Timeout)
	defer cancel()
	owner := newToken()
	fresh := Slot{Key: key, Chain: newToken(), Number: 1}
	pauses := newPauses()
	for {
		err := h.tryMark(ctx, fresh, owner, ttl)
		if err == nil {
			return nil
		}
		if !pause.For(ctx, pauses.Step()) {
			return fmt.Errorf("exactlyonce: mark %q: %w", key, err)
		}
	}
}

func (h *Handler) tryMark(ctx context.Context, fresh Slot, owner string, ttl time.Duration) error {
	r := Record{Slot: fresh, Kind: KindDone, Owner: owner, ExpireAt: time.Now().Add(ttl)}
	err := h.store.Insert(ctx, r)
	if !errors.Is(err, ErrExists) {
		return err
	}
	tip, err := h.tip(ctx, fresh.Key)
	if err != nil || tip.Kind == KindDone {
		return err
	}
	r.Slot = tip.Next()
	kept, err := h.store.Keep(ctx, r.Slot, time.Now().Add(keepTime(ttl, tip.Lease)))
	if err == nil && !kept {
		err = ErrNotFound // expired meanwhile
	}
	if err != nil {
		return err
	}
	r.ExpireAt = time.Now().Add(ttl)
	return h.store.Insert(ctx, r)
}

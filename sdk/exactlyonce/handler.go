package exactlyonce

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Handler runs the effects of one scope. Its methods may be called by several goroutines at once;
// it has no goroutines of its own beyond those calls.
type Handler struct {
	store Store
	opts  Options
	watch watch
}

// New returns a handler whose claims and marks are in store. Handlers of the same scope on the same
// store, in any number of processes, work together, also with different leases.
func New(store Store, o Options) (*Handler, error) {
	o = o.withDefaults()
	if err := o.validate(); err != nil {
		return nil, fmt.Errorf("exactlyonce: %w", err)
	}
	return &Handler{store: store, opts: o}, nil
}

// Do claims the id, runs the effect unless it has run already, and marks it. It reports whether the
// effect has run to its end in this call. Where err is nil the event can be acknowledged, also if
// another process ran its effect.
//
//	ran    err
//	true   nil            the effect has run, and is marked
//	false  nil            the effect had run before
//	false  ErrInProgress  somebody else has claimed the id, for longer than Options.Wait
//	false  other          the effect has failed with that, or was never begun
//	true   ErrFenced      it has run, but so may another: the lease was lost
//	true   ErrNotMarked   it has run, but whether it is marked is not known
//
// The effect's context ends with ctx, and with the lease (context.Cause is ErrLeaseLost then); an
// effect should stop then. An effect that fails is run again at the next Do, at once.
func (h *Handler) Do(ctx context.Context, id string, effect func(ctx context.Context) error) (ran bool, err error) {
	return h.DoClaimed(ctx, id, func(ctx context.Context, _ *Claim) error { return effect(ctx) })
}

// DoClaimed is Do for an effect that makes its own writes conditional on its claim's fence.
func (h *Handler) DoClaimed(ctx context.Context, id string, effect func(ctx context.Context, c *Claim) error) (ran bool, err error) {
	c, err := h.begin(ctx, id, false)
	if c == nil {
		return false, err
	}
	err = h.hold(ctx, c, func(ctx context.Context) error {
		if err := effect(ctx, c); err != nil {
			return err
		}
		ran = true
		return h.complete(ctx, c)
	})
	return ran, err
}

// DoTx is Do for an effect whose writes are to the database that holds the marks, made with the
// context it gets: they and the mark are committed together or not at all. It reports whether it
// has committed them.
//
// The effect may be called several times, as the database asks for it; anything it does outside
// that context's transaction happens each time. On a store without transactions DoTx runs nothing,
// and returns an error that matches ErrNoTransactions.
func (h *Handler) DoTx(ctx context.Context, id string, effect func(ctx context.Context) error) (committed bool, err error) {
	tx, ok := h.store.(Transactor)
	if !ok {
		return false, fmt.Errorf("exactlyonce: %w: %T", ErrNoTransactions, h.store)
	}
	if err := tx.CanTransact(ctx); err != nil {
		return false, fmt.Errorf("exactlyonce: %w", err)
	}
	c, err := h.begin(ctx, id, true)
	if c == nil {
		return false, err
	}
	err = h.hold(ctx, c, func(ctx context.Context) error {
		committed, err = h.transact(ctx, tx, c, effect)
		return err
	})
	return committed, err
}

// Seen reports whether the id's effect has run and is marked.
func (h *Handler) Seen(ctx context.Context, id string) (bool, error) {
	if err := checkID(id); err != nil {
		return false, err
	}
	tip, err := h.tip(ctx, h.key(id))
	if errors.Is(err, ErrNotFound) {
		return false, nil
	}
	return err == nil && tip.Kind == KindDone, err
}

// Mark marks the id's effect as run, and fences a process that has claimed it. A mark that is there
// stays as it is.
func (h *Handler) Mark(ctx context.Context, id string) error {
	if err := checkID(id); err != nil {
		return err
	}
	return h.mark(ctx, h.key(id), h.opts.TTL)
}

// begin claims the id. It returns neither a claim nor an error if the effect has run.
func (h *Handler) begin(ctx context.Context, id string, patient bool) (*Claim, error) {
	if err := checkID(id); err != nil {
		return nil, err
	}
	c, err := h.claim(ctx, id, patient)
	switch {
	case errors.Is(err, errDone):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("exactlyonce: claim %q: %w", id, err)
	}
	return c, nil
}

// key is unique, as neither a scope nor an id has spaces.
func (h *Handler) key(id string) string { return h.opts.Scope + " " + id }

// keep is for how long a claim is kept: longer than a mark of its effect.
func (h *Handler) keep() time.Duration { return keepTime(h.opts.TTL, h.opts.Lease) }

func keepTime(ttl, lease time.Duration) time.Duration { return ttl + keepLonger + 4*lease }

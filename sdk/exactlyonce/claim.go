package exactlyonce

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sluice-bus/sluice/sdk/internal/pause"
)

// Claim is the right to run the effect of one id, for as long as it is valid.
type Claim struct {
	// ID is the event's.
	ID string
	// Fence is the number of the claim among all claims of this id: a later one has a higher
	// number. If an effect writes only where no higher fence has written yet, an older effect that
	// was paused and wakes up cannot overwrite its result.
	Fence int64

	slot  Slot
	owner string
	lease time.Duration

	mu    sync.Mutex
	until time.Time // of this process's monotonic clock
	beat  int64
}

// Err returns nil while the claim is valid, and ErrLeaseLost after that. A process that is paused
// right after Err cannot notice the loss; Fence is for that case.
func (c *Claim) Err() error {
	if c.Remaining() <= 0 {
		return ErrLeaseLost
	}
	return nil
}

// Remaining is how long the claim is valid, unless it is extended before.
func (c *Claim) Remaining() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Until(c.until)
}

// hold makes the claim valid for its lease, less a guard, counted from the start of the write that
// made or extended it. A claim that is no longer valid stays invalid.
func (c *Claim) hold(began time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.until.IsZero() && time.Until(c.until) <= 0 {
		return false
	}
	c.until = began.Add(c.lease - c.lease/guardPart)
	return time.Until(c.until) > 0
}

// newPauses are the pauses between attempts of one operation.
func newPauses() pause.Backoff {
	return pause.Backoff{First: 5 * time.Millisecond, Most: time.Second}
}

// errDone says that the effect has run.
var errDone = errors.New("done")

var errTooSlow = errors.New("the store takes most of the lease to answer")

// claimant is one call's attempt to claim an id.
type claimant struct {
	h     *Handler
	id    string
	owner string
	fresh bid // for an id that has no chain yet
	next  bid // behind the last record of the chain that there is
}

// bid is an insert that is tried until its outcome is known.
type bid struct {
	slot   Slot
	began  time.Time // when it was first tried: the lease counts from then
	before Record    // whose place it takes
}

// claim claims the id, or returns errDone or an *InProgressError. It waits and tries again as the
// options say; patient says that it tries until ctx ends.
func (h *Handler) claim(ctx context.Context, id string, patient bool) (*Claim, error) {
	began := time.Now()
	x := &claimant{h: h, id: id, owner: newToken()}
	x.fresh = bid{slot: Slot{Key: h.key(id), Chain: newToken(), Number: 1}, began: began}
	pauses, failing := newPauses(), began // since when
	for {
		trying, cancel := context.WithTimeout(ctx, h.opts.Timeout)
		c, err := x.try(trying)
		cancel()
		elsewhere, isElsewhere := RetryAfter(err)
		switch {
		case err == nil || errors.Is(err, errDone) || errors.Is(err, ErrFull):
			return c, err
		case isElsewhere:
			wait := min(max(h.opts.Lease/20, 20*time.Millisecond), time.Second, max(elsewhere, time.Millisecond))
			if h.opts.Wait != 0 {
				left := h.opts.Wait - time.Since(began)
				if left <= 0 {
					return nil, err
				}
				wait = min(wait, left)
			}
			if !pause.For(ctx, wait) {
				return nil, fmt.Errorf("%w, while another consumer has it: %w", context.Cause(ctx), err)
			}
			pauses, failing = newPauses(), time.Now()
		default:
			wait := pauses.Step()
			if !patient && time.Since(failing)+wait > h.opts.Timeout || !pause.For(ctx, wait) {
				return nil, err
			}
		}
	}
}

// try finds the id's owner, and claims the id where that is allowed.
func (x *claimant) try(ctx context.Context) (*Claim, error) {
	err := x.insert(ctx, x.fresh)
	if err == nil {
		return x.won(ctx, x.fresh)
	}
	if !errors.Is(err, ErrExists) {
		return nil, err
	}
	tip, err := x.h.tip(ctx, x.fresh.slot.Key)
	if err != nil {
		return nil, err // also ErrNotFound: it has just expired, or can be read in a moment
	}
	switch {
	case tip.Kind == KindDone:
		x.h.watch.forget(x.id)
		return nil, errDone
	case tip.Released:
	case tip.Owner == x.owner && tip.Slot == x.fresh.slot: // an earlier try, whose answer was lost
		return x.won(ctx, x.fresh)
	case tip.Owner == x.owner && tip.Slot == x.next.slot:
		return x.succeed(ctx)
	default:
		if left := x.h.watch.look(x.id, tip, time.Now()); left > 0 {
			return nil, &InProgressError{ID: x.id, RetryAfter: left}
		}
	}
	if next := tip.Next(); x.next.slot != next {
		x.next = bid{slot: next, began: time.Now(), before: tip}
	}
	if err := x.insert(ctx, x.next); err != nil {
		return nil, err // also ErrExists: another process was faster, or an earlier try of this call
	}
	return x.succeed(ctx)
}

// succeed checks that a claim that follows another one counts.
func (x *claimant) succeed(ctx context.Context) (*Claim, error) {
	kept, err := x.h.store.Keep(ctx, x.next.slot, time.Now().Add(x.h.keep()))
	if err != nil {
		return nil, err
	}
	if !kept {
		return nil, fmt.Errorf("the chain has just expired: %w", ErrNotFound) // ours does not count
	}
	if before := x.next.before; !before.Released {
		// A beat that we did not see, because it was on its way or the read was stale, shows that
		// the claim's owner still runs. The owner is fenced now and finds out. No process runs the
		// effect until our claim has run out, too.
		now, err := x.h.store.Get(ctx, before.Slot)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return nil, err
		}
		if err == nil && now.Beat != before.Beat {
			x.owner = newToken() // that claim has no owner
			return nil, &InProgressError{ID: x.id, RetryAfter: x.h.opts.Lease}
		}
	}
	return x.won(ctx, x.next)
}

func (x *claimant) insert(ctx context.Context, b bid) error {
	return x.h.store.Insert(ctx, Record{
		Slot: b.slot, Kind: KindClaim, Owner: x.owner, Lease: x.h.opts.Lease, ExpireAt: time.Now().Add(x.h.keep()),
	})
}

// won returns the claim. If it was won too late to be relied on, won releases it, so that the next
// try can follow at once.
func (x *claimant) won(ctx context.Context, b bid) (*Claim, error) {
	x.h.watch.forget(x.id)
	c := &Claim{ID: x.id, Fence: b.slot.Number, slot: b.slot, owner: x.owner, lease: x.h.opts.Lease}
	if c.hold(b.began) && c.Remaining() > c.lease/2 {
		return c, nil
	}
	if err := x.h.release(ctx, c); err != nil {
		return nil, err
	}
	return nil, errTooSlow
}

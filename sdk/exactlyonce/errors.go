package exactlyonce

import (
	"errors"
	"fmt"
	"time"
)

// Errors that Do and DoClaimed return beside the effect's own. After any of them the event must not
// be acknowledged.
var (
	// ErrInProgress: another process has claimed the id. The error is an *InProgressError, which
	// says when to come back.
	ErrInProgress = errors.New("in progress elsewhere")
	// ErrLeaseLost: the lease could not be extended in time, so another process may run the effect.
	// It is the cause with which the effect's context ends.
	ErrLeaseLost = errors.New("the lease is lost")
	// ErrFenced: another process has claimed the id after the lease was lost, and this call's
	// effect was not marked, or not committed.
	ErrFenced = errors.New("fenced by a later claim")
	// ErrNotMarked: the effect has run, but whether that could be marked is not known. When the
	// event comes again it may run once more.
	ErrNotMarked = errors.New("the effect has run, but it is not known to be marked")
)

// InProgressError matches ErrInProgress.
type InProgressError struct {
	ID string
	// RetryAfter is when it makes sense to try again: the claim is done by then, or extended, or
	// this process may take it over.
	RetryAfter time.Duration
}

func (e *InProgressError) Error() string {
	return fmt.Sprintf("%q is %v; try again in %v", e.ID, ErrInProgress, e.RetryAfter)
}

// Is reports whether target is ErrInProgress.
func (e *InProgressError) Is(target error) bool { return target == ErrInProgress }

// RetryAfter returns after which time to try again if err says that an effect is in progress
// elsewhere. Give the event back with this delay. The result is false for any other error.
func RetryAfter(err error) (time.Duration, bool) {
	var p *InProgressError
	if !errors.As(err, &p) {
		return 0, false
	}
	return p.RetryAfter, true
}

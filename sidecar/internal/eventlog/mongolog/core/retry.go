package core

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/sluice-bus/sluice/internal/clock"
)

// Bounds of one wait between two tries.
const (
	// ShortWait: another sidecar's write is on its way to the majority.
	ShortWait = 20 * time.Millisecond
	// LongWait: the server may be away.
	LongWait = 500 * time.Millisecond
)

// ErrBehind says that a majority read does not yet return a document that is known to be stored.
var ErrBehind = errors.New("events before these are not acknowledged by a majority yet")

// Backoff counts failed tries. The zero value has none.
type Backoff struct{ tries int }

// Sleep waits 1, 2, 4, … ms, at most longest, less up to half of it, so that waiters for the same
// thing do not retry together.
func (b *Backoff) Sleep(ctx context.Context, c clock.Clock, longest time.Duration) error {
	d := min(time.Millisecond<<min(b.tries, 20), longest)
	b.tries++
	if !c.Sleep(ctx, d-rand.N(d/2+1)) {
		return ctx.Err()
	}
	return nil
}

// Persist runs an operation that may be repeated, until its outcome is known, or the context ends,
// or another try would fail the same way. An upsert may fail because another sidecar has just
// inserted the document, so Persist repeats it after a duplicate key, too.
func (s *Store) Persist(ctx context.Context, do func() error) error {
	var wait Backoff
	for {
		err := do()
		if err == nil || errors.Is(err, mongo.ErrNoDocuments) || IsPermanent(err) || IsBadDocument(err) {
			return err
		}
		if wait.Sleep(ctx, s.Clock, LongWait) != nil {
			return err
		}
	}
}

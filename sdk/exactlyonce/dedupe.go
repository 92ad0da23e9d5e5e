package exactlyonce

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire/codec"
)

// DedupeStore is the simplest form: ask before the effect, mark after it. It keeps an effect from
// running again once it is marked, but not two consumers from running it at once.
type DedupeStore interface {
	// Seen reports whether the id is marked for the group's work on the topic.
	Seen(ctx context.Context, topic, group, id string) (bool, error)
	// Mark marks the id for ttl (0: DefaultTTL). A mark that is there stays as it is.
	Mark(ctx context.Context, topic, group, id string, ttl time.Duration) error
}

// NewDedupeStore returns a DedupeStore whose marks are in store. Handlers of the same [Scope] share
// them.
func NewDedupeStore(store Store) DedupeStore { return dedupe{store} }

type dedupe struct{ store Store }

func (d dedupe) Seen(ctx context.Context, topic, group, id string) (bool, error) {
	h, err := New(d.store, Options{Scope: Scope(topic, group)})
	if err != nil {
		return false, err
	}
	return h.Seen(ctx, id)
}

func (d dedupe) Mark(ctx context.Context, topic, group, id string, ttl time.Duration) error {
	switch {
	case ttl == 0:
		ttl = DefaultTTL
	case ttl < 0:
		return fmt.Errorf("exactlyonce: a mark's TTL is %v; more than 0 is allowed", ttl)
	}
	h, err := New(d.store, Options{Scope: Scope(topic, group)})
	if err != nil {
		return err
	}
	if err := checkID(id); err != nil {
		return err
	}
	return h.mark(ctx, h.key(id), ttl)
}

func newToken() string { return rand.Text() }

func checkID(id string) error {
	if err := codec.CheckID(id); err != nil {
		return fmt.Errorf("exactlyonce: %w", err)
	}
	return nil
}

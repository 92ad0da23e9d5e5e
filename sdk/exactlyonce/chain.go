package exactlyonce

import (
	"context"
	"errors"
)

// tip returns the last record of the key's chain, or ErrNotFound.
func (h *Handler) tip(ctx context.Context, key string) (Record, error) {
	first, err := h.store.Get(ctx, Slot{Key: key, Number: 1})
	if err != nil {
		return Record{}, err
	}
	last := first
	if first.Head > 1 {
		at := first.Slot
		at.Number = first.Head
		switch r, err := h.store.Get(ctx, at); {
		case err == nil:
			last = r
		case !errors.Is(err, ErrNotFound):
			return Record{}, err
		}
	}
	return h.last(ctx, last)
}

// last follows the chain from r to its last record.
func (h *Handler) last(ctx context.Context, r Record) (Record, error) {
	for r.Kind != KindDone {
		next, err := h.store.Get(ctx, r.Next())
		if errors.Is(err, ErrNotFound) {
			return r, nil
		}
		if err != nil {
			return Record{}, err
		}
		r = next
	}
	return r, nil
}

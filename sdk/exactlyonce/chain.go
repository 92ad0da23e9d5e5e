package exactlyonce

import (
	"context"
	"errors"
)

// tip returns the last record of the key's chain, or ErrNotFound.
func (h *Handler) tip(ctx context.Context, key string) (Record, error) {
	last, err := h.store.Get(ctx, Slot{Key: key, Number: 1})
	if err != nil {
		return Record{}, err
	}
	if last.Head > 1 {
		at := last.Slot
		at.Number = last.Head
		switch r, err := h.store.Get(ctx, at); {
		case err == nil:
			last = r
		case !errors.Is(err, ErrNotFound):
			return Record{}, err
		}
	}
	for last.Kind != KindDone {
		next, err := h.store.Get(ctx, last.Next())
		if errors.Is(err, ErrNotFound) {
			break
		}
		if err != nil {
			return Record{}, err
		}
		last = next
	}
	return last, nil
}

package sdk_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-bus/sluice/sdk/exactlyonce"
	"github.com/sluice-bus/sluice/sdk/exactlyonce/storetest"
)

func TestMemory(t *testing.T) {
	storetest.Run(t, func(*testing.T) exactlyonce.Store { return exactlyonce.NewMemory(0) })
}

func TestMemoryForgetsTheOldestMarksOnly(t *testing.T) {
	ctx := t.Context()
	m := exactlyonce.NewMemory(3)
	h := newHandler(t, m, exactlyonce.Options{})
	for i := range 4 {
		mustRun(t, h, fmt.Sprint(i))
	}
	if m.Len() != 3 || m.Forgotten() != 1 {
		t.Errorf("%d ids, %d forgotten", m.Len(), m.Forgotten())
	}
	for i := range 4 {
		if seen, err := h.Seen(ctx, fmt.Sprint(i)); err != nil || seen != (i > 0) {
			t.Errorf("%d seen: %v, %v", i, seen, err)
		}
	}
	// Three claims that are held leave no room.
	err := nested(ctx, h, 3, func() error {
		_, err := h.Do(ctx, "one-more", nothing)
		return err
	})
	if !errors.Is(err, exactlyonce.ErrFull) {
		t.Errorf("beyond the bound: %v", err)
	}
	mustRun(t, h, "one-more")
}

// nested runs f inside n effects.
func nested(ctx context.Context, h *exactlyonce.Handler, n int, f func() error) error {
	if n == 0 {
		return f()
	}
	_, err := h.Do(ctx, fmt.Sprint("nested-", n), func(ctx context.Context) error { return nested(ctx, h, n-1, f) })
	return err
}

func TestMarksExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := exactlyonce.NewMemory(0)
		h := newHandler(t, m, exactlyonce.Options{TTL: time.Hour})
		mustRun(t, h, "a")
		time.Sleep(time.Hour)
		wantDone(t, h, "a")
		time.Sleep(time.Millisecond)
		if seen, err := h.Seen(t.Context(), "a"); seen || err != nil {
			t.Errorf("seen after its time: %v, %v", seen, err)
		}
		mustRun(t, h, "a")
		time.Sleep(2 * time.Hour)
		mustRun(t, h, "b") // makes room of what is over
		if m.Len() != 1 || m.Forgotten() != 0 {
			t.Errorf("%d ids are kept, %d forgotten", m.Len(), m.Forgotten())
		}
	})
}

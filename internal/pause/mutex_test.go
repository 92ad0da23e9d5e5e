package pause_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/sluice-bus/sluice/internal/pause"
	"github.com/sluice-bus/sluice/test/require"
)

func TestMutex(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := pause.NewMutex()
		require.NoError(t, m.Lock(t.Context()))
		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan error)
		go func() { got <- m.Lock(ctx) }()
		synctest.Wait()
		cancel()
		if err := <-got; !errors.Is(err, context.Canceled) {
			t.Errorf("who gives up waiting: %v", err)
		}
		if m.TryLock() {
			t.Error("another has it")
		}
		go func() { got <- m.Lock(t.Context()) }()
		synctest.Wait()
		m.Unlock()
		if err := <-got; err != nil {
			t.Errorf("the next one: %v", err)
		}
		if m.Unlock(); !m.TryLock() {
			t.Error("nobody has it")
		}
	})
}

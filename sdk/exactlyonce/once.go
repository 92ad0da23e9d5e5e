package exactlyonce

import (
	"context"

	sluice "github.com/sluice-bus/sluice/sdk"
)

// Once makes a handler of an effect: [Handler.Do] with the event's id. The event is acked once its
// effect has run, in this call or before. While another consumer runs the effect, the handler
// waits. After that the event is acked without running the effect again, or this handler runs it.
// An effect that fails is retried by the subscription (see [option.RetryFor]); it may return
// [sluice.Hold] and [sluice.DeadLetter].
func Once(h *Handler, f sluice.Handler) sluice.Handler {
	return func(ctx context.Context, m *sluice.Message) error {
		_, err := h.Do(ctx, m.Event.ID, func(ctx context.Context) error { return f(ctx, m) })
		return err
	}
}

// OnceClaimed is [Once] with [Handler.DoClaimed].
func OnceClaimed(h *Handler, f func(ctx context.Context, m *sluice.Message, c *Claim) error) sluice.Handler {
	return func(ctx context.Context, m *sluice.Message) error {
		_, err := h.DoClaimed(ctx, m.Event.ID, func(ctx context.Context, c *Claim) error { return f(ctx, m, c) })
		return err
	}
}

// OnceTx is [Once] with [Handler.DoTx]: f writes with its context alone, and may be called several
// times.
func OnceTx(h *Handler, f sluice.Handler) sluice.Handler {
	return func(ctx context.Context, m *sluice.Message) error {
		_, err := h.DoTx(ctx, m.Event.ID, func(ctx context.Context) error { return f(ctx, m) })
		return err
	}
}

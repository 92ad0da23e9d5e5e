//go:build go1.25

package pause

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		passed := func(want time.Duration) {
			t.Helper()
			if got := time.Since(began); got != want {
				t.Errorf("%v have passed; want %v", got, want)
			}
			began = time.Now()
		}
		if !For(t.Context(), time.Second) {
			t.Error("cut short by nothing")
		}
		passed(time.Second)

		early := make(chan struct{})
		time.AfterFunc(time.Millisecond, func() { close(early) })
		if !Unless(t.Context(), time.Second, early) {
			t.Error("early, and the context has not ended")
		}
		passed(time.Millisecond)

		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if For(ctx, time.Hour) {
			t.Error("the context has ended")
		}
		passed(time.Minute)
		if For(ctx, 0) {
			t.Error("the context had ended")
		}
		passed(0)
	})
}

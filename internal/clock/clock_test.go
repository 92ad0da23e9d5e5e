package clock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-bus/sluice/internal/clock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSystem(t *testing.T) {
	errLate := errors.New("late")
	synctest.Test(t, func(t *testing.T) {
		c := clock.System()
		began := c.Now()
		passed := func(want time.Duration) {
			t.Helper()
			if got := c.Since(began); got != want || c.Until(began) != -want {
				t.Errorf("%v have passed; want %v", got, want)
			}
			began = c.Now()
		}
		if !c.Sleep(t.Context(), time.Second) {
			t.Error("cut short by nothing")
		}
		passed(time.Second)

		early := make(chan struct{})
		c.AfterFunc(time.Millisecond, func() { close(early) })
		if !c.SleepUnless(t.Context(), time.Second, early) {
			t.Error("early, and the context has not ended")
		}
		passed(time.Millisecond)

		ctx, cancel := c.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if c.Sleep(ctx, time.Hour) {
			t.Error("the context has ended")
		}
		passed(time.Minute)

		late, cancelLate := c.WithTimeoutCause(t.Context(), time.Second, errLate)
		defer cancelLate()
		<-late.Done()
		if context.Cause(late) != errLate {
			t.Errorf("ended with %v", context.Cause(late))
		}
	})
}

func BenchmarkNow(b *testing.B) {
	b.Run("time", func(b *testing.B) {
		for b.Loop() {
			_ = time.Now()
		}
	})
	b.Run("clock", func(b *testing.B) {
		c := clock.System()
		for b.Loop() {
			_ = c.Now()
		}
	})
}

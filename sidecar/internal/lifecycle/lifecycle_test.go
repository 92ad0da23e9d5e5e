package lifecycle_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-bus/sluice/sidecar/internal/lifecycle"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// steps notes what happens in its order.
type steps struct {
	mu   sync.Mutex
	list []string
}

func (s *steps) note(step string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, step)
}

// run is a function of a part that takes a time to end.
func (s *steps) run(name string, takes time.Duration, err error) func(context.Context) error {
	return func(ctx context.Context) error {
		<-ctx.Done()
		time.Sleep(takes)
		s.note(name + " ended")
		return err
	}
}

func (s *steps) stop(name string, err error) func(context.Context) error {
	return func(context.Context) error {
		s.note("stop " + name)
		return err
	}
}

// Parts stop one after the other. Only what is awaited is waited for before the next, and all in the
// end; each error is reported.
func TestStopsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s steps
		slow, broken := errors.New("slow"), errors.New("broken")
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Hour, cancel)
		err := lifecycle.Run(ctx, lifecycle.Deadline{After: time.Minute, Passed: func() { s.note("late") }},
			lifecycle.Part{Run: []func(context.Context) error{s.run("helper", 3*time.Second, slow)}, Stop: s.stop("helper", nil)},
			lifecycle.Part{Run: []func(context.Context) error{s.run("server", time.Second, nil)}, Awaited: true, Stop: s.stop("server", broken)},
			lifecycle.Part{Run: []func(context.Context) error{s.run("store", 0, nil)}},
		)
		want := []string{"stop helper", "server ended", "stop server", "store ended", "helper ended"}
		if !slices.Equal(s.list, want) {
			t.Errorf("%q, want %q", s.list, want)
		}
		if !errors.Is(err, slow) || !errors.Is(err, broken) {
			t.Errorf("Run = %v", err)
		}
	})
}

// A part that fails stops all, and one that ends does not.
func TestAFailureStopsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s steps
		failure := errors.New("failed")
		began := time.Now()
		err := lifecycle.Run(t.Context(), lifecycle.Deadline{After: time.Minute, Passed: func() {}},
			lifecycle.Part{Run: []func(context.Context) error{
				func(context.Context) error { return nil },
				func(context.Context) error { time.Sleep(time.Hour); return failure },
			}},
			lifecycle.Part{Run: []func(context.Context) error{s.run("other", 0, nil)}},
		)
		if took := time.Since(began); took != time.Hour || !errors.Is(err, failure) || len(s.list) != 1 {
			t.Errorf("after %v: %v, %q", took, err, s.list)
		}
	})
}

// A stop that takes too long says so, and every Stop hears of it.
func TestTheDeadlineIsOfAllStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s steps
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		hang := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		err := lifecycle.Run(ctx, lifecycle.Deadline{After: time.Minute, Passed: func() { s.note("late") }},
			lifecycle.Part{Stop: hang}, lifecycle.Part{Stop: hang},
		)
		synctest.Wait()
		if !errors.Is(err, context.DeadlineExceeded) || !slices.Equal(s.list, []string{"late"}) {
			t.Errorf("Run = %v, %q", err, s.list)
		}
	})
}

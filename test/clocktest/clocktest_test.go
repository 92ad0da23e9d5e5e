package clocktest

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// readings are what has passed by a clock since it was at began.
type readings struct{ monotonic, wall time.Duration }

func passed(c *Clock, began time.Time) readings {
	now := c.Now()
	return readings{now.Sub(began), now.Round(0).Sub(began.Round(0))}
}

func TestReadings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New()
		began := c.Now()
		want := readings{}
		check := func(what string) {
			t.Helper()
			if got := passed(c, began); got != want {
				t.Errorf("%s: %v have passed, want %v", what, got, want)
			}
		}
		sleep := func(d time.Duration) {
			time.Sleep(d)
			synctest.Wait()
			want.wall += d
			want.monotonic += d
		}
		sleepSuspended := func(d time.Duration) {
			sleep(d)
			want.monotonic -= d
		}
		check("at the beginning")
		if !began.Equal(time.Now()) || began.Format(time.RFC3339Nano) != time.Now().Format(time.RFC3339Nano) {
			t.Errorf("it is %v, not %v", began, time.Now())
		}
		sleep(time.Second)
		check("running")
		c.Pause()
		sleep(time.Minute)
		check("paused")
		c.Resume()
		c.SetWall(-time.Hour)
		want.wall -= time.Hour
		check("set back")
		c.Suspend(time.Hour)
		sleepSuspended(time.Minute)
		check("suspended")
		c.Suspend(time.Minute)
		sleepSuspended(time.Minute - 1)
		check("suspended for longer")
		c.Resume()
		sleep(time.Second)
		check("resumed")
		c.Suspend(time.Second)
		sleepSuspended(time.Second)
		sleep(time.Second)
		check("awake by itself")
		c.SetWall(0)
		want.wall += time.Hour
		check("set right")
	})
}

func TestTimers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New()
		var fired []time.Duration
		began := time.Now()
		timer := c.AfterFunc(time.Second, func() { fired = append(fired, time.Since(began)) })
		want := func(all ...time.Duration) {
			t.Helper()
			synctest.Wait()
			if len(fired) != len(all) || len(all) > 0 && fired[0] != all[0] {
				t.Errorf("fired at %v, want %v", fired, all)
			}
			fired, began = nil, time.Now()
		}
		time.Sleep(time.Second)
		want(time.Second)
		if timer.Stop() || timer.Reset(time.Second) {
			t.Error("it was not set")
		}

		c.Pause()
		time.Sleep(time.Minute)
		want()
		c.Resume()
		want(0)

		timer.Reset(time.Second)
		c.Pause()
		time.Sleep(time.Minute)
		if !timer.Stop() {
			t.Error("it had not fired")
		}
		c.Resume()
		want()

		timer.Reset(time.Second)
		c.Pause()
		time.Sleep(time.Minute)
		if !timer.Reset(time.Hour) {
			t.Error("it had not fired")
		}
		c.Resume()
		time.Sleep(time.Hour)
		want(time.Hour + time.Minute)

		timer.Reset(3 * time.Second)
		time.Sleep(time.Second)
		c.Suspend(time.Minute)
		time.Sleep(time.Minute + 2*time.Second)
		want(time.Minute + 3*time.Second)

		timer.Reset(time.Second) // due in the suspension by package time
		c.Suspend(time.Hour)
		time.Sleep(2 * time.Hour)
		want(time.Hour + time.Second)

		timer.Reset(time.Second)
		c.SetWall(time.Hour)
		time.Sleep(time.Second)
		want(time.Second)
	})
}

func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New()
		began := time.Now()
		c.Suspend(time.Minute)
		if !c.Clock().Sleep(t.Context(), time.Second) || time.Since(began) != time.Minute+time.Second {
			t.Errorf("slept for %v", time.Since(began))
		}
		early := make(chan struct{}, 1)
		early <- struct{}{}
		c.Pause()
		if !c.Clock().SleepUnless(t.Context(), time.Second, early) {
			t.Error("the context has not ended")
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if c.Clock().Sleep(ctx, time.Second) {
			t.Error("the context has ended")
		}
	})
}

func TestTimeout(t *testing.T) {
	errLate := errors.New("late")
	type key struct{}
	synctest.Test(t, func(t *testing.T) {
		c := New()
		outer, end := context.WithCancel(context.WithValue(t.Context(), key{}, "value"))
		defer end()
		ctx, cancel := c.Clock().WithTimeoutCause(outer, time.Second, errLate)
		defer cancel()
		child, cancelChild := context.WithCancel(ctx)
		defer cancelChild()
		c.Pause()
		time.Sleep(time.Minute)
		if ctx.Err() != nil || child.Err() != nil {
			t.Error("ended in a pause")
		}
		c.Resume()
		synctest.Wait()
		for _, x := range []context.Context{ctx, child} {
			select {
			case <-x.Done():
			default:
				t.Error("has not ended after the pause")
			}
			if x.Err() != context.DeadlineExceeded || !errors.Is(context.Cause(x), errLate) || x.Value(key{}) != "value" {
				t.Errorf("ended with %v, %v", x.Err(), context.Cause(x))
			}
		}

		early, cancelEarly := c.Clock().WithTimeout(outer, time.Second)
		cancelEarly()
		if early.Err() != context.Canceled {
			t.Errorf("ended with %v", early.Err())
		}
		below, cancelBelow := c.Clock().WithTimeout(outer, time.Second)
		defer cancelBelow()
		end()
		if below.Err() != context.Canceled {
			t.Errorf("ended with %v", below.Err())
		}
		<-below.Done()
	})
}

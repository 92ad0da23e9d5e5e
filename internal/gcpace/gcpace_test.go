package gcpace

import (
	"context"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestPercent(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		live, held int64
		want       int
	}{
		{0, 0, 100}, {10 * mib, 0, 100}, {0, 10 * mib, 100},
		{80 * mib, 40 * mib, 50},
		{100 * mib, 90 * mib, leastPercent},
		{50 * mib, 60 * mib, leastPercent}, // held has grown since the last look
	} {
		if got := percent(c.live, c.held); got != c.want {
			t.Errorf("%d live, %d held: %d, want %d", c.live, c.held, got, c.want)
		}
	}
}

func TestFollow(t *testing.T) {
	before := debug.SetGCPercent(Percent)
	defer debug.SetGCPercent(before)
	current := func() int {
		p := debug.SetGCPercent(Percent)
		debug.SetGCPercent(p)
		return p
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		runtime.GC() // until then nothing is known to live
		var held atomic.Int64
		held.Store(1 << 50)
		go Follow(ctx, held.Load)
		time.Sleep(every + time.Millisecond)
		synctest.Wait()
		if got := current(); got != leastPercent {
			t.Errorf("%d percent, want %d", got, leastPercent)
		}
		held.Store(0)
		time.Sleep(every)
		synctest.Wait()
		if got := current(); got != Percent {
			t.Errorf("%d percent, want %d", got, Percent)
		}
		held.Store(1 << 50)
		time.Sleep(every)
		cancel()
		synctest.Wait()
		if got := current(); got != Percent {
			t.Errorf("%d percent after the end, want %d", got, Percent)
		}
	})
}

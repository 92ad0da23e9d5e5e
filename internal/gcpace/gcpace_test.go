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
		live, held, allocated int64
		want                  int
	}{
		{0, 0, 0, 100}, {10 * mib, 0, 0, 100}, {0, 10 * mib, 0, 100},
		{80 * mib, 40 * mib, 0, 50},
		{100 * mib, 90 * mib, 0, leastPercent},
		{50 * mib, 60 * mib, 0, leastPercent}, // held has grown since the last look
		{16 * mib, 12 * mib, 64 * mib, 100},
		{16 * mib, 12 * mib, 4 * mib, 25},
		{16 * mib, 12 * mib, 1 << 40, 200}, // mostHeadroom
		{320 * mib, 0, 1 << 40, 100},
	} {
		if got := percent(c.live, c.held, c.allocated); got != c.want {
			t.Errorf("%d live, %d held, %d allocated: %d, want %d", c.live, c.held, c.allocated, got, c.want)
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

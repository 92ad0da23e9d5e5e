// Package gcpace keeps the garbage collector's headroom in proportion to what it can collect, and to how much is
// allocated. By default the collector lets the heap double before it runs again. If a library keeps large buffers
// on the heap for good, the heap grows by their size once more, for nothing. And where little lives and much is
// allocated, the collector runs dozens of times a second.
package gcpace

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/sluice-bus/sluice/internal/pause"
)

const (
	// Percent is the collector's own default, which is right where nothing is held; leastPercent
	// bounds how often it may have to look.
	Percent      = 100
	leastPercent = 20
	// step is the least change for which the collector is set again, which stops the program for a
	// moment.
	step = 5
	// every is the interval of the checks.
	every = time.Second
	// A busy program has headroom for what it allocates between collections a quarter of a second apart, up to
	// mostHeadroom.
	perSecond    = 4
	mostHeadroom = 32 << 20
)

// Follow paces the collector until ctx ends: held is how many bytes of the heap are kept for good.
// Use it only in programs whose users have not set GOGC.
func Follow(ctx context.Context, held func() int64) {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	defer debug.SetGCPercent(Percent)
	for now, before := Percent, sample[1].Value.Uint64(); pause.For(ctx, every); before = sample[1].Value.Uint64() {
		metrics.Read(sample)
		if p := percent(int64(sample[0].Value.Uint64()), held(), int64(sample[1].Value.Uint64()-before)); p-now >= step || now-p >= step {
			debug.SetGCPercent(p)
			now = p
		}
	}
}

// percent is by how much the heap may grow so that what is not held may double, and a second's allocations need few
// collections.
func percent(live, held, allocated int64) int {
	if live <= 0 {
		return Percent
	}
	headroom := max(live-max(held, 0), min(allocated/perSecond, mostHeadroom))
	return int(max(leastPercent, Percent*headroom/live))
}

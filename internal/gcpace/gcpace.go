// Package gcpace keeps the garbage collector's headroom in proportion to what it can collect. By
// default the collector lets the heap double before it runs again. If a library keeps large buffers
// on the heap for good, the heap grows by their size once more, for nothing. The package must not
// know which library keeps them.
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
)

// Follow paces the collector until ctx ends: held is how many bytes of the heap are kept for good.
// Use it only in programs whose users have not set GOGC.
func Follow(ctx context.Context, held func() int64) {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	defer debug.SetGCPercent(Percent)
	for now := Percent; pause.For(ctx, every); {
		metrics.Read(sample)
		if p := percent(int64(sample[0].Value.Uint64()), held()); p-now >= step || now-p >= step {
			debug.SetGCPercent(p)
			now = p
		}
	}
}

// percent is by how much the heap may grow so that what is not held may double.
func percent(live, held int64) int {
	if live <= 0 || held <= 0 {
		return Percent
	}
	return int(max(leastPercent, Percent*(live-held)/live))
}

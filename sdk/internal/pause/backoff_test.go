package pause_test

import (
	"testing"
	"time"

	"github.com/sluice-bus/sluice/sdk/internal/pause"
)

func TestBackoffDoublesUpToItsMost(t *testing.T) {
	b := pause.Backoff{First: 10 * time.Millisecond, Most: 50 * time.Millisecond}
	for range 2 {
		if b.Reached() != 0 {
			t.Errorf("has reached %v at the beginning", b.Reached())
		}
		for _, want := range []time.Duration{10, 20, 40, 50, 50} {
			want *= time.Millisecond
			if got := b.Step(); got < want/2 || got > want || b.Reached() != want {
				t.Errorf("waits %v of %v; want %v to %v", got, b.Reached(), want/2, want)
			}
		}
		b.Reset()
	}
}

package dispatch

import (
	"testing"
	"time"

	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// Jitter is only added, so that all attempts together take more than an hour.
func TestBackoffJitterOnlyAdds(t *testing.T) {
	o := resolve(wire.SubscribeOptions{}, policy.Defaults().Delivery)
	if o.MaxAttempts != 25 {
		t.Errorf("%d attempts by default; want 25", o.MaxAttempts)
	}
	for range 1000 {
		total := time.Duration(0)
		for n := 1; n < o.MaxAttempts; n++ {
			least, got := o.backoff(n), o.Pause(n)
			if got < least || got > least+least/4 {
				t.Fatalf("after attempt %d: %v; want %v and up to a quarter more", n, got, least)
			}
			total += got
		}
		if total < time.Hour {
			t.Fatalf("a dead letter after %v", total)
		}
	}
}

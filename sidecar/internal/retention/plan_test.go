package retention_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sidecar/internal/retention"
)

// TestPlan checks that Plan counts the events that a sweep removes.
func TestPlan(t *testing.T) {
	const n = 1000 // a millisecond apart
	for name, c := range map[string]struct {
		keep policy.Retention
		want int64
		off  int64 // as much as the pieces that sizes are counted in may come to
	}{
		"for ever":                {policy.Retention{}, 0, 0},
		"the age of half of them": {policy.Retention{TTL: 500 * time.Millisecond}, 500, 0},
		"all but one too old":     {policy.Retention{TTL: time.Microsecond}, n - 1, 0},
		"the size of a fifth":     {policy.Retention{MaxBytes: 200 * eventBytes}, 800, 8},
		"larger than they are":    {policy.Retention{MaxBytes: 2 * n * eventBytes}, 0, 0},
		"the latest of 4 keys":    {policy.Retention{Compact: true}, n - n/10 - 4, 0},
		"both age and latest":     {policy.Retention{Compact: true, TTL: 300 * time.Millisecond}, 700 + 300 - 30 - 4, 0},
		"both age and size":       {policy.Retention{MaxBytes: 200 * eventBytes, TTL: 100 * time.Millisecond}, 900, 0},
	} {
		log := openSized(t)
		log.publish(t, n, func(i int) string { // one in ten has no key
			if i%10 > 0 {
				return fmt.Sprint("k", i%4)
			}
			return ""
		})
		got, atLeast, err := retention.Plan(t.Context(), log, "a", c.keep, time.UnixMilli(n-1))
		if err != nil || atLeast || got < c.want-c.off || got > c.want+c.off {
			t.Errorf("%s: %d, %v, %v; want %d", name, got, atLeast, err, c.want)
		}
		log.Close()
	}
}

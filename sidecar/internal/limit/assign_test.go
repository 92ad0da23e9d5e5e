package limit_test

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-bus/sluice/sidecar/internal/limit"
)

func TestAssignSaysWhatItCuts(t *testing.T) {
	b := limit.NewEmptyBucket(limit.Rate{PerSecond: limit.Still, Burst: 10}, epoch)
	if got := b.Tokens(epoch); got != 0 {
		t.Fatalf("an empty bucket holds %v tokens", got)
	}
	if cut := b.Assign(limit.Rate{PerSecond: 10, Burst: 10}, 8, epoch); cut != 0 {
		t.Errorf("cut %v of nothing", cut)
	}
	b.Take(1, epoch)
	if cut := b.Assign(limit.Rate{PerSecond: limit.Still, Burst: 3}, 0, epoch.Add(100*time.Millisecond)); math.Abs(cut-5) > tolerance {
		t.Errorf("cut %v, want 5 of the 8", cut)
	}
	if got := available(b, epoch.Add(time.Hour)); got != 3 {
		t.Errorf("%d tokens after an hour without a rate, want the 3 that were left", got)
	}
	if cut := b.Assign(limit.Rate{PerSecond: limit.Still, Burst: 0, Most: 5}, 3, epoch.Add(time.Hour)); cut != 0 ||
		b.Take(1, epoch.Add(time.Hour)).OK {
		t.Errorf("a bucket that holds nothing gave a token, or cut %v", cut)
	}
}

func TestUpToMostWaits(t *testing.T) {
	b := limit.NewEmptyBucket(limit.Rate{PerSecond: limit.Still, Burst: 2, Most: 8, Pace: 4}, epoch)
	if v := b.Take(9, epoch); !v.OverBurst || v.Burst != 8 {
		t.Errorf("9 of at most 8: %+v", v)
	}
	if v := b.Take(8, epoch); v.OK || v.OverBurst || v.Wait != 2*time.Second {
		t.Errorf("8 of at most 8: %+v, want a wait of 2s", v)
	}
	b.Take(1, epoch)
	if got := b.Missed(); got != 8 {
		t.Errorf("missed %d, want 8", got)
	}
	if got := b.Missed(); got != 0 {
		t.Errorf("missed %d more, want none", got)
	}
}

// A bucket never admits more than its assigned tokens and those of its rates, less the tokens that
// Assign removed.
func TestAssignMakesNoTokens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now, tuned := epoch, someRate(t, "first")
		b := limit.NewEmptyBucket(tuned, now)
		var most, passed float64
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			d := somePause(t)
			now = now.Add(d)
			most += tuned.PerSecond * d.Seconds()
			if rapid.Bool().Draw(t, "assign") {
				tuned = someRate(t, "next")
				granted := rapid.IntRange(0, tuned.Burst).Draw(t, "granted")
				cut := b.Assign(tuned, granted, now)
				if most += float64(granted) - cut; b.Tokens(now) > float64(tuned.Burst) {
					t.Fatalf("holds %v tokens of at most %d", b.Tokens(now), tuned.Burst)
				}
			} else if n := rapid.IntRange(1, tuned.Burst).Draw(t, "n"); b.Take(n, now).OK {
				passed += float64(n)
			}
			if passed > most+tolerance*(1+most) {
				t.Fatalf("passed %v, at most %v were there", passed, most)
			}
		}
	})
}

// A request above Most is refused as too large, however much the bucket holds.
func TestMostCountsAlsoWhereTheBucketHoldsMore(t *testing.T) {
	b := limit.NewBucket(limit.Rate{PerSecond: 10, Burst: 30, Most: 17}, epoch)
	if v, want := b.Take(18, epoch), (limit.Verdict{OverBurst: true, Burst: 17}); v != want {
		t.Errorf("got %+v, want %+v", v, want)
	}
	if v := b.Take(17, epoch); !v.OK {
		t.Errorf("got %+v for as much as is allowed", v)
	}
}

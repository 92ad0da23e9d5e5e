package latency_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-bus/sluice/bench/internal/latency"
)

func TestSummaryOfNothing(t *testing.T) {
	if got := latency.New().Summary(); got != (latency.Summary{}) {
		t.Errorf("got %+v", got)
	}
}

func TestOutOfRange(t *testing.T) {
	h := latency.New()
	h.Record(-time.Second)
	h.Record(time.Hour)
	if got := h.Summary(); got.N != 2 || got.P50 != 0 || got.Max != 600_000 {
		t.Errorf("got %+v", got)
	}
}

// Merged histograms say the same as one that saw everything, and each percentile is what sorting
// gives, within the histogram's precision.
func TestMergedPercentilesAreThoseOfAllValues(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Int64Range(0, int64(time.Minute)), 1, 300).Draw(t, "values")
		parts := []*latency.Histogram{latency.New(), latency.New(), latency.New()}
		merged, whole := latency.New(), latency.New()
		sum := 0.0
		for _, v := range values {
			parts[rapid.IntRange(0, 2).Draw(t, "part")].Record(time.Duration(v))
			whole.Record(time.Duration(v))
			sum += float64(v)
		}
		for _, part := range parts {
			merged.Merge(part)
		}
		got := merged.Summary()
		if got != whole.Summary() {
			t.Fatalf("merged %+v, whole %+v", got, whole.Summary())
		}
		slices.Sort(values)
		check := func(name string, got, want float64) {
			if math.Abs(got-want) > 0.002*want+0.002 {
				t.Fatalf("%s is %v, want %v", name, got, want)
			}
		}
		ms := func(v int64) float64 { return float64(v) / 1e6 }
		for name, p := range map[string]struct{ got, percentile float64 }{
			"p50": {got.P50, 50}, "p90": {got.P90, 90}, "p99": {got.P99, 99}, "p999": {got.P999, 99.9},
		} {
			rank := max(int(p.percentile/100*float64(len(values))+0.5), 1) // the nearest, as HDR histograms have it
			check(name, p.got, ms(values[rank-1]))
		}
		check("max", got.Max, ms(values[len(values)-1]))
		check("avg", got.Avg, sum/float64(len(values))/1e6)
	})
}

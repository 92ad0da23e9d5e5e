// Package latency counts how long things took, for percentiles that can be trusted: exact counts in
// a high dynamic range histogram (three digits), and histograms that are merged, never percentiles
// that are averaged.
package latency

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// longest is the longest time that can be recorded; a longer one counts as this.
const longest = 10 * time.Minute

// Histogram counts times. It is for one goroutine at a time.
type Histogram struct {
	counts *hdrhistogram.Histogram // of nanoseconds
	sum    float64                 // exact, where the counts are not
	max    time.Duration
}

// New returns an empty histogram.
func New() *Histogram {
	return &Histogram{counts: hdrhistogram.New(1, int64(longest), 3)}
}

// Record counts a time. One below 0, as differing clocks make it, counts as 0.
func (h *Histogram) Record(d time.Duration) { h.RecordN(d, 1) }

// RecordN counts a time that n things took.
func (h *Histogram) RecordN(d time.Duration, n int) {
	d = min(max(d, 0), longest)
	if err := h.counts.RecordValues(int64(d), int64(n)); err != nil {
		panic(err) // d is in range
	}
	h.sum += float64(d) * float64(n)
	h.max = max(h.max, d)
}

// Merge adds what other counted.
func (h *Histogram) Merge(other *Histogram) {
	h.counts.Merge(other.counts) // the same range: nothing is dropped
	h.sum += other.sum
	h.max = max(h.max, other.max)
}

// Summary is a histogram in numbers: milliseconds, except for the count.
type Summary struct {
	N    int64   `json:"n"`
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p999"`
	Max  float64 `json:"max"`
	Avg  float64 `json:"avg"`
}

// Summary returns the numbers. All are 0 where nothing was counted.
func (h *Histogram) Summary() Summary {
	s := Summary{N: h.counts.TotalCount(), Max: Milliseconds(h.max)}
	if s.N == 0 {
		return s
	}
	at := func(percentile float64) float64 {
		// A bucket's upper end may be beyond the largest value in it.
		return Milliseconds(min(time.Duration(h.counts.ValueAtPercentile(percentile)), h.max))
	}
	s.P50, s.P90, s.P99, s.P999 = at(50), at(90), at(99), at(99.9)
	s.Avg = Milliseconds(time.Duration(h.sum / float64(s.N)))
	return s
}

// Milliseconds gives a duration as a decimal of milliseconds, down to a microsecond.
func Milliseconds(d time.Duration) float64 {
	return float64(d.Round(time.Microsecond)/time.Microsecond) / 1000
}

// Percentiles are those of a Curve: each halves what is left, so that the tail is as long as the rest.
var Percentiles = []float64{0, 25, 50, 75, 87.5, 90, 93.75, 95, 97.5, 99, 99.5, 99.75, 99.9, 99.95, 99.99, 100}

// Curve returns the milliseconds at each of Percentiles.
func (h *Histogram) Curve() []float64 {
	curve := make([]float64, len(Percentiles))
	for i, p := range Percentiles {
		curve[i] = Milliseconds(min(time.Duration(h.counts.ValueAtPercentile(p)), h.max))
	}
	return curve
}

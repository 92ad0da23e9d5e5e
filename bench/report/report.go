// Package report is what a bench run found, as JSON for programs and as a table for people.
package report

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/sluice-bus/sluice/bench/internal/latency"
)

// A Report is one run. Its JSON has everything in one object; times are milliseconds as decimals.
type Report struct {
	Command string `json:"command"`
	// Published and Consumed are events; the one that the run was about is not nil.
	Published *int `json:"published,omitempty"`
	Consumed  *int `json:"consumed,omitempty"`
	// MS is from the start barrier to the last answer, MPS events a second of it.
	MS  float64 `json:"ms"`
	MPS float64 `json:"mps"`
	// Measures says from which point to which the latencies are measured; "": there are none.
	Measures string `json:"measures,omitempty"`
	*latency.Summary
	// Failed counts events, by code in Errors.
	Failed     int            `json:"failed"`
	Errors     map[string]int `json:"errors"`
	Duplicates int            `json:"duplicates"`
	Parameters any            `json:"parameters"`
}

// Rate fills in the time that all events took together, and the events per second.
func (r *Report) Rate(events int, took time.Duration) {
	r.MS = latency.Milliseconds(took)
	if took > 0 {
		r.MPS = float64(int64(float64(events)/took.Seconds()*10)) / 10
	}
}

// JSON writes the report on one line.
func (r *Report) JSON(w io.Writer) error { return json.NewEncoder(w).Encode(r) }

// Table writes the report for people.
func (r *Report) Table(w io.Writer) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) {
		fmt.Fprintf(out, "%s\t"+format+"\n", append([]any{name}, args...)...)
	}
	if r.Published != nil {
		row("published", "%d events in %.1f ms: %.0f/s", *r.Published, r.MS, r.MPS)
	}
	if r.Consumed != nil {
		row("consumed", "%d events in %.1f ms: %.0f/s", *r.Consumed, r.MS, r.MPS)
	}
	if s := r.Summary; s != nil {
		row("latency", "%s", r.Measures)
		row("", "p50 %.3f  p90 %.3f  p99 %.3f  p99.9 %.3f  max %.3f  avg %.3f ms", s.P50, s.P90, s.P99, s.P999, s.Max, s.Avg)
	}
	row("duplicates", "%d", r.Duplicates)
	if r.Failed > 0 {
		row("failed", "%d", r.Failed)
	}
	for _, code := range slices.Sorted(maps.Keys(r.Errors)) {
		row("", "%s: %d", code, r.Errors[code])
	}
	return out.Flush()
}

package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/sluice-bus/sluice/bench/report"
)

// A ratio is Sluice's figure by a peer's: the median of the rounds' ratios, and within which they lie. Rounds are measured in turn,
// so that what else the machine does meets both.
type ratio struct{ median, low, high float64 }

// ratioOf is false where one of the two lacks the figure.
func ratioOf(sluice, peer *report.Row, of func(report.RoundFigures) float64) (r ratio, ok bool) {
	var all []float64
	for i := range min(len(sluice.Rounds), len(peer.Rounds)) {
		if a, b := of(sluice.Rounds[i]), of(peer.Rounds[i]); a > 0 && b > 0 {
			all = append(all, a/b)
		}
	}
	if len(all) == 0 {
		return r, false
	}
	slices.Sort(all)
	return ratio{all[(len(all)-1)/2], all[0], all[len(all)-1]}, true
}

func (r ratio) String() string { return fmt.Sprintf("%.2f (%.2f to %.2f)", r.median, r.low, r.high) }

// The figures that systems are compared by.
func rate(f report.RoundFigures) float64 { return f.MPS }
func p50(f report.RoundFigures) float64  { return f.P50 }
func p99(f report.RoundFigures) float64  { return f.P99 }

// isSluice reports whether a row is what those after it are compared with.
func isSluice(row *report.Row) bool { return strings.HasPrefix(row.System, "Sluice") }

// ratios writes Sluice's figures by those of each peer: of events a second more is better, of latencies less.
func ratios(w io.Writer, rows []*report.Row) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "\nSluice by\t\tevents/s\tp50\tp99")
	var sluice *report.Row
	for _, row := range rows {
		if isSluice(row) {
			sluice = row
			fmt.Fprintf(out, "%s: %s\t\t\t\t\n", row.Scenario, row.Case)
			continue
		}
		fmt.Fprintf(out, "  %s\t%s\t", row.System, row.Durability)
		for _, of := range []func(report.RoundFigures) float64{rate, p50, p99} {
			if r, ok := ratioOf(sluice, row, of); ok {
				fmt.Fprint(out, r)
			}
			fmt.Fprint(out, "\t")
		}
		fmt.Fprintln(out)
	}
	return out.Flush()
}

package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/sluice-bus/sluice/bench/report"
)

// ratios writes Sluice's figures by those of each peer: of events a second more is better, of latencies less.
func ratios(w io.Writer, rows []*report.Row) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "\nSluice by\t\tevents/s\tp50\tp99\tevents/CPU s")
	var sluice *report.Row
	for _, row := range rows {
		switch {
		case row.System == "Sluice":
			sluice = row
			fmt.Fprintf(out, "%s: %s\t\t\t\t\t\n", row.Scenario, row.Case)
		case row.Skipped == "" && sluice.Skipped == "":
			fmt.Fprintf(out, "  %s\t%s\t%.2f\t", row.System, row.Durability, ratio(sluice.MPS, row.MPS))
			if row.Summary != nil && sluice.Summary != nil {
				fmt.Fprintf(out, "%.2f\t%.2f\t", ratio(sluice.P50, row.P50), ratio(sluice.P99, row.P99))
			} else {
				fmt.Fprint(out, "\t\t")
			}
			fmt.Fprintf(out, "%.2f\n", ratio(sluice.EventsPerCPUSecond, row.EventsPerCPUSecond))
		}
	}
	return out.Flush()
}

func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

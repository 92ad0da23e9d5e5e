package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/sluice-bus/sluice/bench/report"
)

// Between these lines of a page is the last run.
const (
	tableBegin = "<!-- made by make bench-peers ARGS='--readme bench/README.md' -->\n"
	tableEnd   = "<!-- end -->\n"
)

// replaceTable puts the results into a page.
func replaceTable(name string, r *report.Results) error {
	page, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	before, rest, begins := bytes.Cut(page, []byte(tableBegin))
	_, after, ends := bytes.Cut(rest, []byte(tableEnd))
	if !begins || !ends {
		return fmt.Errorf("%s has no place for the table: the lines %s and %s", name, strings.TrimSpace(tableBegin), strings.TrimSpace(tableEnd))
	}
	var out bytes.Buffer
	out.Write(before)
	out.WriteString(tableBegin)
	markdown(&out, r)
	out.WriteString(tableEnd)
	out.Write(after)
	return os.WriteFile(name, out.Bytes(), 0o644)
}

// markdown writes a table for each kind of case: a row for each system, a column for each case.
func markdown(w io.Writer, r *report.Results) {
	fmt.Fprintf(w, "%s, Sluice %s, %s/%s, %d cores (%s) for client and server, a sync of the disk takes %.2f ms; %d rounds of %s in turn, %v bytes.",
		r.At.Format("2 January 2006"), r.Version, r.Machine.OS, r.Machine.Arch, r.Machine.Cores, r.Machine.CPU, r.Machine.SyncMS, r.Rounds,
		r.Flags["for"], r.Flags["size"])
	fmt.Fprint(w, " In parentheses: Sluice's figure by this one's, the median of the rounds' ratios and their range.\n")
	throughput, latency := columns(r.Rows, "publish", "subscribe"), columns(r.Rows, "roundtrip", "added")
	table(w, "events/s", r, throughput, func(sluice, row *report.Row) string { return cell(sluice, row, "%.0f", row.MPS, rate) })
	table(w, "p50 and p99, ms", r, latency, func(sluice, row *report.Row) string {
		if row.Summary == nil {
			return ""
		}
		return cell(sluice, row, "%.2f", row.P50, p50) + "; " + cell(sluice, row, "%.2f", row.P99, p99)
	})
	var skipped []string
	for _, row := range r.Rows {
		if row.Skipped != "" && row.Scenario == "publish" && row.Case == throughput[0].name {
			skipped = append(skipped, row.System+": "+row.Skipped+".")
		}
	}
	fmt.Fprint(w, "\n", strings.Join(skipped, " "), quoted, "\n")
}

// quoted is what cannot be measured here.
const quoted = `
Dapr, quoted and not measured, since it needs a broker of its own: its documentation gives for 1.12 over Kafka at 1,000/s of 1 KB an added
latency of p90 0.49 and p99 1.21 ms over HTTP, 0.64 and 1.91 ms over gRPC, with about 0.2 of a core
(daprdocs/content/en/operations/performance-and-scalability/perf-pubsub.md); later versions publish charts alone.`

// A column is a case.
type column struct{ scenario, name string }

func columns(rows []*report.Row, scenarios ...string) (all []column) {
	for _, row := range rows {
		c := column{row.Scenario, row.Case}
		if slices.Contains(scenarios, row.Scenario) && !slices.Contains(all, c) {
			all = append(all, c)
		}
	}
	return all
}

func table(w io.Writer, what string, r *report.Results, all []column, cell func(sluice, row *report.Row) string) {
	fmt.Fprintf(w, "\n| %s | durability |", what)
	for _, c := range all {
		fmt.Fprintf(w, " %s: %s |", c.scenario, c.name)
	}
	fmt.Fprintf(w, "\n|---|---|%s\n", strings.Repeat("---|", len(all)))
	for _, system := range systemsOf(r.Rows, all) {
		fmt.Fprintf(w, "| %s %s | %s |", system.System, r.Systems[system.System], system.Durability)
		for _, c := range all {
			fmt.Fprintf(w, " %s |", cellOf(r.Rows, system, c, cell))
		}
		fmt.Fprintln(w)
	}
}

// cellOf is the cell of a system and a case. Sluice's row of the case stands before it.
func cellOf(rows []*report.Row, system *report.Row, c column, cell func(sluice, row *report.Row) string) string {
	var sluice *report.Row
	for _, row := range rows {
		if row.Scenario != c.scenario || row.Case != c.name {
			continue
		}
		if isSluice(row) {
			sluice = row
		}
		if row.System == system.System && row.Durability == system.Durability && row.Skipped == "" {
			return cell(sluice, row)
		}
	}
	return ""
}

// systemsOf has a row of each system that was measured in one of the cases.
func systemsOf(rows []*report.Row, all []column) (systems []*report.Row) {
	for _, row := range rows {
		there := slices.ContainsFunc(systems, func(s *report.Row) bool { return s.System == row.System && s.Durability == row.Durability })
		if !there && row.Skipped == "" && slices.Contains(all, column{row.Scenario, row.Case}) {
			systems = append(systems, row)
		}
	}
	return systems
}

// cell is a figure, and Sluice's by it.
func cell(sluice, row *report.Row, format string, value float64, of func(report.RoundFigures) float64) string {
	text := fmt.Sprintf(format, value)
	if r, ok := ratioOf(sluice, row, of); ok && !isSluice(row) {
		text += fmt.Sprintf(" (%.2f, %.2f–%.2f)", r.median, r.low, r.high)
	}
	return text
}

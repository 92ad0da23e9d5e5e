package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Results are the rows of a run, and where it was made.
type Results struct {
	Program string            `json:"program"`
	Version string            `json:"version"`
	At      time.Time         `json:"at"`
	Machine Machine           `json:"machine"`
	Systems map[string]string `json:"systems,omitempty"` // name and version of what was measured
	Flags   map[string]any    `json:"flags"`
	Rounds  int               `json:"rounds"`
	Rows    []*Row            `json:"rows"`
}

// Machine is what it ran on.
type Machine struct {
	OS    string `json:"os"`
	Arch  string `json:"arch"`
	Cores int    `json:"cores"`
	CPU   string `json:"cpu,omitempty"`
	// SyncMS is how long the disk takes to make a block durable, the median.
	SyncMS float64 `json:"sync_ms"`
}

// JSON writes the results indented, since people keep them beside their code.
func (r *Results) JSON(w io.Writer) error {
	out := json.NewEncoder(w)
	out.SetIndent("", " ")
	return out.Encode(r)
}

// Write writes results in one of their forms to a file; "": to none.
func Write(name string, form func(io.Writer) error) (err error) {
	if name == "" {
		return nil
	}
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return form(f)
}

// Read reads results from a file that JSON wrote.
func Read(name string) (r *Results, err error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if r == nil || r.Rows == nil {
		return nil, errors.New(name + " has no rows: it is no result of sluice-bench run --json")
	}
	return r, nil
}

// Table writes the results for people.
func (r *Results) Table(w io.Writer) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "%s %s/%s, %d cores, %s; a sync of the disk takes %.2f ms; rounds: %d\n\n", r.Version, r.Machine.OS, r.Machine.Arch,
		r.Machine.Cores, r.Machine.CPU, r.Machine.SyncMS, r.Rounds)
	fmt.Fprintln(out, "events/s\tspread\tp50 ms\tp99 ms\tevents/CPU s\tMiB\t")
	for _, row := range r.Rows {
		name := row.Name()
		if row.Skipped != "" {
			fmt.Fprintf(out, "-\t\t\t\t\t\t  %s\n", name+": "+row.Skipped)
			continue
		}
		p50, p99 := "", ""
		if row.Summary != nil {
			p50, p99 = fmt.Sprintf("%.2f", row.P50), fmt.Sprintf("%.2f", row.P99)
		}
		fmt.Fprintf(out, "%s\t%s to %s\t%s\t%s\t%s\t%s\t  %s\n", count(row.MPS), count(row.Spread[0]), count(row.Spread[1]), p50, p99,
			orEmpty(row.EventsPerCPUSecond), orEmpty(row.MemoryMiB), name)
	}
	if err := out.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	for _, row := range r.Rows {
		if row.Skipped == "" {
			row.notes(w)
		}
	}
	return nil
}

// notes writes what does not fit into a line.
func (row *Row) notes(w io.Writer) {
	fmt.Fprintf(w, "%s: limited by %s", row.Name(), row.LimitedBy)
	for _, name := range slices.Sorted(maps.Keys(row.Figures)) {
		fmt.Fprintf(w, "; %s %s", name, amount(row.Figures[name]))
	}
	if row.Unknown != "" {
		fmt.Fprintf(w, "; not known: %s", row.Unknown)
	}
	if row.Failed > 0 {
		fmt.Fprintf(w, "; %d FAILED %v", row.Failed, row.Errors)
	}
	fmt.Fprintln(w)
}

// Name names the row among others.
func (row *Row) Name() string {
	name := row.Scenario + ": " + row.Case
	if row.Durability != "" {
		name += " (" + row.System + ", " + row.Durability + ")"
	}
	return name
}

// count writes a number with its thousands apart.
func count(n float64) string {
	if n < 100 {
		return fmt.Sprintf("%.1f", n)
	}
	text := fmt.Sprintf("%.0f", n)
	var parts []string
	for len(text) > 3 {
		parts, text = append(parts, text[len(text)-3:]), text[:len(text)-3]
	}
	parts = append(parts, text)
	slices.Reverse(parts)
	return strings.Join(parts, ",")
}

// amount writes a number of any size, a small one with four digits.
func amount(n float64) string {
	if math.Abs(n) < 1000 {
		return fmt.Sprintf("%.4g", n)
	}
	return count(n)
}

func orEmpty(n float64) string {
	if n == 0 {
		return ""
	}
	return count(n)
}

package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
)

// A Change is what is different in a row from one run to another.
type Change struct {
	Row    string  `json:"row"`
	Figure string  `json:"figure"`
	Before float64 `json:"before"`
	After  float64 `json:"after"`
	// Ratio is After by Before.
	Ratio float64 `json:"ratio"`
	// Beyond is true where the rounds of the two runs do not overlap: else the difference may be chance.
	Beyond bool `json:"beyond_spread"`
	// Worse is true where the change is beyond the spread, for the worse, and by more than the threshold.
	Worse bool `json:"worse"`
}

// figure is one that is compared.
type figure struct {
	name   string
	of     func(*Row) (value float64, spread [2]float64)
	higher bool // is better
}

// compared are the figures that runs are compared by. What has no rounds of its own is taken to differ by 5 % at least.
var compared = []figure{
	{"events/s", func(r *Row) (float64, [2]float64) { return r.MPS, r.Spread }, true},
	{"p99 ms", func(r *Row) (float64, [2]float64) {
		if r.Summary == nil {
			return 0, [2]float64{}
		}
		return r.P99, r.P99Spread
	}, false},
	{"events/CPU s", func(r *Row) (float64, [2]float64) {
		return r.EventsPerCPUSecond, [2]float64{0.95 * r.EventsPerCPUSecond, 1.05 * r.EventsPerCPUSecond}
	}, true},
}

// Compare returns what changed in the rows that both runs have, and which rows only one has. Threshold is the part of a figure by
// which it has to be worse to count: 0.1 is 10 %.
func Compare(before, after *Results, threshold float64) (changes []Change, only []string) {
	earlier := map[string]*Row{}
	for _, row := range before.Rows {
		if row.Skipped == "" {
			earlier[row.Name()] = row
		}
	}
	for _, row := range after.Rows {
		old := earlier[row.Name()]
		delete(earlier, row.Name())
		switch {
		case row.Skipped != "":
		case old == nil:
			only = append(only, row.Name()+" (after)")
		default:
			changes = append(changes, compareRow(old, row, threshold)...)
		}
	}
	for name := range earlier {
		only = append(only, name+" (before)")
	}
	slices.SortFunc(only, cmp.Compare)
	return changes, only
}

func compareRow(old, row *Row, threshold float64) (changes []Change) {
	for _, f := range compared {
		a, aSpread := f.of(old)
		b, bSpread := f.of(row)
		if a == 0 || b == 0 {
			continue
		}
		c := Change{Row: row.Name(), Figure: f.name, Before: a, After: b, Ratio: round(b/a, 3)}
		c.Beyond = aSpread[1] < bSpread[0] || bSpread[1] < aSpread[0]
		worse := a/b - 1
		if !f.higher {
			worse = b/a - 1
		}
		c.Worse = c.Beyond && worse > threshold
		changes = append(changes, c)
	}
	return changes
}

// Markdown writes changes as a table for a pull request: those beyond the spread first.
func Markdown(w io.Writer, changes []Change, only []string) {
	slices.SortStableFunc(changes, func(a, b Change) int { return rank(b) - rank(a) })
	fmt.Fprintln(w, "| | | before | after | ratio | |\n|---|---|---|---|---|---|")
	for _, c := range changes {
		says := "within the spread"
		switch {
		case c.Worse:
			says = "**worse**"
		case c.Beyond:
			says = "changed"
		}
		fmt.Fprintf(w, "| %s | %s | %s | %s | %.2f | %s |\n", c.Row, c.Figure, count(c.Before), count(c.After), c.Ratio, says)
	}
	for _, name := range only {
		fmt.Fprintf(w, "\nonly in one: %s\n", name)
	}
}

// rank puts what matters first.
func rank(c Change) int {
	switch {
	case c.Worse:
		return 2
	case c.Beyond:
		return 1
	}
	return 0
}

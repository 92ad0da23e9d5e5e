package main

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/sluice-bus/sluice/bench/scenarios"
	"github.com/sluice-bus/sluice/internal/program"
)

type listCommand struct{}

// Run lists the scenarios.
func (*listCommand) Run(_ context.Context, app *program.App) error {
	out := tabwriter.NewWriter(app.Stdout, 0, 0, 2, ' ', 0)
	for _, s := range scenarios.All() {
		mark := ""
		if s.Default {
			mark = "*"
		}
		fmt.Fprintf(out, "%s\t%s\t%s\n", s.Name, mark, s.Asks)
		for _, c := range s.Cases {
			fmt.Fprintf(out, "\t\t- %s\n", c.Name)
		}
		fmt.Fprintf(out, "\t\tuses %s\n", strings.Join(s.Uses, ", "))
	}
	fmt.Fprintln(out, "\n* is what sluice-bench run measures without names")
	return out.Flush()
}

package main

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/sluice-bus/sluice/bench/report"
	"github.com/sluice-bus/sluice/internal/program"
)

type compareCommand struct {
	Before    string  `arg:"" help:"Results of run --json."`
	After     string  `arg:"" help:"Results of run --json."`
	Threshold float64 `default:"0.1" help:"How much worse counts: 0.1 is 10 %."`
	JSON      bool    `name:"json" help:"Print JSON in place of a Markdown table."`
}

func (*compareCommand) Help() string {
	return `Says what changed from one run to another beyond the spread of their rounds, as
a table for a pull request. Exit status 4 where something became worse by more
than the threshold.

Examples:

  sluice-bench compare main.json branch.json
  sluice-bench compare main.json branch.json --threshold 0.05 --json`
}

// statusWorse is the exit status where something became worse.
const statusWorse = 4

// Run compares.
func (c *compareCommand) Run(_ context.Context, app *program.App) error {
	before, err := report.Read(c.Before)
	if err != nil {
		return err
	}
	after, err := report.Read(c.After)
	if err != nil {
		return err
	}
	changes, only := report.Compare(before, after, c.Threshold)
	if c.JSON {
		err = json.NewEncoder(app.Stdout).Encode(map[string]any{"changes": changes, "only_in_one": only})
	} else {
		report.Markdown(app.Stdout, changes, only)
	}
	if err == nil && slices.ContainsFunc(changes, func(c report.Change) bool { return c.Worse }) {
		return program.Silent(statusWorse)
	}
	return err
}

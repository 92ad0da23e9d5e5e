package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-bus/sluice/bench/internal/latency"
	"github.com/sluice-bus/sluice/bench/internal/load"
	"github.com/sluice-bus/sluice/bench/report"
	"github.com/sluice-bus/sluice/bench/scenarios"
	"github.com/sluice-bus/sluice/internal/program"
	"github.com/sluice-bus/sluice/internal/secrets"
	"github.com/sluice-bus/sluice/internal/terminal"
	"github.com/sluice-bus/sluice/sdk/wire/nearest"
)

type runCommand struct {
	Scenarios []string      `arg:"" optional:"" name:"scenario" help:"What to measure (default: those that sluice-bench list marks with *)."`
	Target    string        `placeholder:"URL" help:"Measure the sidecar that runs here, in place of one that is started; its limits count."`
	TokenFile string        `placeholder:"FILE" help:"The target's token."`
	Store     string        `placeholder:"URL" help:"The store of sidecars that are started: mongodb://… (default: embedded)."`
	StorePIDs []int         `name:"store-pids" placeholder:"PID,…" help:"MongoDB's processes on this machine, for spool and rivals."`
	Dir       string        `default:"." help:"A folder on the disk to measure. What is written there is removed at the end."`
	For       time.Duration `default:"3s" help:"How long a round of a case takes."`
	Rounds    int           `default:"3" help:"How many rounds, all cases in turn."`
	Size      int           `default:"256" help:"Bytes of a payload, at least 35."`
	FindMax   string        `placeholder:"BOUND" help:"Find the highest rate of roundtrip that keeps a bound, such as 'p99<10ms'."`
	File      string        `placeholder:"FILE" help:"Read cases from a YAML file: scenarios' names, and a list of cases for each."`
	JSON      string        `name:"json" placeholder:"FILE" help:"Write the results as JSON, for compare (-: standard output)."`
	HTML      string        `name:"html" placeholder:"FILE" help:"Write the results as one page with plots."`
}

func (*runCommand) Help() string {
	return `Starts the sidecars that it needs, and measures their throughput, their latency,
the CPU and memory that they use, and what limits them. Takes about three minutes.

Programs are looked for beside this one and on PATH. Examples:

  sluice-bench run
  sluice-bench run publish roundtrip --html report.html
  sluice-bench run --target http://127.0.0.1:7070 --json today.json
  sluice-bench run rivals takeover --store mongodb://127.0.0.1:27017/?replicaSet=rs0
  sluice-bench run --find-max 'p99<10ms'
  sluice-bench run soak --for 1h --rounds 1`
}

// Run runs the scenarios.
func (c *runCommand) Run(ctx context.Context, app *program.App) error {
	asked, err := c.asked()
	if err != nil {
		return err
	}
	bound, err := parseBound(c.FindMax)
	if err != nil {
		return err
	}
	lab, err := c.lab()
	if err != nil {
		return err
	}
	results := &report.Results{
		Program: "sluice-bench", Version: program.Version(), At: time.Now(), Rounds: c.Rounds, Flags: c.flags(),
		Machine: lab.Machine(),
	}
	if bound != nil {
		err = findMax(ctx, app, lab, bound, results)
	} else {
		jobs := scenarios.Jobs(lab, asked, "sluice", "")
		results.Rows, err = scenarios.Measure(ctx, jobs, c.Rounds, func(lab *scenarios.Lab, label string) func() { return show(app, lab, label) })
	}
	return errors.Join(err, lab.Close(), c.write(app, results)) // who reads the results may go before their end
}

// asked are the scenarios to measure, with the cases of the file.
func (c *runCommand) asked() ([]*scenarios.Scenario, error) {
	switch {
	case c.Rounds < 1:
		return nil, program.Usagef("--rounds is %d; it has to be at least 1", c.Rounds)
	case c.For <= 0:
		return nil, program.Usagef("--for is %v; it has to be above 0", c.For)
	case c.Size < load.MinSize:
		return nil, program.Usagef("--size is %d; the time in the payload needs %d", c.Size, load.MinSize)
	case c.File != "" && len(c.Scenarios) > 0:
		return nil, program.Usagef("--file says which scenarios to measure: give it or their names")
	case c.Target != "" && c.Store != "":
		return nil, program.Usagef("--store is for sidecars that are started, and --target names one that runs: give one of the two")
	}
	if c.File != "" {
		return fromFile(c.File)
	}
	if len(c.Scenarios) == 0 {
		return slices.DeleteFunc(scenarios.All(), func(s *scenarios.Scenario) bool { return !s.Default }), nil
	}
	var asked []*scenarios.Scenario
	for _, name := range c.Scenarios {
		s, err := named(name)
		if err != nil {
			return nil, err
		}
		asked = append(asked, s)
	}
	return asked, nil
}

func named(name string) (*scenarios.Scenario, error) {
	if s := scenarios.Named(name); s != nil {
		return s, nil
	}
	return nil, program.Usagef("there is no scenario %q%s; sluice-bench list has all", name, nearest.Hint(name, scenarios.Names()))
}

// fromFile reads scenarios with cases of one's own.
func fromFile(name string) ([]*scenarios.Scenario, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, program.Usagef("--file: %w", err)
	}
	asked, err := scenarios.Parse(text)
	if err != nil {
		return nil, program.Usagef("--file %s: %w", name, err)
	}
	return asked, nil
}

// lab prepares the folder and looks at the disk.
func (c *runCommand) lab() (lab *scenarios.Lab, err error) {
	token := ""
	if c.TokenFile != "" {
		if token, err = secrets.FromFile(c.TokenFile); err != nil {
			return nil, program.Usagef("--token-file: %w", err)
		}
	}
	if lab, err = scenarios.NewLab(c.Dir); err != nil {
		return nil, err
	}
	lab.Store, lab.Target, lab.StorePIDs, lab.Token, lab.Size, lab.For = c.Store, c.Target, c.StorePIDs, token, c.Size, c.For
	lab.Start = func(ctx context.Context) (scenarios.System, error) {
		if c.Target != "" {
			return scenarios.Running(ctx, c.Target, lab.Token)
		}
		return lab.StartUnlimited(ctx)
	}
	return lab, nil
}

func (c *runCommand) flags() map[string]any {
	store := c.Store
	if u, err := url.Parse(store); err == nil {
		store = u.Redacted()
	}
	return map[string]any{
		"target": c.Target, "store": store, "for": c.For.String(), "rounds": c.Rounds, "size": c.Size, "file": c.File,
	}
}

// write writes the results in every form that was asked for. JSON on a pipe is what programs read.
func (c *runCommand) write(app *program.App, results *report.Results) error {
	if c.JSON == "" && !terminal.Is(app.Stdout) {
		c.JSON = "-"
	}
	if c.JSON == "-" {
		return errors.Join(results.JSON(app.Stdout), report.Write(c.HTML, results.HTML))
	}
	if err := results.Table(app.Stdout); err != nil {
		return err
	}
	return errors.Join(report.Write(c.JSON, results.JSON), report.Write(c.HTML, results.HTML))
}

// show shows what is measured on a terminal, until the returned function is called.
func show(app *program.App, lab *scenarios.Lab, label string) (done func()) {
	progress := terminal.NewProgress(app.Stderr, label, 0)
	shown := int64(0)
	lab.Progress = func(now int64) {
		if now < shown { // another part of the round
			shown = 0
		}
		progress.Add(now - shown)
		shown = now
	}
	return progress.Finish
}

// A bound is one that a latency has to keep.
type bound struct {
	text   string
	figure string
	ms     float64
}

func parseBound(text string) (*bound, error) {
	if text == "" {
		return nil, nil
	}
	figure, most, ok := strings.Cut(text, "<")
	d, err := time.ParseDuration(strings.TrimSpace(most))
	figure = strings.TrimSpace(figure)
	if !ok || err != nil || d <= 0 || !slices.Contains([]string{"p50", "p90", "p99", "p999", "max"}, figure) {
		return nil, program.Usagef("--find-max is %q; it has to be p50, p90, p99, p999 or max, < and a time, such as p99<10ms", text)
	}
	return &bound{text: text, figure: figure, ms: latency.Milliseconds(d)}, nil
}

// kept reports whether a round keeps the bound, and its rate within 2 %.
func (b *bound) kept(r *report.Round, rate float64) bool {
	s := r.Latency.Summary()
	value := map[string]float64{"p50": s.P50, "p90": s.P90, "p99": s.P99, "p999": s.P999, "max": s.Max}[b.figure]
	return value < b.ms && float64(r.Events) >= 0.98*rate*r.Took.Seconds()
}

// findMax doubles the rate while the bound is kept, and then halves what is between.
func findMax(ctx context.Context, app *program.App, lab *scenarios.Lab, b *bound, results *report.Results) error {
	const lowest, highest, steps = 100, 1e6, 5
	roundtrip := scenarios.Named("roundtrip")
	var best *report.Row
	try := func(rate float64) (bool, error) {
		p := scenarios.Params{Rate: rate}.WithDefaults(lab.Size)
		done := show(app, lab, "trying "+strconv.Itoa(int(rate))+" events/s")
		defer done()
		r, err := roundtrip.Run(ctx, lab, p)
		if err != nil || !b.kept(r, rate) {
			return false, err
		}
		best = &report.Row{
			Scenario: "roundtrip", Case: fmt.Sprintf("%.0f events/s, the most with %s", rate, b.text), System: "sluice", Parameters: p,
		}
		best.Fill([]*report.Round{r})
		return true, nil
	}
	kept, lost := 0.0, float64(highest)
	for rate := float64(lowest); rate <= highest; rate *= 2 {
		ok, err := try(rate)
		if err != nil {
			return err
		}
		if !ok {
			lost = rate
			break
		}
		kept = rate
	}
	if best == nil {
		return fmt.Errorf("%s is not kept at %d events/s", b.text, lowest)
	}
	for range steps {
		middle := (kept + lost) / 2
		ok, err := try(middle)
		if err != nil {
			return err
		}
		if ok {
			kept = middle
		} else {
			lost = middle
		}
	}
	results.Rows = []*report.Row{best}
	return nil
}

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sluice-bus/sluice/bench/internal/load"
	"github.com/sluice-bus/sluice/bench/report"
	"github.com/sluice-bus/sluice/internal/program"
	"github.com/sluice-bus/sluice/internal/secrets"
	"github.com/sluice-bus/sluice/internal/terminal"
)

// target is the flags of both commands: the sidecar and the load.
type target struct {
	URL    string `name:"url" default:"http://127.0.0.1:7070" help:"The sidecar's app API: http://host:port, https://host:port or unix:/path."`
	Token  string `secret:"--token-file, or SLUICE_TOKEN" help:"The token to authenticate with, which others on this machine see."`
	Topic  string `help:"The topic (default: a fresh one)."`
	Events int    `default:"100000" help:"How many events."`
	Size   int    `default:"256" help:"Bytes of a payload, at least 35."`
	Keys   int    `help:"How many different keys; 0: the events have none."`

	TokenFile string `placeholder:"FILE" help:"Read the token from this file, in place of --token."`
}

func (t *target) validate() (err error) {
	if t.TokenFile != "" {
		if t.Token, err = secrets.FromFile(t.TokenFile); err != nil {
			return program.Usagef("--token-file: %w", err)
		}
	}
	switch {
	case t.Events < 1:
		return program.Usagef("--events is %d; it has to be at least 1", t.Events)
	case t.Size < load.MinSize:
		return program.Usagef("--size is %d; the time in the payload needs %d", t.Size, load.MinSize)
	case t.Keys < 0:
		return program.Usagef("--keys is %d; it has to be 0 or more", t.Keys)
	}
	return nil
}

// watch shows the progress of a run on a terminal, until the returned function is called.
func watch(app *program.App, label string, total int, done func() int64) (finish func()) {
	if !terminal.Is(app.Stderr) {
		return func() {}
	}
	progress := terminal.NewProgress(app.Stderr, label, int64(total))
	stop := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for shown := int64(0); ; {
			select {
			case <-tick.C:
				now := done()
				progress.Add(now - shown)
				shown = now
			case <-stop:
				return
			}
		}
	})
	return func() {
		close(stop)
		watching.Wait()
		progress.Finish()
	}
}

// fill puts what was counted into the report.
func fill(r *report.Report, t *load.Tally, measures string) {
	r.Failed, r.Errors, r.Duplicates = t.Failed, t.Errors, t.Duplicates
	if summary := t.Latency.Summary(); measures != "" && summary.N > 0 {
		r.Measures, r.Summary = measures, &summary
	}
}

// finish prints the report and says whether the run was a success: err is what ended it early.
func finish(app *program.App, r *report.Report, err error) error {
	if err := r.JSON(app.Stdout); err != nil {
		return err
	}
	if terminal.Is(app.Stdout) {
		if err := r.Table(app.Stderr); err != nil {
			return err
		}
	}
	if err != nil {
		return explain(err)
	}
	if r.Failed > 0 {
		return fmt.Errorf("%d events failed", r.Failed)
	}
	return nil
}

// explain says what ended a run early.
func explain(err error) error {
	switch {
	case load.RateLimited(err):
		return fmt.Errorf("%w; to measure the sidecar and not its limit, start it with --policies bench/policies.yaml "+
			"(connection and publish rate 0)", err)
	case err != nil && !errors.Is(err, context.Canceled):
		return fmt.Errorf("the run ended early: %w", err)
	}
	return err
}

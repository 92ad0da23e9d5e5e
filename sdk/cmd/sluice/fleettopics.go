package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/sluice-bus/sluice/internal/pause"
	"github.com/sluice-bus/sluice/internal/program"
	"github.com/sluice-bus/sluice/internal/terminal"
	"github.com/sluice-bus/sluice/sdk/admin"
)

type fleetTopicsCommand struct {
	Watch bool `help:"Print again each second, until it is interrupted."`
}

func (*fleetTopicsCommand) Help() string {
	return `Lists the topics, the busiest first. ALLOWED/S and DENIED/S count events that
sidecars let through and that they refused for a limit. LIMIT/S is the rate that
the topic's policy allows: to each sidecar, or to all of them together where
SCOPE says fleet.

With --watch --json, each second is one line with all topics.

Examples:

  sluice fleet topics --watch
  sluice fleet topics --json | jq -r 'select(.denied_per_second>0).topic'`
}

// watchInterval is how often --watch prints.
const watchInterval = time.Second

// Run prints the topics.
func (f *fleetTopicsCommand) Run(ctx context.Context, app *program.App, c *client, plane *admin.ControlPlane) error {
	if f.Watch {
		return watchTopics(ctx, app, c, plane)
	}
	topics, err := askTopics(ctx, c, plane)
	if err != nil {
		return err
	}
	if !c.JSON {
		return printTopics(app.Stdout, topics)
	}
	return printJSONLines(app.Stdout, topics)
}

// watchTopics prints the topics again and again. If the control plane goes away after it has
// answered once, watchTopics waits for it.
func watchTopics(ctx context.Context, app *program.App, c *client, plane *admin.ControlPlane) error {
	onScreen := terminal.Is(app.Stdout) && !c.JSON
	if onScreen {
		// A terminal's other screen, so that what was printed before comes back.
		own := terminal.Raw(app.Stdout)
		fmt.Fprint(own, "\x1b[?1049h\x1b[?25l")
		defer fmt.Fprint(own, "\x1b[?25h\x1b[?1049l")
	}
	var seen []admin.FleetTopic
	for first := true; ; first = false {
		topics, err := askTopics(ctx, c, plane)
		switch {
		case ctx.Err() != nil:
			return nil // interrupted, which is how it ends
		case err != nil && first:
			return err
		case err == nil:
			seen = topics
		}
		if err := printWatched(app, c, onScreen, first, seen, err); err != nil {
			return err
		}
		if !pause.For(ctx, watchInterval) {
			return nil
		}
	}
}

// printWatched prints one second of --watch: the topics, or what went wrong.
func printWatched(app *program.App, c *client, onScreen, first bool, topics []admin.FleetTopic, failed error) error {
	if onScreen {
		var text bytes.Buffer
		if failed != nil {
			fmt.Fprintf(&text, "not up to date: %s\n\n", plain(failed.Error()))
		}
		if err := printTopics(&text, topics); err != nil {
			return err
		}
		return redraw(app.Stdout, text.String())
	}
	switch {
	case failed != nil:
		_, err := fmt.Fprintf(app.Stderr, "%s: %v\n", app.Name, failed)
		return err
	case c.JSON:
		return printJSON(app.Stdout, map[string]any{"topics": topics})
	case !first:
		fmt.Fprintln(app.Stdout)
	}
	return printTopics(app.Stdout, topics)
}

// askTopics returns the topics, the busiest first.
func askTopics(ctx context.Context, c *client, plane *admin.ControlPlane) ([]admin.FleetTopic, error) {
	topics, err := askPlane(ctx, c, func(ctx context.Context) ([]admin.FleetTopic, error) {
		return plane.FleetTopics(ctx, false)
	})
	slices.SortStableFunc(topics, func(a, b admin.FleetTopic) int {
		return cmp.Compare(b.AllowedPerSecond+b.DeniedPerSecond, a.AllowedPerSecond+a.DeniedPerSecond)
	})
	return topics, err
}

func printTopics(w io.Writer, topics []admin.FleetTopic) error {
	if len(topics) == 0 {
		_, err := fmt.Fprintln(w, "no topics: no sidecar has published, and no policy names one")
		return err
	}
	rows := make([][]string, len(topics))
	for i, t := range topics {
		limit := "none"
		switch {
		case t.Paused:
			limit = "paused"
		case t.Rate > 0:
			limit = strconv.FormatFloat(t.Rate, 'f', -1, 64)
		}
		rows[i] = []string{t.Topic, perSecond(t.AllowedPerSecond), perSecond(t.DeniedPerSecond), limit, t.Scope,
			cmp.Or(t.Policy, "defaults"), fmt.Sprint(len(t.Sidecars))}
	}
	return table(w, []string{"TOPIC", "ALLOWED/S", "DENIED/S", "LIMIT/S", "SCOPE", "POLICY", "SIDECARS"}, rows)
}

// perSecond writes a measured rate: small ones with a digit behind the point.
func perSecond(rate float64) string {
	if rate < 10 && rate != float64(int64(rate)) {
		return strconv.FormatFloat(rate, 'f', 1, 64)
	}
	return strconv.FormatFloat(rate, 'f', 0, 64)
}

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/sluice-bus/sluice/internal/program"
	"github.com/sluice-bus/sluice/internal/terminal"
	"github.com/sluice-bus/sluice/sdk/admin"
)

type topCommand struct {
	controlPlane
	Sort string `enum:"published,refused,name" default:"published" help:"By what the topics are sorted: published, refused or name."`
}

func (*topCommand) Help() string {
	return `Shows the overview and the topics each second, as many as there is room for. The
keys p, r and n sort the topics by published and refused events and by name; q
ends it. Where the output is no terminal it prints them once.

Examples:

  sluice top
  sluice top --sort refused
  sluice top | head -20`
}

// topSorts are how the control plane's list sorts the topics, and topKeys the keys that choose it.
var (
	topSorts = map[string]string{"published": "-allowed_per_second", "refused": "-denied_per_second", "name": "topic"}
	topKeys  = map[byte]string{'p': "published", 'r': "refused", 'n': "name"}
)

const controlC = 3 // a key, where a terminal delivers each

// pressed takes a key, and reports whether to go on.
func (t *topCommand) pressed(key byte) bool {
	if by, ok := topKeys[key]; ok {
		t.Sort = by
	}
	return key != 'q' && key != controlC
}

// Run shows the fleet.
func (t *topCommand) Run(ctx context.Context, app *program.App, c *client, plane *admin.ControlPlane) error {
	live := terminal.Is(app.Stdout) && !c.Output.isDocument()
	now := func(ctx context.Context) (fleetNow, error) {
		_, rows := terminal.Size(app.Stdout)
		now, err := askFleet(ctx, c, plane)
		if err == nil {
			now.topics, err = askPlane(ctx, c, func(ctx context.Context) ([]admin.FleetTopic, error) {
				return plane.BusiestTopics(ctx, topSorts[t.Sort], rows)
			})
		}
		return now, err
	}
	write := func(s *sheet, now fleetNow) error {
		if live {
			fmt.Fprintf(s, "%s, topics by %s: p published, r refused, n name; q quits\n\n", plane.URL, t.Sort) // printOverview has the error
		}
		err := printOverview(s, now)
		fmt.Fprintln(s)
		return errors.Join(err, printTopics(s, now.topics))
	}
	if !live {
		return show(ctx, app, c, false, now, write)
	}
	keys, restore, err := terminal.Keys(app.Stdin)
	if err != nil {
		return fmt.Errorf("the terminal's keys: %w", err)
	}
	defer restore()
	return repeat(ctx, app, c.Output, keyboard{keys, t.pressed}, printing(ctx, app, c, now, write))
}

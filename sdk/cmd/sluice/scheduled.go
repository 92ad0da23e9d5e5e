package main

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-bus/sluice/internal/program"
	"github.com/sluice-bus/sluice/sdk/admin"
)

// scheduledCommand is the commands about events that are put into the log later.
type scheduledCommand struct {
	List   scheduledListCommand   `cmd:"" default:"withargs" help:"List the scheduled events of a topic."`
	Cancel scheduledCancelCommand `cmd:"" help:"Cancel scheduled events."`
}

func (*scheduledCommand) Help() string {
	return `A scheduled event was published with a delay, or for a time. Until then nobody reads it.
Without a command of its own it lists those of a topic.

Examples:

  sluice pub reminders '{"to":"ann"}' --id r-17 --delay 1h
  sluice scheduled reminders
  sluice scheduled cancel reminders r-17 --yes`
}

type scheduledListCommand struct {
	Topic string `arg:"" help:"The topic."`
	Max   int    `help:"How many at the most; 0 is all." default:"100"`
	watchFlag
}

func (*scheduledListCommand) Help() string {
	return `Lists them by the time at which they are put into the log.

Examples:

  sluice scheduled list reminders
  sluice scheduled list reminders -o json --max 0 | jq -r '.scheduled[].id'`
}

// Run prints the list.
func (l *scheduledListCommand) Run(ctx context.Context, app *program.App, c *client, h *admin.HTTP) error {
	list := func(ctx context.Context) (part[admin.ScheduledEvent], error) {
		return first(ctx, c, h, l.Topic, l.Max, func(ctx context.Context, limit int, cursor string) ([]admin.ScheduledEvent, int, string, error) {
			page, err := h.Scheduled(ctx, l.Topic, limit, cursor)
			return page.Scheduled, page.Total, page.Next, err
		})
	}
	return show(ctx, app, c, l.Watch, list, func(s *sheet, list part[admin.ScheduledEvent]) error {
		rows := make([][]string, len(list.elements))
		for i, e := range list.elements {
			rows[i] = []string{visible(e.ID), visible(e.Key), s.time(time.UnixMilli(e.DeliverAt))}
		}
		return list.print(s, []string{"EVENT", "KEY", "DELIVERED"}, nil, rows)
	})
}

type scheduledCancelCommand struct {
	Topic string   `arg:"" help:"The topic."`
	IDs   []string `arg:"" name:"id" help:"The ids of the events."`
	Yes   bool     `short:"y" help:"Do not ask before it is done."`
}

func (*scheduledCancelCommand) Help() string {
	return `Takes the events back, and frees their ids. What is in the log by then is an error.
At a terminal it asks first; elsewhere it needs --yes.

Examples:

  sluice scheduled cancel reminders r-17 --yes`
}

// Run cancels one after the other.
func (s *scheduledCancelCommand) Run(ctx context.Context, app *program.App, c *client, h *admin.HTTP) error {
	if err := asked(ctx, app, s.Yes, "Cancel %d scheduled events of %s?", len(s.IDs), s.Topic); err != nil {
		return err
	}
	for _, id := range s.IDs {
		if err := c.tell(ctx, func(ctx context.Context) error { return h.CancelScheduled(ctx, s.Topic, id) }); err != nil {
			return fmt.Errorf("event %q: %w", id, err)
		}
		if err := printDone(app, c, map[string]string{"cancelled": id}, "%s  cancelled", visible(id)); err != nil {
			return err
		}
	}
	return nil
}

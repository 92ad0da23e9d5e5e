package main

import (
	"bufio"
	"context"
	"slices"

	"github.com/sluice-bus/sluice/internal/program"
	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/admin"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
)

type replayCommand struct {
	Topic   string `arg:"" help:"The topic."`
	From    string `enum:"earliest,ts,afterId" default:"earliest" help:"Where to start: earliest, ts or afterId."`
	TS      *int64 `name:"ts" placeholder:"MS" help:"With --from ts: milliseconds since the epoch, inclusive."`
	AfterID string `placeholder:"ID" help:"With --from afterId: the event to start after."`
	Max     int    `default:"1000" help:"Print that many events at most; 0 prints all."`
	Order   string `enum:"asc,desc" default:"asc" help:"By time: asc or desc."`
	Key     string `help:"Only events with this key."`
	fleetFlags
}

func (*replayCommand) Help() string {
	return `Prints events that were published before, ordered by time, one on each line.

Examples:

  sluice replay orders --max 10
  sluice replay orders --from ts --ts 1723140000000 --key customer-3
  sluice replay orders --max 0 --json | wc -l
  sluice replay orders --fleet --partial`
}

// replayPage is the most events that are asked for at a time.
const replayPage = 1000

// Run asks for page after page.
func (r *replayCommand) Run(ctx context.Context, app *program.App, c *client, h *admin.HTTP) error {
	if err := codec.CheckFrom(r.From, r.TS, r.AfterID); err != nil {
		return program.Usagef("%s (--ts, --after-id)", err.Msg)
	}
	scope, err := r.scope()
	if err != nil {
		return err
	}
	query := sluice.ReplayQuery{
		Topic: r.Topic, From: r.From, TS: r.TS, AfterID: r.AfterID, Order: r.Order, Key: r.Key, Scope: scope, Partial: r.Partial,
	}
	out := bufio.NewWriter(app.Stdout)
	printer := eventPrinter{asJSON: c.JSON}
	var line []byte
	var missing []string
	defer func() { sayMissing(app.Stderr, missing) }()
	for printed := 0; ; {
		query.Limit = replayPage
		if r.Max > 0 {
			query.Limit = min(replayPage, r.Max-printed)
		}
		page, err := ask(ctx, c, func(ctx context.Context) (admin.ReplayPage, error) { return h.Replay(ctx, query) })
		if err != nil {
			return r.explain(app.Stderr, err)
		}
		for _, name := range page.Missing {
			if !slices.Contains(missing, name) {
				missing = append(missing, name)
			}
		}
		for i := range page.Events {
			line = printer.append(line[:0], &page.Events[i], 1)
			_, _ = out.Write(line) // Flush has the error
		}
		if err := out.Flush(); err != nil {
			return err
		}
		printed += len(page.Events)
		if page.Next == "" || r.Max > 0 && printed >= r.Max {
			return nil
		}
		query.Cursor = page.Next
	}
}

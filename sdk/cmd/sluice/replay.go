package main

import (
	"bufio"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-bus/sluice/internal/program"
	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/admin"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
)

type replayCommand struct {
	Topic   string   `arg:"" help:"The topic."`
	From    string   `default:"earliest" placeholder:"WHEN" help:"Where to start: earliest, a time (2026-11-27T10:00, or 1h for an hour ago), or afterId."`
	AfterID string   `placeholder:"ID" help:"With --from afterId: the event to start after."`
	Until   *moment  `placeholder:"TIME" help:"Only events of this time or earlier."`
	Max     int      `default:"0" help:"Print that many events at most; 0 prints all."`
	Order   string   `enum:"asc,desc" default:"asc" help:"By time: asc or desc."`
	Key     selector `help:"Only events with this key."`
	fleetFlags
}

func (*replayCommand) Help() string {
	return `Prints events that were published before, ordered by time, one on each line.

Examples:

  sluice replay orders --max 10
  sluice replay orders --from 1h --until 15m
  sluice replay orders --from 2026-11-27T10:00 --key customer-3
  sluice replay orders -o json | wc -l
  sluice replay orders --from afterId --after-id order-17
  sluice replay orders --fleet --partial`
}

// replayPage is the most events that are asked for at a time.
const replayPage = 1000

// Run asks for page after page.
func (r *replayCommand) Run(ctx context.Context, app *program.App, c *client, h *admin.HTTP) error {
	from, ts, err := r.start()
	if err != nil {
		return err
	}
	scope, err := r.scope()
	if err != nil {
		return err
	}
	query := sluice.ReplayQuery{
		Topic: r.Topic, From: from, TS: ts, AfterID: r.AfterID, Order: r.Order, Key: string(r.Key), Scope: scope, Partial: r.Partial,
	}
	out := bufio.NewWriter(app.Stdout)
	var line []byte
	var missing []string
	defer func() { sayMissing(app.Stderr, missing) }()
	printed, last := 0, ""
	for {
		query.Limit = replayPage
		if r.Max > 0 {
			query.Limit = min(replayPage, r.Max-printed)
		}
		page, err := ask(ctx, c, func(ctx context.Context) (admin.ReplayPage, error) { return h.Replay(ctx, query) })
		if err != nil {
			r.stopped(app, printed, last)
			return r.explain(app.Stderr, err)
		}
		for _, name := range page.Missing {
			if !slices.Contains(missing, name) {
				missing = append(missing, name)
			}
		}
		past := false
		for i := range page.Events {
			event := &page.Events[i]
			if r.Until != nil && event.TS > r.Until.ms {
				past = r.Order == "asc"
				continue
			}
			line = c.Output.append(line[:0], event, 1)
			_, _ = out.Write(line) // Flush has the error
			printed, last = printed+1, event.ID
		}
		if err := out.Flush(); err != nil {
			return err
		}
		switch {
		case past || page.Next == "":
			return r.ended(ctx, h, printed, missing)
		case r.Max > 0 && printed >= r.Max:
			r.stopped(app, printed, last)
			return nil
		}
		query.Cursor = page.Next
	}
}

// stopped says how to go on behind the last event that was printed.
func (r *replayCommand) stopped(app *program.App, printed int, last string) {
	if printed > 0 {
		fmt.Fprintf(app.Stderr, "stopped after %d events, and there are more: --from afterId --after-id %s\n", printed, visible(last))
	}
}

// start is where the replay starts.
func (r *replayCommand) start() (from string, ts *int64, err error) {
	at := wire.SubscribeOptions{From: r.From, AfterID: r.AfterID}
	if ms, ok := parseMoment(r.From, time.Now()); ok {
		at.From, at.TS = wire.FromTS, &ms
	}
	if codec.CheckFrom(&at) != nil {
		return "", nil, program.Usagef("--from %s: write earliest, or afterId with --after-id, or a time: %s", r.From, momentForms)
	}
	return at.From, at.TS, nil
}

// ended is the outcome of a replay that came to its end: one that printed nothing may be of a topic that does not exist.
func (r *replayCommand) ended(ctx context.Context, h *admin.HTTP, printed int, missing []string) error {
	if len(missing) > 0 {
		return errMissing
	}
	if printed > 0 || r.Fleet || r.Scope == "fleet" {
		return nil
	}
	return exists(ctx, h, r.Topic)
}

package main

import (
	"context"
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"github.com/sluice-bus/sluice/internal/program"
	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/admin"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// eventsCommand is the commands about the events of a topic.
type eventsCommand struct {
	List   eventsListCommand   `cmd:"" default:"withargs" help:"Print the last events of a topic, and follow it."`
	Delete eventsDeleteCommand `cmd:"" asks:"app store" help:"Erase an event, or all events of a key, for good."`
}

func (*eventsCommand) Help() string {
	return `Without a command of its own it prints the last events of a topic.

Examples:

  sluice events orders
  sluice events orders --follow --header tenant=acme
  sluice events delete orders --key customer-3 --yes`
}

type eventsListCommand struct {
	Topic  string         `arg:"" help:"The topic."`
	Last   int            `short:"n" default:"20" help:"How many of the last events to print."`
	Follow bool           `short:"f" help:"Go on with new events as they come."`
	Key    selector       `help:"Only events with this key."`
	Tag    selector       `help:"Only events with this tag."`
	Header []string       `placeholder:"NAME=VALUE" sep:"none" help:"Only events with this header; may be repeated."`
	Grep   *regexp.Regexp `placeholder:"REGEXP" help:"Only events whose payload matches this."`
}

func (*eventsListCommand) Help() string {
	return `Prints the last events of a topic, the oldest first, and takes part in no consumer
group: nothing is acked, and no consumer misses an event.

Examples:

  sluice events list orders
  sluice events orders -n 100 --key customer-3 --grep '"total": *[0-9]{4}'
  sluice events orders --follow --header tenant=acme -o json | jq .payload`
}

// Run prints the events.
func (e *eventsListCommand) Run(ctx context.Context, app *program.App, c *client, h *admin.HTTP) error {
	for _, header := range e.Header {
		if name, _, ok := strings.Cut(header, "="); !ok || name == "" {
			return program.Usagef("--header %q: write NAME=VALUE", header)
		}
	}
	info, err := ask(ctx, c, func(ctx context.Context) (admin.TopicInfo, error) { return h.Topic(ctx, e.Topic) })
	if err != nil {
		return nearestTopic(ctx, h, e.Topic, err)
	}
	last, err := e.last(ctx, c, h)
	if err != nil {
		return err
	}
	shown := map[[2]uint64]bool{} // partitions and seqs, of those that may come again
	for i := range last {
		if _, err := app.Stdout.Write(c.Output.append(nil, &last[i], 1)); err != nil {
			return err
		}
		shown[place(&last[i])] = true
	}
	if !e.Follow {
		return nil
	}
	heads := map[int]uint64{}
	for _, p := range info.Partitions {
		heads[p.Partition] = p.Head
	}
	positions, err := json.Marshal(heads)
	if err != nil {
		return err
	}
	follow := subCommand{Topic: e.Topic, From: wire.FromPositions, Positions: string(positions), Ack: "auto"}
	follow.keep = func(event *wire.Event) bool { return !shown[place(event)] && e.matches(event) }
	return follow.Run(ctx, app, c)
}

func place(e *wire.Event) [2]uint64 { return [2]uint64{uint64(e.Partition), e.Seq} }

// last finds the last events that match, the oldest first.
func (e *eventsListCommand) last(ctx context.Context, c *client, h *admin.HTTP) (found []wire.Event, err error) {
	query := sluice.ReplayQuery{Topic: e.Topic, From: wire.FromEarliest, Order: "desc", Key: string(e.Key), Limit: min(replayPage,
		max(e.Last, 1))}
	for len(found) < e.Last {
		page, err := ask(ctx, c, func(ctx context.Context) (admin.ReplayPage, error) { return h.Replay(ctx, query) })
		if err != nil {
			return nil, err
		}
		for i := range page.Events {
			if e.matches(&page.Events[i]) && len(found) < e.Last {
				found = append(found, page.Events[i])
			}
		}
		if page.Next == "" {
			break
		}
		query.Cursor, query.Limit = page.Next, replayPage
	}
	slices.Reverse(found)
	return found, nil
}

func (e *eventsListCommand) matches(event *wire.Event) bool {
	for _, header := range e.Header {
		name, value, _ := strings.Cut(header, "=")
		if has, ok := event.Headers.Get(name); !ok || has != value {
			return false
		}
	}
	ofKey := e.Key == "" || event.Key == string(e.Key)
	tagged := e.Tag == "" || slices.Contains(event.Tags, string(e.Tag))
	return ofKey && tagged && (e.Grep == nil || e.Grep.Match(event.Payload))
}

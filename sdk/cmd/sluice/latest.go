package main

import (
	"bufio"
	"context"
	"fmt"

	"github.com/sluice-bus/sluice/internal/program"
	"github.com/sluice-bus/sluice/sdk/admin"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
)

type latestCommand struct {
	Topic  string   `arg:"" help:"The topic."`
	Key    []string `sep:"none" help:"Only the event of this key; may be repeated."`
	Prefix string   `help:"Only events whose keys begin with this."`
}

func (*latestCommand) Help() string {
	return `Prints the latest event of each key, one on each line, and then the positions up to
which they are the latest: sluice sub goes on right there, without a gap. Keys whose
latest event has the payload null are deleted, and left out.

Examples:

  sluice latest customers
  sluice latest customers --key customer-17 --prefix eu-
  sluice latest customers -o json | tail -n 1
  sluice sub customers --from positions --positions '{"0":977,"1":1042}'`
}

// Run prints the events.
func (l *latestCommand) Run(ctx context.Context, app *program.App, c *client, h *admin.HTTP) error {
	out := bufio.NewWriter(app.Stdout)
	var line []byte
	positions, err := h.Latest(ctx, admin.LatestQuery{Topic: l.Topic, Keys: l.Key, Prefix: l.Prefix}, func(e wire.Event) error {
		line = c.Output.append(line[:0], &e, 1)
		_, err := out.Write(line)
		return err
	})
	if err == nil {
		text := codec.AppendPositions(nil, positions)
		if c.Output.isDocument() {
			err = c.Output.writeText(out, fmt.Appendf(nil, `{"positions":%s}`, text))
		} else {
			fmt.Fprintf(out, "positions %s\n", text) // Flush has the error
		}
	}
	if flushed := out.Flush(); err == nil {
		err = flushed
	}
	return err
}

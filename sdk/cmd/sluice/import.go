package main

import (
	"context"
	"io"
	"os"

	"github.com/sluice-bus/sluice/internal/program"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
)

type importCommand struct {
	File  string `arg:"" help:"The file, as sluice export writes it; - is standard input."`
	Topic string `placeholder:"TOPIC" help:"Publish to this topic, in place of the one that each event came from."`
}

func (*importCommand) Help() string {
	return `Publishes the events of an export with their ids, times, keys, headers and tags.
Partition and seq are the topic's own. After an interruption, run it again: an
event that is there already is not published twice.

Examples:

  sluice import orders.ndjson
  sluice import orders.ndjson --topic orders.copy
  zcat orders.ndjson.gz | sluice import -`
}

// Run publishes.
func (i *importCommand) Run(ctx context.Context, app *program.App, c *client) error {
	in := io.NopCloser(app.Stdin)
	if i.File != "-" {
		file, err := os.Open(i.File)
		if err != nil {
			return err
		}
		defer file.Close()
		in = file
	}
	return publishLines(ctx, app, c, in, func(line []byte) (wire.Event, error) {
		e, err := codec.ParseEvent(line)
		if err != nil {
			return e, err
		}
		if i.Topic != "" {
			e.Topic = i.Topic
		}
		e.Partition, e.Seq, e.Spooled = 0, 0, false
		return e, nil
	}, nil)
}

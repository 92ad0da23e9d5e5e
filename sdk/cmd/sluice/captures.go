package main

import (
	"context"

	"github.com/sluice-bus/sluice/internal/program"
	"github.com/sluice-bus/sluice/sdk/admin"
)

// capturesCommand is the commands about captured collections.
type capturesCommand struct {
	Reread capturesRereadCommand `cmd:"" help:"Publish all documents of a captured collection once more."`
}

func (*capturesCommand) Help() string {
	return `A sidecar with --capture publishes the changes of a collection of MongoDB.

Examples:

  sluice captures reread shop.orders`
}

type capturesRereadCommand struct {
	Topic string `arg:"" help:"The topic that the collection is captured to."`
}

func (*capturesRereadCommand) Help() string {
	return `Consumers get each document again, as an event of its own. Needs the right admin.

Examples:

  sluice captures reread shop.orders`
}

// Run asks for it.
func (r *capturesRereadCommand) Run(ctx context.Context, app *program.App, c *client, h *admin.HTTP) error {
	if err := c.tell(ctx, func(ctx context.Context) error { return h.RereadCapture(ctx, r.Topic) }); err != nil {
		return err
	}
	return printDone(app, c, map[string]string{"reread": r.Topic}, "all documents of the collection behind %s will be published once more",
		r.Topic)
}

package main

import (
	"context"
	"fmt"

	"github.com/sluice-bus/sluice/internal/program"
	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/admin"
)

type eventsDeleteCommand struct {
	Topic string   `arg:"" help:"The topic."`
	ID    selector `arg:"" optional:"" name:"id" help:"The event's id; or give --key."`
	Key   selector `help:"All events with this key."`
	Yes   bool     `short:"y" help:"Do not ask before it is done."`
}

func (*eventsDeleteCommand) Help() string {
	return `Erases an event, or all events of a key, with their dead letters, in the store and
in spools. They are gone for good, and no group gets them any more. If it is
interrupted, repeat it to erase the rest. Needs the right admin. At a terminal it
asks first; elsewhere it needs --yes.

Examples:

  sluice events delete orders order-17 --yes
  sluice events delete orders --key customer-3 --yes`
}

// Run erases.
func (d *eventsDeleteCommand) Run(ctx context.Context, app *program.App, c *client, h *admin.HTTP) error {
	if (d.ID == "") == (d.Key == "") {
		return program.Usagef("give the id of an event or --key, one of them")
	}
	what := fmt.Sprintf("the event %s of %s", visible(string(d.ID)), d.Topic)
	if d.Key != "" {
		what = fmt.Sprintf("all events of %s with the key %s", d.Topic, visible(string(d.Key)))
	}
	if !d.Yes && interactive(app) {
		n, err := d.count(ctx, c, h)
		if err != nil {
			return err
		}
		what += n
	}
	if err := asked(ctx, app, d.Yes, "Erase %s for good?", what); err != nil {
		return err
	}
	erase, by := h.DeleteEvent, d.ID
	if d.Key != "" {
		erase, by = h.DeleteKey, d.Key
	}
	n, err := erase(ctx, d.Topic, string(by))
	if err != nil {
		return err
	}
	return printDone(app, c, map[string]int{"erased": n}, "%d erased, dead letters included", n)
}

// count says how many events of a key the store has.
func (d *eventsDeleteCommand) count(ctx context.Context, c *client, h *admin.HTTP) (string, error) {
	if d.Key == "" {
		return "", nil
	}
	query := sluice.ReplayQuery{Topic: d.Topic, Key: string(d.Key), Limit: maxPage}
	page, err := ask(ctx, c, func(ctx context.Context) (admin.ReplayPage, error) { return h.Replay(ctx, query) })
	more := ""
	if page.Next != "" {
		more = " or more"
	}
	return fmt.Sprintf(", %d%s,", len(page.Events), more), err
}

package main

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/sluice-bus/sluice/internal/program"
	"github.com/sluice-bus/sluice/internal/terminal"
	"github.com/sluice-bus/sluice/sdk/admin"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
)

// dlqCommand is the commands about dead letters.
type dlqCommand struct {
	List    dlqListCommand    `cmd:"" default:"withargs" help:"List the dead letters of a topic."`
	Show    dlqShowCommand    `cmd:"" help:"Show one dead letter, with its event."`
	Redrive dlqRedriveCommand `cmd:"" help:"Deliver dead letters again to the group that failed to process them."`
	Discard dlqDiscardCommand `cmd:"" help:"Remove dead letters."`
}

func (*dlqCommand) Help() string {
	return `A dead letter is an event that a group could not process: it was delivered as
often as it may be, or its consumer sent it there. Without a command of its own it lists
those of a topic.

Examples:

  sluice dlq orders --group billing
  sluice dlq show orders dlq-5f0c…
  sluice dlq redrive orders --group billing --reason "no stock" --dry-run
  sluice dlq redrive orders --group billing --rate 50
  sluice dlq discard orders dlq-5f0c…`
}

type dlqListCommand struct {
	Topic  string   `arg:"" help:"The topic that they died in."`
	Group  selector `help:"Only dead letters of this group."`
	Reason selector `help:"Only dead letters with exactly this reason."`
	Max    int      `help:"How many at the most; 0 is all." default:"100"`
	Oldest bool     `help:"The oldest first."`
	watchFlag
}

func (*dlqListCommand) Help() string {
	return `STATE is dead, or redriven while it is delivered again and not acked yet.

Examples:

  sluice dlq list orders
  sluice dlq list orders -o json --max 0 | jq -r '.dead_letters[].reason' | sort | uniq -c`
}

// Run prints the list.
func (l *dlqListCommand) Run(ctx context.Context, app *program.App, c *client, h *admin.HTTP) error {
	query := admin.DeadLetterQuery{Group: string(l.Group), Reason: string(l.Reason), Ascending: l.Oldest}
	page := func(ctx context.Context, limit int, cursor string) ([]admin.ListedDeadLetter, int, string, error) {
		query.Limit, query.Cursor = limit, cursor
		page, err := h.DeadLetters(ctx, l.Topic, query)
		return page.DeadLetters, page.Total, page.Next, err
	}
	list := func(ctx context.Context) (part[admin.ListedDeadLetter], error) {
		return first(ctx, c, h, l.Topic, l.Max, page)
	}
	return show(ctx, app, c, l.Watch, list, func(s *sheet, list part[admin.ListedDeadLetter]) error {
		rows := make([][]string, len(list.elements))
		for i, d := range list.elements {
			rows[i] = []string{d.DLQID, visible(d.ID), visible(d.Group), fmt.Sprint(d.Attempts), d.State,
				s.time(time.UnixMilli(d.DiedAt)), visible(d.Reason)}
		}
		return list.print(s, []string{"DLQ ID", "EVENT", "GROUP", "ATTEMPTS", "STATE", "DIED", "REASON"}, nil, rows)
	})
}

type dlqShowCommand struct {
	Topic string `arg:"" help:"The topic that it died in."`
	ID    string `arg:"" name:"dlq-id" help:"Its id, as sluice dlq list shows it."`
}

func (*dlqShowCommand) Help() string {
	return `Examples:

  sluice dlq show orders dlq-5f0c…
  sluice dlq show orders dlq-5f0c… -o json | jq .event.payload`
}

// Run prints the dead letter.
func (s *dlqShowCommand) Run(ctx context.Context, app *program.App, c *client, h *admin.HTTP) error {
	for d, err := range allDead(ctx, c, h, s.Topic, admin.DeadLetterQuery{Limit: maxPage}) {
		if err != nil {
			return err
		}
		if d.DLQID != s.ID {
			continue
		}
		if c.Output.isDocument() {
			return c.Output.write(app.Stdout, d)
		}
		if _, err := fmt.Fprintf(app.Stdout, "%s: %s, of group %s after %d attempts at %s\nreason: %s\n\n",
			d.DLQID, d.State, visible(d.Group), d.Attempts, milliseconds(d.DiedAt), visible(d.Reason)); err != nil {
			return err
		}
		e, err := codec.ParseEvent(d.Event)
		if err == nil {
			_, err = app.Stdout.Write(c.Output.append(nil, &e, 0))
		}
		return err
	}
	return wire.Errorf(wire.NotFound, "topic %s has no dead letter %s: it may be acked or discarded, or removed by retention", s.Topic, s.ID)
}

// allDead yields the dead letters that the query asks for, page by page.
func allDead(ctx context.Context, c *client, h *admin.HTTP, topic string,
	q admin.DeadLetterQuery) iter.Seq2[admin.ListedDeadLetter, error] {
	return func(yield func(admin.ListedDeadLetter, error) bool) {
		for {
			page, err := ask(ctx, c, func(ctx context.Context) (admin.DeadLetterPage, error) { return h.DeadLetters(ctx, topic, q) })
			if err != nil {
				yield(admin.ListedDeadLetter{}, err)
				return
			}
			for _, d := range page.DeadLetters {
				if !yield(d, nil) {
					return
				}
			}
			if q.Cursor = page.Next; q.Cursor == "" {
				return
			}
		}
	}
}

// dlqSelection is which dead letters a command is about.
type dlqSelection struct {
	Topic  string   `arg:"" help:"The topic that they died in."`
	IDs    []string `arg:"" optional:"" name:"dlq-id" help:"Their ids, as sluice dlq list shows them; or give --group."`
	Group  selector `help:"All of this group."`
	Reason selector `help:"With --group: only dead letters with exactly this reason."`
	Before *moment  `placeholder:"TIME" help:"With --group: only dead letters from before this time: 2026-11-27T10:00, or 2h for two hours ago."`
	DryRun bool     `help:"Only say how many it would be."`
}

func (s *dlqSelection) read() (sel admin.DeadLetterSelection, err error) {
	if (len(s.IDs) > 0) == (s.Group != "") {
		return sel, program.Usagef("give dlq-ids or --group, one of them")
	}
	if s.Group == "" && (s.Reason != "" || s.Before != nil) {
		return sel, program.Usagef("--reason and --before go with --group")
	}
	sel = admin.DeadLetterSelection{DLQIDs: s.IDs, Group: string(s.Group), Reason: string(s.Reason)}
	if s.Before != nil {
		sel.Before = s.Before.ms
	}
	return sel, nil
}

// changeDead is a method of admin.HTTP.
type changeDead func(ctx context.Context, topic string, s admin.DeadLetterSelection, progress func(done, of int)) (int, error)

// run changes the selected dead letters, and says how many they were; done is what happened to
// them.
func (s *dlqSelection) run(ctx context.Context, app *program.App, c *client, h *admin.HTTP, done string, states []string, rate float64,
	change changeDead) error {
	sel, err := s.read()
	if err != nil {
		return err
	}
	sel.Rate = rate
	var n int
	if s.DryRun {
		n, err = s.count(ctx, c, h, sel, states)
		done = "would be " + done
	} else {
		progress, told := terminal.NewProgress(app.Stderr, done, 0), 0
		n, err = change(ctx, s.Topic, sel, func(done, of int) {
			progress.Add(int64(done - told))
			told = done
		})
		progress.Finish()
	}
	if err != nil {
		return err
	}
	return printDone(app, c, map[string]any{"of": n, "dry_run": s.DryRun}, "%d %s", n, done)
}

// count counts the selected dead letters in one of the states.
func (s *dlqSelection) count(ctx context.Context, c *client, h *admin.HTTP, sel admin.DeadLetterSelection,
	states []string) (n int, err error) {
	for d, err := range allDead(ctx, c, h, s.Topic, admin.DeadLetterQuery{Group: sel.Group, Reason: sel.Reason, Limit: maxPage}) {
		if err != nil {
			return 0, err
		}
		if slices.Contains(states, d.State) && (len(sel.DLQIDs) == 0 || slices.Contains(sel.DLQIDs, d.DLQID)) &&
			(sel.Before == 0 || d.DiedAt < sel.Before) {
			n++
		}
	}
	return n, nil
}

type dlqRedriveCommand struct {
	dlqSelection
	Rate float64 `help:"How many a second." default:"100"`
}

func (*dlqRedriveCommand) Help() string {
	return `Redriven events go to the group that failed them and to no other. They are in
the list until they are acked. If it is interrupted, repeat the command to do the rest.

Examples:

  sluice dlq redrive orders --group billing --dry-run
  sluice dlq redrive orders dlq-5f0c… dlq-77ab…`
}

// Run redrives.
func (r *dlqRedriveCommand) Run(ctx context.Context, app *program.App, c *client, h *admin.HTTP) error {
	return r.run(ctx, app, c, h, "redriven", []string{admin.StateDead}, r.Rate, h.Redrive)
}

type dlqDiscardCommand struct {
	dlqSelection
	Yes bool `short:"y" help:"Do not ask before it is done."`
}

func (*dlqDiscardCommand) Help() string {
	return `What is discarded is gone for good. At a terminal it asks first; elsewhere it
needs --yes.

Examples:

  sluice dlq discard orders --group billing --before 2d --dry-run
  sluice dlq discard orders dlq-5f0c… --yes`
}

// Run discards.
func (d *dlqDiscardCommand) Run(ctx context.Context, app *program.App, c *client, h *admin.HTTP) error {
	if !d.DryRun && !d.Yes {
		sel, err := d.read()
		if err != nil {
			return err
		}
		n := 0
		if interactive(app) {
			if n, err = d.count(ctx, c, h, sel, []string{admin.StateDead, admin.StateRedriven}); err != nil {
				return err
			}
		}
		if err := asked(ctx, app, false, "Discard %d dead letters of %s for good?", n, d.Topic); err != nil {
			return err
		}
	}
	return d.run(ctx, app, c, h, "discarded", []string{admin.StateDead, admin.StateRedriven}, 0, h.Discard)
}

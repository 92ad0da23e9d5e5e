package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-bus/sluice/internal/program"
	"github.com/sluice-bus/sluice/sdk/admin"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// change is the flags of a command that cannot be undone.
type change struct {
	DryRun bool `name:"dry-run" help:"Show the effect, and change nothing."`
	Yes    bool `short:"y" help:"Do not ask before it is done."`
}

// selector is the value of a flag that narrows what a command is about. One that is given and empty, as by a script whose
// variable is not set, would widen it to all, and is refused.
type selector string

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *selector) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		return errors.New("must not be empty: leave the flag out for all")
	}
	*s = selector(text)
	return nil
}

// may shows the change, and reports whether to make it: it asks at a terminal, and elsewhere
// requires --yes.
func (x change) may(ctx context.Context, app *program.App, c *client, plan any, show func(*sheet) error, question string) (bool, error) {
	switch {
	case c.Output.isDocument() && x.DryRun:
		return false, c.Output.write(app.Stdout, plan)
	case x.DryRun:
		return false, show(newSheet(app.Stdout, app.Stdout, c.Output))
	case x.Yes:
		return true, nil
	case !interactive(app):
		return false, errUnasked
	}
	if err := show(newSheet(app.Stderr, app.Stderr, c.Output)); err != nil {
		return false, err
	}
	return true, asked(ctx, app, false, "%s", question)
}

// errUnasked refuses a change where nobody can be asked.
var errUnasked = program.Usagef("this cannot be taken back, and there is no terminal to ask at: do it with --yes")

// asked asks a question at the terminal, unless yes was said before; any other answer is an error.
func asked(ctx context.Context, app *program.App, yes bool, question string, args ...any) error {
	switch {
	case yes:
		return nil
	case !interactive(app):
		return errUnasked
	}
	yes, err := confirm(ctx, app.Stdin, app.Stderr, fmt.Sprintf(question, args...)+" [y/N] ")
	if err == nil && !yes {
		err = errors.New("nothing was done")
	}
	return err
}

type topicsCreateCommand struct {
	Topic string `arg:"" help:"The topic."`
}

func (*topicsCreateCommand) Help() string {
	return `Makes a topic with as many partitions as its policy says. One that is there stays
as it is.

Examples:

  sluice topics create orders.created`
}

// Run makes the topic.
func (t *topicsCreateCommand) Run(ctx context.Context, app *program.App, c *client, h *admin.HTTP) error {
	made, err := ask(ctx, c, func(ctx context.Context) (bool, error) { return h.MakeTopic(ctx, t.Topic) })
	if err != nil {
		return err
	}
	what := "was there"
	if made {
		what = "is made"
	}
	return printDone(app, c, map[string]any{"topic": t.Topic, "made": made}, "%s %s", t.Topic, what)
}

type topicsDeleteCommand struct {
	Topic string `arg:"" help:"The topic."`
	change
}

func (*topicsDeleteCommand) Help() string {
	return `Deletes a topic, with its events, groups, marks and dead letters. It is refused
while a client is subscribed. Run it again to continue an interrupted deletion.

Examples:

  sluice topics delete orders.created --dry-run
  sluice topics delete orders.created --yes`
}

// Run deletes the topic.
func (t *topicsDeleteCommand) Run(ctx context.Context, app *program.App, c *client, h *admin.HTTP) error {
	var plan admin.TopicDeletion
	if !t.Yes || t.DryRun { // the rest of a topic whose deletion was interrupted cannot be shown
		var err error
		plan, err = ask(ctx, c, func(ctx context.Context) (admin.TopicDeletion, error) { return h.PlanTopicDeletion(ctx, t.Topic) })
		if err != nil {
			return err
		}
	}
	show := func(s *sheet) error {
		_, err := fmt.Fprintf(s, "%s: %d events (%d bytes), %d scheduled, %d dead letters, groups: %s\n",
			t.Topic, plan.Events, plan.Bytes, plan.Scheduled, plan.DeadLetters, orNone(plan.Groups))
		return err
	}
	if yes, err := t.may(ctx, app, c, plan, show, "Delete all of this?"); err != nil || !yes {
		return err
	}
	if err := c.tell(ctx, func(ctx context.Context) error { return h.DeleteTopic(ctx, t.Topic) }); err != nil {
		return err
	}
	return printDone(app, c, map[string]any{"topic": t.Topic, "deleted": true}, "%s is deleted", t.Topic)
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

type groupsDeleteCommand struct {
	Topic string `arg:"" help:"The topic."`
	Group string `arg:"" help:"The group."`
	change
}

func (*groupsDeleteCommand) Help() string {
	return `Deletes a group and its progress. It is refused while the group has members. A later
subscriber begins where it asks to.

Examples:

  sluice groups delete orders billing --dry-run
  sluice groups delete orders billing --yes`
}

// Run deletes the group.
func (g *groupsDeleteCommand) Run(ctx context.Context, app *program.App, c *client, h *admin.HTTP) error {
	info, err := ask(ctx, c, func(ctx context.Context) (admin.GroupInfo, error) { return h.GroupInfo(ctx, g.Topic, g.Group) })
	if err != nil {
		return err
	}
	if yes, err := g.may(ctx, app, c, info, func(s *sheet) error { return printGroup(s, &info) },
		"Delete this group?"); err != nil || !yes {
		return err
	}
	if err := c.tell(ctx, func(ctx context.Context) error { return h.DeleteGroup(ctx, g.Topic, g.Group) }); err != nil {
		return err
	}
	return printDone(app, c, map[string]any{"topic": g.Topic, "group": g.Group, "deleted": true}, "%s of %s is deleted", g.Group, g.Topic)
}

type groupsSeekCommand struct {
	Topic    string   `arg:"" help:"The topic."`
	Group    string   `arg:"" help:"The group."`
	To       string   `placeholder:"WHERE" help:"Where it goes on: latest, earliest, a time (2026-11-27T10:00, or 1h for an hour ago), or behind the event with that id."`
	From     string   `enum:",latest,earliest,ts,afterId,positions" default:"" help:"Where it goes on: latest, earliest, ts, afterId or positions."`
	TS       int64    `name:"ts" default:"-1" placeholder:"MS" help:"With --from ts: milliseconds since the epoch."`
	AfterID  string   `name:"after-id" placeholder:"ID" help:"With --from afterId: the event that it goes on after."`
	Position []string `placeholder:"PARTITION=SEQ" help:"With --from positions, once for each partition that is to move: the seq to go on after."`
	change
}

func (*groupsSeekCommand) Help() string {
	return `Shows what moving a group replays and skips, and moves it to where --to or --from
says. Members may stay connected: what they have in flight becomes stale.

Examples:

  sluice groups seek orders billing --to earliest --dry-run
  sluice groups seek orders billing --to 1h
  sluice groups seek orders billing --to 01912ab8-6ccd-7c3e-a1b2-0242ac120002
  sluice groups seek orders billing --from positions --position 0=1042 --yes`
}

// Run moves the group.
func (g *groupsSeekCommand) Run(ctx context.Context, app *program.App, c *client, h *admin.HTTP) error {
	to, err := g.position()
	if err != nil {
		return err
	}
	plan, err := ask(ctx, c, func(ctx context.Context) (admin.SeekPlan, error) { return h.PlanSeek(ctx, g.Topic, g.Group, to) })
	if err != nil {
		return err
	}
	if yes, err := g.may(ctx, app, c, plan, func(s *sheet) error { return printSeek(s, plan) }, "Move the group?"); err != nil || !yes {
		return err
	}
	if err := c.tell(ctx, func(ctx context.Context) error { return h.SeekGroup(ctx, g.Topic, g.Group, to) }); err != nil {
		return err
	}
	return printDone(app, c, plan, "%s of %s is moved: %d events are replayed, %d skipped", g.Group, g.Topic, plan.Replays, plan.Skips)
}

func (g *groupsSeekCommand) position() (to admin.Position, err error) {
	to.From = g.From
	switch {
	case (g.From == "") == (g.To == ""):
		return to, program.Usagef("give --to or --from, one of them: where the group goes on")
	case (g.From == wire.FromTS) != (g.TS >= 0):
		return to, program.Usagef("--ts goes with --from ts")
	case (g.From == wire.FromAfterID) != (g.AfterID != ""):
		return to, program.Usagef("--after-id goes with --from afterId")
	case (g.From == wire.FromPositions) != (len(g.Position) > 0):
		return to, program.Usagef("--position goes with --from positions")
	}
	if g.To != "" {
		return where(g.To), nil
	}
	if g.TS >= 0 {
		to.TS = &g.TS
	}
	to.AfterID = g.AfterID
	for _, text := range g.Position {
		partition, seq, _ := strings.Cut(text, "=")
		p, bad := strconv.Atoi(partition)
		n, wrong := strconv.ParseUint(seq, 10, 63)
		if bad != nil || wrong != nil || p < 0 {
			return to, program.Usagef("--position %q: write PARTITION=SEQ, such as 0=1042", text)
		}
		if to.Positions == nil {
			to.Positions = map[int]uint64{}
		}
		to.Positions[p] = n
	}
	return to, nil
}

// where reads --to. An id that looks like something else needs --from.
func where(text string) (to admin.Position) {
	if text == wire.FromLatest || text == wire.FromEarliest {
		return admin.Position{From: text}
	}
	if ms, ok := parseMoment(text, time.Now()); ok {
		return admin.Position{From: wire.FromTS, TS: &ms}
	}
	return admin.Position{From: wire.FromAfterID, AfterID: text}
}

func printSeek(s *sheet, plan admin.SeekPlan) error {
	if _, err := fmt.Fprintf(s, "%d events are replayed, %d skipped\n\n", plan.Replays, plan.Skips); err != nil {
		return err
	}
	rows := make([][]string, len(plan.Partitions))
	for i, p := range plan.Partitions {
		rows[i] = []string{fmt.Sprint(p.Partition), fmt.Sprint(p.From), fmt.Sprint(p.To)}
	}
	return s.table([]string{"PARTITION", "FROM", "TO"}, nil, rows)
}

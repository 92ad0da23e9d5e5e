package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/sluice-bus/sluice/internal/program"
	"github.com/sluice-bus/sluice/sdk/admin"
)

type groupsCommand struct {
	List   groupsListCommand   `cmd:"" default:"withargs" help:"List the groups of a topic, or show one."`
	Show   groupsShowCommand   `cmd:"" help:"Show a group, with its partitions and members."`
	Seek   groupsSeekCommand   `cmd:"" help:"Move a group, and show how many events the move replays or skips."`
	Delete groupsDeleteCommand `cmd:"" help:"Delete a group that has no members."`
}

func (*groupsCommand) Help() string {
	return `Without a command of its own it lists the groups of a topic.

Examples:

  sluice groups orders
  sluice groups show orders billing
  sluice groups seek orders billing --from earliest --dry-run
  sluice groups delete orders billing`
}

type groupsListCommand struct {
	Topic string `arg:"" help:"The topic."`
	Group string `arg:"" optional:"" help:"Only this group, with its partitions and members."`
}

type groupsShowCommand struct {
	Topic string `arg:"" help:"The topic."`
	Group string `arg:"" help:"The group."`
}

func (*groupsShowCommand) Help() string {
	return `Examples:

  sluice groups show orders billing
  sluice groups show orders billing --json | jq .lag`
}

// Run prints the group.
func (g *groupsShowCommand) Run(ctx context.Context, app *program.App, c *client, h *admin.HTTP) error {
	return (&groupsListCommand{g.Topic, g.Group}).Run(ctx, app, c, h)
}

func (*groupsListCommand) Help() string {
	return `LAG counts the events that are not settled, INFLIGHT those of them that are with
a member. BLOCKED BY says why a member is sent nothing right now:

  caught_up      there is nothing to send
  paused         it asked for a pause, or the policy pauses the group
  max_inflight   it or the group has as many unacked events as it may
  rate           a delivery rate is used up
  key_order      earlier events of the same keys are in flight
  backoff        events wait to be delivered again
  no_partition   other members have all partitions
  slow_reader    it does not read its socket

Examples:

  sluice groups list orders
  sluice groups list orders --json`
}

// Run prints the groups.
func (g *groupsListCommand) Run(ctx context.Context, app *program.App, c *client, h *admin.HTTP) error {
	infos, err := ask(ctx, c, func(ctx context.Context) ([]admin.GroupInfo, error) { return g.ask(ctx, h) })
	if err != nil {
		return err
	}
	if g.Group != "" && !c.JSON {
		return printGroup(app.Stdout, &infos[0])
	}
	return printList(app, c, infos, []string{"GROUP", "LAG", "INFLIGHT", "MEMBERS", "BLOCKED BY"}, func(info *admin.GroupInfo) []string {
		return []string{info.Group, fmt.Sprint(info.Lag), fmt.Sprint(info.Inflight), fmt.Sprint(len(info.Members)), reasons(info)}
	})
}

func (g *groupsListCommand) ask(ctx context.Context, h *admin.HTTP) ([]admin.GroupInfo, error) {
	names := []string{g.Group}
	if g.Group == "" {
		var err error
		if names, err = h.Groups(ctx, g.Topic); err != nil {
			return nil, err
		}
	}
	infos := make([]admin.GroupInfo, len(names))
	for i, name := range names {
		var err error
		if infos[i], err = h.GroupInfo(ctx, g.Topic, name); err != nil {
			return nil, err
		}
	}
	return infos, nil
}

func printGroup(w io.Writer, info *admin.GroupInfo) error {
	paused := ""
	if info.Paused {
		paused = ", paused by the policy"
	}
	if _, err := fmt.Fprintf(w, "%s of %s: lag %d, in flight %d%s\n\n", info.Group, info.Topic, info.Lag, info.Inflight, paused); err != nil {
		return err
	}
	partitions := make([][]string, len(info.Partitions))
	for i, p := range info.Partitions {
		partitions[i] = []string{fmt.Sprint(p.Partition), fmt.Sprint(p.Cursor), fmt.Sprint(p.Head), fmt.Sprint(p.Lag), fmt.Sprint(p.Inflight),
			cmp.Or(p.Owner, "-")}
	}
	if err := table(w, []string{"PARTITION", "CURSOR", "HEAD", "LAG", "INFLIGHT", "OWNER"}, partitions); err != nil {
		return err
	}
	if len(info.Members) == 0 {
		_, err := fmt.Fprintln(w, "\nno members")
		return err
	}
	members := make([][]string, len(info.Members))
	for i, m := range info.Members {
		members[i] = []string{m.ID, fmt.Sprintf("%d of %d", m.Inflight, m.MaxInflight), reason(m)}
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	return table(w, []string{"MEMBER", "INFLIGHT", "BLOCKED BY"}, members)
}

func reason(m admin.GroupMember) string {
	if m.BlockedBy == nil {
		return "-"
	}
	return *m.BlockedBy
}

// reasons lists what holds up the group or any of its members.
func reasons(info *admin.GroupInfo) string {
	var all []string
	if info.Paused {
		all = append(all, "paused")
	}
	for _, m := range info.Members {
		if m.BlockedBy != nil {
			all = append(all, *m.BlockedBy)
		}
	}
	if len(all) == 0 {
		return "-"
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), ", ")
}

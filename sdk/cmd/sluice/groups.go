package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-bus/sluice/internal/program"
	"github.com/sluice-bus/sluice/sdk/admin"
)

type groupsCommand struct {
	List   groupsListCommand   `cmd:"" default:"withargs" help:"List the groups of a topic."`
	Show   groupsShowCommand   `cmd:"" help:"Show a group, with its partitions and members."`
	Seek   groupsSeekCommand   `cmd:"" help:"Move a group, and show how many events the move replays or skips."`
	Delete groupsDeleteCommand `cmd:"" help:"Delete a group that has no members."`

	Members groupsMembersCommand `cmd:"" help:"List the members of a group, and why they are sent nothing."`
	Pause   groupsPauseCommand   `cmd:"" asks:"plane" help:"Deliver nothing to a group until it is resumed."`
	Resume  groupsResumeCommand  `cmd:"" asks:"plane" help:"Deliver to a group again."`
	Slow    groupsSlowCommand    `cmd:"" asks:"plane" help:"Limit a group's rate and its events in flight."`
}

func (*groupsCommand) Help() string {
	return `Without a command of its own it lists the groups of a topic.

Examples:

  sluice groups orders
  sluice groups show orders billing
  sluice groups seek orders billing --from earliest --dry-run
  sluice groups delete orders billing --yes`
}

type groupsListCommand struct {
	Topic string `arg:"" help:"The topic."`
	watchFlag
}

type groupsShowCommand struct {
	Topic string `arg:"" help:"The topic."`
	Group string `arg:"" help:"The group."`
	watchFlag
}

func (*groupsShowCommand) Help() string {
	return `Examples:

  sluice groups show orders billing
  sluice groups show orders billing -o json | jq .lag
  sluice groups show orders billing --watch`
}

// Run prints the group.
func (g *groupsShowCommand) Run(ctx context.Context, app *program.App, c *client, h *admin.HTTP) error {
	return g.show(ctx, app, c, h, printGroup)
}

func (g *groupsShowCommand) show(ctx context.Context, app *program.App, c *client, h *admin.HTTP,
	print func(*sheet, *admin.GroupInfo) error) error {
	info := func(ctx context.Context) (admin.GroupInfo, error) {
		return ask(ctx, c, func(ctx context.Context) (admin.GroupInfo, error) {
			info, err := h.GroupInfo(ctx, g.Topic, g.Group)
			return info, cmp.Or(nearestTopic(ctx, h, g.Topic, err), incomplete(info))
		})
	}
	return show(ctx, app, c, g.Watch, info, func(s *sheet, info admin.GroupInfo) error {
		return errors.Join(print(s, &info), s.from("sidecar", c.URL))
	})
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
  not_pulling    it pulls over HTTP, and is not asking now

Examples:

  sluice groups list orders
  sluice groups list orders --watch
  sluice groups list orders -o json | jq -r .group`
}

// Run prints the groups.
func (g *groupsListCommand) Run(ctx context.Context, app *program.App, c *client, h *admin.HTTP) error {
	list := func(ctx context.Context) ([]admin.GroupInfo, error) {
		return ask(ctx, c, func(ctx context.Context) ([]admin.GroupInfo, error) { return groupsOf(ctx, h, g.Topic) })
	}
	return show(ctx, app, c, g.Watch, list, func(s *sheet, infos []admin.GroupInfo) error {
		rows := make([][]string, len(infos))
		for i := range infos {
			info := &infos[i]
			members := fmt.Sprint(len(info.Members) + info.More)
			if len(info.Missing) > 0 {
				members += " or more"
			}
			rows[i] = []string{info.Group, fmt.Sprint(info.Lag), fmt.Sprint(info.Inflight), members, reasons(info)}
		}
		err := s.table([]string{"GROUP", "LAG", "INFLIGHT", "MEMBERS", "BLOCKED BY"}, nil, rows)
		return errors.Join(err, s.from("sidecar", c.URL))
	})
}

// groupsOf returns the groups of a topic. Only their answers count for [admin.WithAnswers].
func groupsOf(ctx context.Context, h *admin.HTTP, topic string) (infos []admin.GroupInfo, err error) {
	names, err := h.Groups(admin.WithAnswers(ctx, nil), topic)
	err = nearestTopic(ctx, h, topic, err)
	for _, name := range names {
		info, err := h.GroupInfo(ctx, topic, name)
		if err != nil && !isNotFound(err) { // it may be gone meanwhile
			return nil, err
		}
		if err == nil {
			infos = append(infos, info)
		}
	}
	return infos, cmp.Or(err, incomplete(infos...))
}

// incomplete says that sidecars did not say which members of the groups they have.
func incomplete(groups ...admin.GroupInfo) error {
	for _, info := range groups {
		if len(info.Missing) > 0 {
			return partError{fmt.Errorf("members at %s are not known: they did not say which within 10 s", nameList(info.Missing))}
		}
	}
	return nil
}

func printGroup(s *sheet, info *admin.GroupInfo) error {
	paused := ""
	if info.Paused {
		paused = ", paused by the policy"
	}
	if _, err := fmt.Fprintf(s, "%s of %s: lag %d, in flight %d%s\n\n", info.Group, info.Topic, info.Lag, info.Inflight, paused); err != nil {
		return err
	}
	partitions := make([][]string, len(info.Partitions))
	for i, p := range info.Partitions {
		partitions[i] = []string{fmt.Sprint(p.Partition), fmt.Sprint(p.Cursor), fmt.Sprint(p.Head), fmt.Sprint(p.Lag), fmt.Sprint(p.Inflight),
			cmp.Or(p.Owner, "-")}
	}
	if err := s.table([]string{"PARTITION", "CURSOR", "HEAD", "LAG", "INFLIGHT", "OWNER"}, nil, partitions); err != nil {
		return err
	}
	if len(info.Members)+len(info.Missing) == 0 {
		_, err := fmt.Fprintln(s, "\nno members")
		return err
	}
	fmt.Fprintln(s) // printMembers has the error
	return printMembers(s, info)
}

func printMembers(s *sheet, info *admin.GroupInfo) error {
	members := make([][]string, len(info.Members))
	for i, m := range info.Members {
		oldest := "-"
		if m.Inflight > 0 {
			oldest = millis(m.OldestUnackedMS)
		}
		members[i] = []string{visible(m.ID), visible(m.NodeID), visible(m.Address), s.time(time.UnixMilli(m.Since)),
			fmt.Sprintf("%d of %d", m.Inflight, m.MaxInflight), oldest, reason(m)}
	}
	err := s.table([]string{"MEMBER", "SIDECAR", "CLIENT", "SINCE", "INFLIGHT", "OLDEST", "BLOCKED BY"}, nil, members)
	if err == nil && info.More > 0 {
		_, err = fmt.Fprintf(s, "\n%d more members, which their sidecars had no room to tell of\n", info.More)
	}
	if err == nil && len(info.Missing) > 0 {
		_, err = fmt.Fprintf(s, "\nnot known: members at %s, which did not say within 10 s\n", nameList(info.Missing))
	}
	return err
}

type groupsMembersCommand struct{ groupsShowCommand }

func (*groupsMembersCommand) Help() string {
	return `Examples:

  sluice groups members orders billing --watch`
}

// Run prints the members.
func (g *groupsMembersCommand) Run(ctx context.Context, app *program.App, c *client, h *admin.HTTP) error {
	return g.show(ctx, app, c, h, printMembers)
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

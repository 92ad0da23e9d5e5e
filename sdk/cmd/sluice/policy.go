package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/sluice-bus/sluice/internal/program"
	"github.com/sluice-bus/sluice/sdk/admin"
)

// policyCommand is the commands about policies. Commands of more than a few lines have files of
// their own.
type policyCommand struct {
	controlPlane

	List     policyListCommand     `cmd:"" help:"List the policies."`
	Get      policyGetCommand      `cmd:"" help:"Print one policy, as YAML that apply takes."`
	Set      policySetCommand      `cmd:"" help:"Change some fields of a policy."`
	Apply    policyApplyCommand    `cmd:"" help:"Apply the policies of a file."`
	Diff     policyDiffCommand     `cmd:"" help:"Show how a file differs from the policies."`
	History  policyHistoryCommand  `cmd:"" help:"Show the changes of a policy, with time and author."`
	Rollback policyRollbackCommand `cmd:"" help:"Bring back an earlier version of a policy."`
	Delete   policyDeleteCommand   `cmd:"" help:"Delete a policy."`
	Pause    policyPauseCommand    `cmd:"" help:"Refuse publishes to a topic until it is resumed."`
	Resume   policyResumeCommand   `cmd:"" help:"Accept publishes to a topic again."`

	NewSeries policyNewSeriesCommand `cmd:"" help:"Make sidecars accept the policies of a store that was restored from a backup."`
}

func (*policyCommand) Help() string {
	return `A policy says how a topic is treated: its rates, windows, retention and the rest.
Its name is a topic (orders.created), or a prefix and a * (orders.*, or * for
all). A field that a topic's own policy does not set comes from the longest
prefix that matches and sets it, and else from the defaults.

Policies are kept by the control plane, which hands them to all sidecars.

Examples:

  sluice policy list
  sluice policy set orders.created publish.rate=500 publish.burst=500
  sluice policy apply -f policies.yaml
  sluice policy history orders.created`
}

type policyListCommand struct{}

func (*policyListCommand) Help() string {
	return `Lists the policies by name, with the fields that each sets.

Examples:

  sluice policy list
  sluice policy list -o json | jq -r '.policies[] | select(.paused).name'`
}

// Run prints the policies.
func (*policyListCommand) Run(ctx context.Context, app *program.App, c *client, plane *admin.ControlPlane) error {
	list := func(ctx context.Context) (admin.PolicyList, error) { return askPlane(ctx, c, plane.Policies) }
	return show(ctx, app, c, false, list, func(s *sheet, list admin.PolicyList) error {
		if len(list.Policies) == 0 {
			_, err := fmt.Fprintln(s, "no policies: the defaults hold for every topic")
			return err
		}
		rows := make([][]string, len(list.Policies))
		for i := range list.Policies {
			p := &list.Policies[i]
			rows[i] = []string{p.Name, fmt.Sprint(p.Version), s.time(p.UpdatedAt), plain(p.UpdatedBy), short(diff(nil, p))}
		}
		return s.table([]string{"NAME", "VERSION", "CHANGED", "BY", "SETS"}, nil, rows)
	})
}

// shortFields is how many fields a line of a table names.
const shortFields = 4

// short names changes of fields on one line.
func short(fields []fieldChange) string {
	var parts []string
	for i, f := range fields {
		if i == shortFields && len(fields) > shortFields+1 {
			parts = append(parts, fmt.Sprintf("and %d more", len(fields)-i))
			break
		}
		value := shown(f.to)
		switch {
		case f.to == nil:
			value = "not set"
		case len(f.to) > 0 && f.to[0] == '{':
			value = "{…}"
		}
		if f.from != nil && f.to != nil && f.to[0] != '{' {
			value = shown(f.from) + "->" + value
		}
		parts = append(parts, f.path+"="+value)
	}
	return cmp.Or(strings.Join(parts, ", "), "-")
}

func instant(t time.Time) string { return t.UTC().Format(time.RFC3339) }

type policyGetCommand struct {
	Name string `arg:"" help:"The policy: a topic, or a prefix and a *."`
}

func (*policyGetCommand) Help() string {
	return `Prints the policy of exactly that name as YAML, in the form that apply, diff and
the sidecar's --policies take.

Examples:

  sluice policy get 'orders.*'
  sluice policy get orders.created > orders.yaml`
}

// Run prints the policy.
func (g *policyGetCommand) Run(ctx context.Context, app *program.App, c *client, plane *admin.ControlPlane) error {
	get := func(ctx context.Context) (admin.Policy, error) {
		return askPlane(ctx, c, func(ctx context.Context) (admin.Policy, error) { return plane.Policy(ctx, g.Name) })
	}
	return show(ctx, app, c, false, get, func(s *sheet, p admin.Policy) error { return printYAML(s, &p) })
}

type policyHistoryCommand struct {
	Name string `arg:"" help:"The policy."`
}

func (*policyHistoryCommand) Help() string {
	return `Lists the versions of a policy, newest first, with what each changed. The history
of a policy that was deleted is still there.

Examples:

  sluice policy history orders.created
  sluice policy history orders.created -o json | jq '.versions[] | select(.version==3).policy'`
}

// Run prints the versions.
func (h *policyHistoryCommand) Run(ctx context.Context, app *program.App, c *client, plane *admin.ControlPlane) error {
	history := func(ctx context.Context) ([]admin.PolicyVersion, error) {
		return askPlane(ctx, c, func(ctx context.Context) ([]admin.PolicyVersion, error) { return plane.PolicyHistory(ctx, h.Name) })
	}
	return show(ctx, app, c, false, history, printHistory)
}

func printHistory(s *sheet, versions []admin.PolicyVersion) error {
	rows := make([][]string, len(versions))
	for i, v := range versions {
		var before *admin.Policy
		if i+1 < len(versions) {
			before = versions[i+1].Policy
		}
		action, changes := strings.ReplaceAll(v.Action, "_", " "), "-"
		if v.To != 0 {
			action += fmt.Sprintf(" to %d", v.To)
		}
		if v.Policy != nil {
			changes = short(diff(before, v.Policy))
		}
		if v.Reason != "" {
			changes += " (" + plain(v.Reason) + ")"
		}
		rows[i] = []string{fmt.Sprint(v.Version), action, s.time(v.At), plain(v.By), changes}
	}
	return s.table([]string{"VERSION", "ACTION", "AT", "BY", "CHANGES"}, nil, rows)
}

type policyRollbackCommand struct {
	Name    string `arg:"" help:"The policy."`
	Version int64  `arg:"" help:"The version to restore."`
	waitFlags
}

func (*policyRollbackCommand) Help() string {
	return `Makes a new version with the content of an old one. It brings back a policy that
was deleted, too.

Examples:

  sluice policy rollback orders.created 3
  sluice policy rollback orders.created 3 --wait`
}

// Run rolls back and prints what that changed.
func (r *policyRollbackCommand) Run(ctx context.Context, app *program.App, c *client, plane *admin.ControlPlane) error {
	before, err := current(ctx, c, plane, r.Name)
	if err != nil {
		return err
	}
	now, err := askPlane(ctx, c, func(ctx context.Context) (admin.Policy, error) {
		return plane.RollbackPolicy(ctx, r.Name, r.Version)
	})
	if err != nil {
		return listed(app.Stderr, err, r.Name)
	}
	return r.saved(ctx, app, c, plane, before, &now)
}

// current returns the policy of that name, or nil.
func current(ctx context.Context, c *client, plane *admin.ControlPlane, name string) (*admin.Policy, error) {
	found, err := askPlane(ctx, c, func(ctx context.Context) (admin.Policy, error) { return plane.Policy(ctx, name) })
	switch {
	case isNotFound(err):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return &found, nil
}

// saved prints a policy that was changed, and how, and waits for the sidecars if that is wanted.
func (f *waitFlags) saved(ctx context.Context, app *program.App, c *client, plane *admin.ControlPlane, before, now *admin.Policy) error {
	var fields bytes.Buffer
	printFields(&fields, inkFor(app.Stdout), before, now)
	sentence := "%s%s is now at version %d"
	if before != nil && before.Version == now.Version {
		sentence = "%s%s is at version %d, as before: nothing to change"
	}
	if err := printDone(app, c, now, sentence, &fields, now.Name, now.Version); err != nil {
		return err
	}
	return f.await(ctx, app, c, plane, map[string]int64{now.Name: now.Version})
}

type policyDeleteCommand struct {
	Name string `arg:"" help:"The policy."`
	Yes  bool   `short:"y" help:"Do not ask before it is done."`
	changeFlags
}

func (*policyDeleteCommand) Help() string {
	return `Deletes the policy of that name: what it set comes from the next policy that
matches. Rolling back brings it back. At a terminal it asks first; elsewhere it
needs --yes.

Examples:

  sluice policy delete orders.created --yes
  sluice policy delete orders.created --dry-run -o json`
}

// Run deletes the version that is there now.
func (d *policyDeleteCommand) Run(ctx context.Context, app *program.App, c *client, plane *admin.ControlPlane) error {
	if d.DryRun || !d.Yes && interactive(app) {
		plan, err := askPlane(ctx, c, func(ctx context.Context) (admin.ApplyResult, error) {
			return plane.PlanDeletePolicy(ctx, d.Name, admin.Condition{})
		})
		if err != nil {
			return listed(app.Stderr, err, d.Name)
		}
		if d.DryRun {
			return d.printPlan(ctx, app, c, plane, plan)
		}
		withLosses(ctx, app, c, plane, &plan)
		if err := printPlan(app.Stderr, "", plan); err != nil {
			return err
		}
	}
	if err := asked(ctx, app, d.Yes, "Delete the policy %s?", d.Name); err != nil {
		return err
	}
	deleted, err := askPlane(ctx, c, func(ctx context.Context) (admin.Policy, error) {
		found, err := plane.Policy(ctx, d.Name)
		if err != nil {
			return found, err
		}
		return found, plane.DeletePolicy(ctx, d.Name, admin.Condition{Version: found.Version})
	})
	if err != nil {
		return listed(app.Stderr, err, d.Name)
	}
	if err := printDone(app, c, map[string]any{"deleted": d.Name, "version": deleted.Version},
		"deleted %s; to bring it back: sluice policy rollback '%s' %d", d.Name, d.Name, deleted.Version); err != nil {
		return err
	}
	return d.await(ctx, app, c, plane, map[string]int64{d.Name: gone})
}

type policyPauseCommand struct {
	Topic string `arg:"" help:"The topic, or a prefix and a *."`
	changeFlags
}

func (*policyPauseCommand) Help() string {
	return `Sets paused in the topic's policy, which is made if there is none: publishes are
refused with topic_paused. What is in the topic is delivered all the same.

Examples:

  sluice policy pause orders.created --wait`
}

// Run pauses.
func (u *policyPauseCommand) Run(ctx context.Context, app *program.App, c *client, plane *admin.ControlPlane) error {
	return assign(ctx, app, c, plane, u.Topic, []assignment{{[]string{"paused"}, json.RawMessage("true")}}, &u.changeFlags)
}

type policyResumeCommand struct {
	Topic string `arg:"" help:"The topic, or a prefix and a *."`
	changeFlags
}

func (*policyResumeCommand) Help() string {
	return `Sets paused to false in the topic's policy, so that the topic takes publishes even
where a policy of a prefix pauses others.

Examples:

  sluice policy resume orders.created`
}

// Run resumes.
func (u *policyResumeCommand) Run(ctx context.Context, app *program.App, c *client, plane *admin.ControlPlane) error {
	return assign(ctx, app, c, plane, u.Topic, []assignment{{[]string{"paused"}, json.RawMessage("false")}}, &u.changeFlags)
}

type policyNewSeriesCommand struct{}

func (*policyNewSeriesCommand) Help() string {
	return `A sidecar never goes back to policies of a lower revision than those that it has,
as those of a control plane that was cut off. A store that was restored from a
backup, or started over, has lower ones, and every sidecar refuses them, which
"sluice fleet" shows. This declares the policies that the control plane has now to
be right: a new series of revisions begins, which all sidecars take within seconds.

Look at the policies first: "sluice policy list".

Examples:

  sluice policy new-series`
}

// Run begins the series.
func (*policyNewSeriesCommand) Run(ctx context.Context, app *program.App, c *client, plane *admin.ControlPlane) error {
	begun, err := askPlane(ctx, c, plane.NewSeries)
	if err != nil {
		return err
	}
	return printDone(app, c, begun, "a new series begins with revision %d; sidecars take it within seconds", begun.Revision)
}

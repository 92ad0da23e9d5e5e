package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/sluice-bus/sluice/internal/program"
	"github.com/sluice-bus/sluice/sdk/admin"
)

// fleetCommand is the commands about all sidecars of a control plane.
type fleetCommand struct {
	controlPlane

	Sidecars fleetSidecarsCommand `cmd:"" default:"1" help:"List the sidecars with the policies that they run and refused. The command fleet alone does the same."`
	Show     fleetShowCommand     `cmd:"" help:"Show one sidecar with its health: store, spool, memory, disk, groups, and the last lines of its log."`
	Forget   fleetForgetCommand   `cmd:"" help:"Remove a lost sidecar, so that replays of the fleet leave it out."`
	Topics   fleetTopicsCommand   `cmd:"" help:"List the topics in use, with the rates of accepted and refused events."`
	Usage    fleetUsageCommand    `cmd:"" help:"List how many events topics and tenants used, by day or month."`
	Groups   fleetGroupsCommand   `cmd:"" help:"List the consumer groups of all stores, those in trouble first."`
}

func (*fleetCommand) Help() string {
	return `Shows what the control plane knows of its sidecars.

Examples:

  sluice fleet
  sluice fleet topics --watch`
}

type fleetSidecarsCommand struct{ watchFlag }

func (*fleetSidecarsCommand) Help() string {
	return `Lists those with trouble first. ACKED counts the policies that a sidecar runs in their newest version, BEHIND
those of which it has an older one. A sidecar has all policies of a prefix, and
of the others those of the topics that it uses. REJECTED is a policy that it
refused, with the reason: it keeps what it had before. Another is refused where a
second process has the node id of one that is connected.

A sidecar is missing that is gone and may have events that nobody else has:
replays of the fleet name it until it is back, or forgotten ("sluice fleet forget").

Examples:

  sluice fleet
  sluice fleet -o json | jq -r '.sidecars[] | select(.rejected).node_id'`
}

// Run prints the sidecars.
func (f *fleetSidecarsCommand) Run(ctx context.Context, app *program.App, c *client, plane *admin.ControlPlane) error {
	list := func(ctx context.Context) ([]admin.Sidecar, error) { return askPlane(ctx, c, plane.Sidecars) }
	return show(ctx, app, c, f.Watch, list, func(s *sheet, sidecars []admin.Sidecar) error {
		if len(sidecars) == 0 {
			_, err := fmt.Fprintln(s, "no sidecars yet: start them with --control-plane HOST:PORT")
			return err
		}
		list, err := askPlane(ctx, c, plane.Policies)
		if err != nil {
			return err
		}
		newest := map[string]int64{}
		for _, each := range list.Policies {
			newest[each.Name] = each.Version
		}
		slices.SortStableFunc(sidecars, func(a, b admin.Sidecar) int { return cmp.Compare(trouble(&b), trouble(&a)) })
		rows := make([][]string, len(sidecars))
		for i := range sidecars {
			rows[i] = sidecarRow(s, &sidecars[i], newest)
		}
		err = s.table([]string{"NODE", "CONNECTED", "LAST SEEN", "ACKED", "BEHIND", "REJECTED"},
			[]string{"ADDRESS", "VERSION", "STORE", "CONTROL PLANE"}, rows)
		return errors.Join(err, s.from("control plane", plane.URL))
	})
}

// trouble orders sidecars: what is missing matters more than what refuses a policy, and that more than what has left.
func trouble(s *admin.Sidecar) int {
	switch {
	case s.Missing:
		return 3
	case s.Rejected != nil, s.RefusedSessions != nil, len(s.UnmetConcerns) > 0:
		return 2
	case !s.Connected:
		return 1
	}
	return 0
}

func sidecarRow(out *sheet, s *admin.Sidecar, newest map[string]int64) []string {
	current, behind := 0, 0
	for name, version := range s.Versions {
		switch there := newest[name]; {
		case there == 0: // deleted, and it may not know yet
		case version >= there:
			current++
		default:
			behind++
		}
	}
	connected, rejected := "no", "-"
	switch {
	case s.Connected && s.RefusedSessions != nil:
		connected = "yes, and another is refused"
	case s.Connected:
		connected = "yes"
	case s.Missing:
		connected = "missing"
	}
	if r := s.Rejected; r != nil {
		rejected = fmt.Sprintf("%s version %d: %s", r.Policy, r.Version, plain(r.Reason))
	}
	return []string{plain(s.NodeID), connected, out.time(s.LastSeen), fmt.Sprint(current), fmt.Sprint(behind), rejected,
		cmp.Or(plain(s.Address), "-"), cmp.Or(plain(s.Version), "-"), cmp.Or(plain(s.StoreID), "-"), cmp.Or(plain(s.ControlPlane), "-")}
}

type fleetForgetCommand struct {
	Node string `arg:"" help:"The node id of a sidecar that is missing."`
	Yes  bool   `short:"y" help:"Do not ask before it is done."`
}

func (*fleetForgetCommand) Help() string {
	return `A sidecar that was killed, or stopped with an embedded log, is missing: it may have
events that no other sidecar has, so replays of the fleet are refused as partial_fleet,
which names it. Forget it only if its disk is lost: replays then leave out those
events. If it connects again, it is listed again. Without a terminal --yes is needed.

Examples:

  sluice fleet forget node-7 --yes`
}

// Run forgets the sidecar.
func (f *fleetForgetCommand) Run(ctx context.Context, app *program.App, c *client, plane *admin.ControlPlane) error {
	if err := asked(ctx, app, f.Yes, "Forget %s, and the events that only it has?", plain(f.Node)); err != nil {
		return err
	}
	if _, err := askPlane(ctx, c, func(ctx context.Context) (any, error) { return nil, plane.ForgetSidecar(ctx, f.Node) }); err != nil {
		return err
	}
	return printDone(app, c, map[string]string{"forgotten": f.Node},
		"forgot %s; replays of the fleet go without the events that only it had", plain(f.Node))
}

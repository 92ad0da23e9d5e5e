package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sluice-bus/sluice/internal/pause"
	"github.com/sluice-bus/sluice/internal/program"
	"github.com/sluice-bus/sluice/sdk/admin"
)

// waitFlags are those of the commands that change policies.
type waitFlags struct {
	Wait        bool          `help:"Wait until every connected sidecar that uses the policies has acked them."`
	WaitTimeout time.Duration `default:"30s" help:"For how long, with --wait."`
}

// changeFlags are the flags of a command that changes one policy.
type changeFlags struct {
	DryRun bool `help:"Show the changes, and make none."`
	lossFlags
	waitFlags
}

// gone is the version of a policy that was deleted.
const gone = 0

// waitInterval is how often the control plane is asked for the acks.
const waitInterval = 200 * time.Millisecond

// await waits until the sidecars have acked the policies at these versions, or have refused them,
// and prints the others. For a deleted policy it waits until no sidecar has it.
func (f *waitFlags) await(ctx context.Context, app *program.App, c *client, plane *admin.ControlPlane, targets map[string]int64) error {
	if !f.Wait || len(targets) == 0 {
		return nil
	}
	now, err := f.poll(ctx, app, c, plane, targets)
	if err != nil {
		return err
	}
	if err := printDone(app, c, now, "%v", now); err != nil || len(now.Pending)+len(now.Refused) == 0 {
		return err
	}
	for _, s := range now.Refused {
		fmt.Fprintf(app.Stderr, "  %s refused %s version %d: %s\n", plain(s.NodeID), s.Policy, s.Version, plain(s.Reason))
	}
	for _, s := range now.Pending {
		if s.Version == gone {
			fmt.Fprintf(app.Stderr, "  %s still has %s\n", plain(s.NodeID), s.Policy)
			continue
		}
		fmt.Fprintf(app.Stderr, "  %s has not acked %s version %d\n", plain(s.NodeID), s.Policy, s.Version)
	}
	if len(now.Pending) > 0 {
		return partError{fmt.Errorf("the change is made, and not all sidecars have taken it within %v (--wait-timeout)", f.WaitTimeout)}
	}
	return partError{errors.New("the change is made, and sidecars have refused it: they keep the policies that they had")}
}

// poll asks until every sidecar has acked or refused, or the time is up.
func (f *waitFlags) poll(ctx context.Context, app *program.App, c *client, plane *admin.ControlPlane,
	targets map[string]int64) (acks, error) {
	users, err := usersOf(ctx, c, plane, targets)
	if err != nil {
		return acks{}, err
	}
	line := newStatusLine(app.Stderr)
	defer line.show("")
	for until := time.Now().Add(f.WaitTimeout); ; {
		sidecars, err := askPlane(ctx, c, plane.Sidecars)
		if err != nil {
			return acks{}, err
		}
		now := acked(targets, users, sidecars)
		if len(now.Pending) == 0 || time.Now().After(until) {
			return now, nil
		}
		line.show("waiting: " + now.String())
		if !pause.For(ctx, waitInterval) {
			return acks{}, ctx.Err()
		}
	}
}

// acks is how far a change has come.
type acks struct {
	Acked   []string `json:"acked"` // node ids
	Pending []behind `json:"pending"`
	Refused []behind `json:"refused"`
	// Away counts the sidecars that get the change once they are connected.
	Away int `json:"not_connected"`
}

// behind is a sidecar that does not run a policy at that version.
type behind struct {
	NodeID  string `json:"node_id"`
	Policy  string `json:"policy"`
	Version int64  `json:"version"`
	Reason  string `json:"reason,omitempty"`
}

func (a acks) String() string {
	all := len(a.Acked) + len(a.Pending) + len(a.Refused)
	text := fmt.Sprintf("acked by %d of %d sidecars", len(a.Acked), all)
	if all == 0 {
		text = "no connected sidecar uses it"
	}
	if n := len(a.Refused); n > 0 {
		text += fmt.Sprintf(", refused by %d", n)
	}
	if a.Away > 0 {
		text += fmt.Sprintf(", %d not connected", a.Away)
	}
	return text
}

// usersOf returns, by policy, the sidecars that use the topic with the policy's name. It leaves out
// policies of a prefix, which all sidecars use.
func usersOf(ctx context.Context, c *client, plane *admin.ControlPlane, targets map[string]int64) (map[string][]string, error) {
	users := map[string][]string{}
	for name, version := range targets {
		if version == gone || strings.HasSuffix(name, "*") {
			continue
		}
		using, err := askPlane(ctx, c, func(ctx context.Context) ([]admin.Sidecar, error) { return plane.SidecarsUsing(ctx, name) })
		if err != nil {
			return nil, err
		}
		for _, s := range using {
			users[name] = append(users[name], s.NodeID)
		}
	}
	return users, nil
}

// acked sorts the sidecars that use any of the policies: acked, pending, refused or away. It names
// the first policy that a sidecar lacks.
func acked(targets map[string]int64, users map[string][]string, sidecars []admin.Sidecar) acks {
	now := acks{Acked: []string{}, Pending: []behind{}, Refused: []behind{}}
	names := slices.Sorted(maps.Keys(targets))
	for i := range sidecars {
		s := &sidecars[i]
		uses := false
		var lacks *behind
		for _, name := range names {
			version, has := s.Versions[name]
			refused := s.Rejected != nil && s.Rejected.Policy == name
			wanted := strings.HasSuffix(name, "*") || slices.Contains(users[name], s.NodeID) || refused
			if !has && (targets[name] == gone || !wanted) {
				continue
			}
			uses = true
			switch {
			case targets[name] != gone && version >= targets[name]:
			case refused && targets[name] != gone && s.Rejected.Version >= targets[name]:
				lacks = &behind{s.NodeID, name, s.Rejected.Version, s.Rejected.Reason}
			case lacks == nil:
				lacks = &behind{NodeID: s.NodeID, Policy: name, Version: targets[name]}
			}
		}
		switch {
		case !uses:
		case !s.Connected:
			now.Away++
		case lacks == nil:
			now.Acked = append(now.Acked, s.NodeID)
		case lacks.Reason != "":
			now.Refused = append(now.Refused, *lacks)
		default:
			now.Pending = append(now.Pending, *lacks)
		}
	}
	return now
}

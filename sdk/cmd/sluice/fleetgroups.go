package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-bus/sluice/internal/program"
	"github.com/sluice-bus/sluice/sdk/admin"
)

type fleetGroupsCommand struct {
	Prefix      string `help:"Only groups of topics whose names begin with this."`
	DeadLetters bool   `help:"Only groups that have dead letters."`
	watchFlag
}

func (*fleetGroupsCommand) Help() string {
	return `Lists the consumer groups of all stores that have members, events that wait, or
dead letters: stuck ones first, then those with the most lag.

Examples:

  sluice fleet groups --watch
  sluice fleet groups --dead-letters
  sluice fleet groups --prefix orders. -o json | jq -r 'select(.lag>1000).group'`
}

// Run prints the groups.
func (f *fleetGroupsCommand) Run(ctx context.Context, app *program.App, c *client, plane *admin.ControlPlane) error {
	list := func(ctx context.Context) ([]admin.FleetGroup, error) {
		return askPlane(ctx, c, func(ctx context.Context) ([]admin.FleetGroup, error) {
			return plane.FleetGroups(ctx, f.Prefix, f.DeadLetters)
		})
	}
	return show(ctx, app, c, f.Watch, list, func(s *sheet, groups []admin.FleetGroup) error {
		rows := make([][]string, len(groups))
		for i, g := range groups {
			state := cmp.Or(plain(g.BlockedBy), "-")
			switch {
			case g.Paused:
				state = "paused"
			case g.StuckSince != nil:
				state = "stuck since " + s.time(*g.StuckSince)
			}
			rows[i] = []string{plain(g.Topic), cmp.Or(plain(g.Group), "-"), fmt.Sprint(g.Lag), fmt.Sprint(g.InFlight), fmt.Sprint(g.Members),
				rough(time.Duration(g.OldestUnackedS) * time.Second), fmt.Sprint(g.DeadLetters), state, plain(g.Store)}
		}
		err := s.table([]string{"TOPIC", "GROUP", "LAG", "INFLIGHT", "MEMBERS", "OLDEST", "DEAD LETTERS", "STATE"}, []string{"STORE"}, rows)
		return errors.Join(err, s.from("control plane", plane.URL))
	})
}

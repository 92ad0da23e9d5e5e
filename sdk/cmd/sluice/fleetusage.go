package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/sluice-bus/sluice/internal/program"
	"github.com/sluice-bus/sluice/sdk/admin"
)

type fleetUsageCommand struct {
	By      string `enum:"day,month" default:"day" help:"day or month."`
	From    string `placeholder:"DAY" help:"The first day, such as 2026-01-31; 30 days ago by default."`
	To      string `placeholder:"DAY" help:"The last day; today by default."`
	Prefix  string `help:"Only the topics whose names begin with this."`
	Tenants bool   `help:"Also the tenants of topics."`
	watchFlag
}

func (*fleetUsageCommand) Help() string {
	return `Lists how many events of each topic were accepted and refused, and the error codes,
in each day or month in UTC, the latest first. With --tenants also those of tenants,
where a policy has publish.per: accepted, and refused by their limits. What a topic
keeps is in "sluice usage".

Examples:

  sluice fleet usage --by month
  sluice fleet usage --prefix orders. --tenants
  sluice fleet usage --from 2026-01-01 -o json | jq -r '[.period, .topic, .accepted] | @csv'`
}

// Run prints the usage.
func (f *fleetUsageCommand) Run(ctx context.Context, app *program.App, c *client, plane *admin.ControlPlane) error {
	list := func(ctx context.Context) ([]admin.Usage, error) {
		return askPlane(ctx, c, func(ctx context.Context) ([]admin.Usage, error) {
			return plane.Usage(ctx, admin.UsageQuery{By: f.By, From: f.From, To: f.To, Prefix: f.Prefix, Tenants: f.Tenants})
		})
	}
	return show(ctx, app, c, f.Watch, list, func(s *sheet, all []admin.Usage) error {
		rows := make([][]string, len(all))
		for i, r := range all {
			rows[i] = []string{r.Period, plain(r.Topic), cmp.Or(plain(r.Tenant), "-"), fmt.Sprint(r.Accepted), fmt.Sprint(r.Refused),
				byCode(r.Refusals)}
		}
		err := s.table([]string{"PERIOD", "TOPIC", "TENANT", "ACCEPTED", "REFUSED", "REFUSALS"}, nil, rows)
		return errors.Join(err, s.from("control plane", plane.URL))
	})
}

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/sluice-bus/sluice/internal/program"
	"github.com/sluice-bus/sluice/sdk/admin"
)

type overviewCommand struct {
	controlPlane
	watchFlag
}

func (*overviewCommand) Help() string {
	return `Shows what is wrong with the fleet, the worst first, with what to do about it; then
the rates of all sidecars together, and the stores. "sluice top" adds the topics.

Examples:

  sluice overview
  sluice overview --watch
  sluice overview -o json | jq -r 'select(.incidents).incidents[].text'`
}

// fleetNow is the fleet at one moment.
type fleetNow struct {
	overview admin.Overview
	stores   []admin.FleetStore
	topics   []admin.FleetTopic // of sluice top
}

func askFleet(ctx context.Context, c *client, plane *admin.ControlPlane) (fleetNow, error) {
	return askPlane(ctx, c, func(ctx context.Context) (now fleetNow, err error) {
		if now.overview, err = plane.Overview(ctx); err == nil {
			now.stores, err = plane.Stores(ctx)
		}
		return now, err
	})
}

// Run prints the overview.
func (o *overviewCommand) Run(ctx context.Context, app *program.App, c *client, plane *admin.ControlPlane) error {
	return show(ctx, app, c, o.Watch, func(ctx context.Context) (fleetNow, error) { return askFleet(ctx, c, plane) },
		func(s *sheet, now fleetNow) error {
			return errors.Join(printOverview(s, now), s.from("control plane", plane.URL))
		})
}

// printOverview prints the incidents, the rates and the stores.
func printOverview(s *sheet, now fleetNow) error {
	o, text := &now.overview, &strings.Builder{}
	for _, i := range o.Incidents {
		head := fmt.Sprintf("%s  %s  ", i.Severity, s.time(i.Since))
		fmt.Fprintf(text, "%s%s\n%*s%s\n", head, plain(i.Text), len(head), "", plain(i.Remedy))
	}
	switch {
	case o.More > 0:
		fmt.Fprintf(text, "and %d more incidents\n", o.More)
	case len(o.Incidents) == 0:
		fmt.Fprintln(text, "nothing is wrong")
	}
	versions := make([]string, len(o.Versions))
	for i, v := range o.Versions {
		versions[i] = fmt.Sprintf("%s at %d", plain(v.Version), v.Sidecars)
	}
	fmt.Fprintf(text, "\na second: %s published, %s delivered, %s refused, %s dead letters; %d topics\n",
		perSecond(o.PublishedPerSecond), perSecond(o.DeliveredPerSecond), perSecond(o.RefusedPerSecond), perSecond(o.DeadPerSecond), o.Topics)
	fmt.Fprintf(text, "sidecars: %d connected, %d missing; versions: %s\n\n", o.Sidecars.Live, o.Sidecars.Missing, orNone(versions))
	if _, err := fmt.Fprint(s, text); err != nil || len(now.stores) == 0 {
		return err
	}
	rows := make([][]string, len(now.stores))
	for i, store := range now.stores {
		rows[i] = []string{plain(store.Store), store.Kind, store.State, s.time(store.Since), fmt.Sprint(store.Spooled),
			fmt.Sprint(len(store.Sidecars)), cmp.Or(plain(store.Error), "-"), nameList(store.Sidecars)}
	}
	return s.table([]string{"STORE", "KIND", "STATE", "SINCE", "SPOOLED", "SIDECARS", "LAST ERROR"}, []string{"NODES"}, rows)
}

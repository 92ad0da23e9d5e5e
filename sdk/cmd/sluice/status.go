package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sluice-bus/sluice/internal/program"
	"github.com/sluice-bus/sluice/sdk/admin"
)

type statusCommand struct {
	Ready bool `help:"Only ask whether it is ready: exit status 0 if it is, 1 if it is not. Needs no token."`
	watchFlag
}

func (*statusCommand) Help() string {
	return `Asks the sidecar's ops listener (--ops-url) how it is. With --ready it is what a container's health check needs, for
a control plane's HTTP listener too.

Examples:

  sluice status
  sluice status --ready --timeout 2s
  sluice status -o json | jq .store.state`
}

// Run prints the status.
func (s *statusCommand) Run(ctx context.Context, app *program.App, c *client, h *admin.HTTP) error {
	if s.Ready {
		answer, err := ask(ctx, c, h.Ready)
		if err == nil {
			_, err = fmt.Fprintln(app.Stdout, answer)
		}
		return err
	}
	status := func(ctx context.Context) (admin.Status, error) { return ask(ctx, c, h.Status) }
	return show(ctx, app, c, s.Watch, status, printStatus)
}

func printStatus(s *sheet, status admin.Status) error {
	policies := make([]string, len(status.Policies))
	for i, p := range status.Policies {
		policies[i] = fmt.Sprintf("%s (version %s, %s)", p.Name, p.Version, p.Source)
	}
	if len(policies) == 0 {
		policies = []string{"none: the defaults hold"}
	}
	state := status.Store.State
	if status.Store.Detail != "" {
		state = status.Store.Detail + "," // which says the state, too
	}
	store := plain(status.Store.URL) + "  " + plain(state) + " since " + s.time(time.UnixMilli(status.Store.Since))
	if status.Store.Error != "" {
		store += ": " + plain(status.Store.Error)
	}
	for _, topic := range slices.Sorted(maps.Keys(status.Store.UnmetConcerns)) {
		store += fmt.Sprintf("; does not meet %s of topic %s", status.Store.UnmetConcerns[topic], topic)
	}
	return s.table([]string{"node", status.NodeID}, nil, [][]string{
		{"version", status.Version},
		{"store", store},
		{"policies", strings.Join(policies, ", ")},
		{"connections", fmt.Sprint(status.Connections)},
		{"subscriptions", fmt.Sprint(status.Subscriptions)},
		{"queues", fmt.Sprintf("%d events, %d bytes", status.Queues.Events, status.Queues.Bytes)},
		{"spool", fmt.Sprintf("%d events, %d bytes", status.Spool.Events, status.Spool.Bytes)},
	})
}

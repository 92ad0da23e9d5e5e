package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-bus/sluice/internal/program"
	"github.com/sluice-bus/sluice/sdk/admin"
)

type fleetTopicsCommand struct{ watchFlag }

func (*fleetTopicsCommand) Help() string {
	return `Lists the topics, the busiest first. ALLOWED/S and DENIED/S count events that
sidecars let through and that they refused for a limit. LIMIT/S is the rate that
the topic's policy allows: to each sidecar, or to all of them together where
SCOPE says fleet. REFUSALS has all that was refused in the last hour, by error code.

Examples:

  sluice fleet topics --watch
  sluice fleet topics -o json | jq -r '.topics[] | select(.denied_per_second>0).topic'`
}

// Run prints the topics.
func (f *fleetTopicsCommand) Run(ctx context.Context, app *program.App, c *client, plane *admin.ControlPlane) error {
	list := func(ctx context.Context) ([]admin.FleetTopic, error) {
		return askPlane(ctx, c, func(ctx context.Context) ([]admin.FleetTopic, error) { return plane.FleetTopics(ctx, false) })
	}
	return show(ctx, app, c, f.Watch, list, func(s *sheet, topics []admin.FleetTopic) error {
		slices.SortStableFunc(topics, func(a, b admin.FleetTopic) int {
			return cmp.Compare(b.AllowedPerSecond+b.DeniedPerSecond, a.AllowedPerSecond+a.DeniedPerSecond)
		})
		return errors.Join(printTopics(s, topics), s.from("control plane", plane.URL))
	})
}

// printTopics prints the topics in their order.
func printTopics(s *sheet, topics []admin.FleetTopic) error {
	if len(topics) == 0 {
		_, err := fmt.Fprintln(s, "no topics: no sidecar has published, and no policy names one")
		return err
	}
	rows := make([][]string, len(topics))
	for i, t := range topics {
		limit := "none"
		switch {
		case t.Paused:
			limit = "paused"
		case t.Rate > 0:
			limit = strconv.FormatFloat(t.Rate, 'f', -1, 64)
		}
		rows[i] = []string{t.Topic, perSecond(t.AllowedPerSecond), perSecond(t.DeniedPerSecond), limit, t.Scope,
			cmp.Or(t.Policy, "defaults"), fmt.Sprint(len(t.Sidecars)), byCode(t.Refusals), orNone(t.Sidecars)}
	}
	return s.table([]string{"TOPIC", "ALLOWED/S", "DENIED/S", "LIMIT/S", "SCOPE", "POLICY", "SIDECARS", "REFUSALS"}, []string{"NODES"}, rows)
}

// byCode writes refused events by error code, the most first.
func byCode(refusals map[string]int64) string {
	codes := slices.SortedFunc(maps.Keys(refusals), func(a, b string) int {
		return cmp.Or(cmp.Compare(refusals[b], refusals[a]), cmp.Compare(a, b))
	})
	for i, code := range codes {
		codes[i] = fmt.Sprint(plain(code), ":", refusals[code])
	}
	return cmp.Or(strings.Join(codes, ","), "-")
}

// perSecond writes a measured rate: small ones with a digit behind the point.
func perSecond(rate float64) string {
	if rate < 10 && rate != float64(int64(rate)) {
		return strconv.FormatFloat(rate, 'f', 1, 64)
	}
	return strconv.FormatFloat(rate, 'f', 0, 64)
}

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sluice-bus/sluice/internal/program"
	"github.com/sluice-bus/sluice/sdk/admin"
)

type fleetShowCommand struct {
	Node string `arg:"" help:"The sidecar's node id."`
	watchFlag
}

func (*fleetShowCommand) Help() string {
	return `Shows what the sidecar has reported last. LAG and MEMBERS of a group are this
sidecar's part; "sluice groups" has the whole group.

Examples:

  sluice fleet show node-1
  sluice fleet show node-1 -o json | jq -r '.log[]'`
}

// Run prints the sidecar.
func (f *fleetShowCommand) Run(ctx context.Context, app *program.App, c *client, plane *admin.ControlPlane) error {
	sidecar := func(ctx context.Context) (admin.SidecarHealth, error) {
		return askPlane(ctx, c, func(ctx context.Context) (admin.SidecarHealth, error) { return plane.SidecarHealth(ctx, f.Node) })
	}
	return show(ctx, app, c, f.Watch, sidecar, func(s *sheet, h admin.SidecarHealth) error {
		return errors.Join(printSidecar(s, &h), s.from("control plane", plane.URL))
	})
}

func printSidecar(s *sheet, h *admin.SidecarHealth) error {
	connected := sidecarRow(s, &h.Sidecar, nil)[1]
	rows := [][]string{{"version", cmp.Or(plain(h.Version), "-")}, {"connected", connected + ", last seen " + s.time(h.LastSeen)},
		{"address", cmp.Or(plain(h.Address), "-")}}
	if r := h.Rejected; r != nil {
		rows = append(rows, []string{"refuses", fmt.Sprintf("%s version %d: %s", plain(r.Policy), r.Version, plain(r.Reason))})
	}
	if h.ReportedAt.IsZero() {
		rows = append(rows, []string{"health", "not reported"})
		return s.table([]string{"node", plain(h.NodeID)}, nil, rows)
	}
	store := fmt.Sprintf("%s, %s since %s", plain(h.Store.Kind), plain(h.Store.State), s.time(h.Store.Since))
	if h.Store.Error != "" {
		store += ": " + plain(h.Store.Error)
	}
	spool := fmt.Sprintf("%d events, %d bytes", h.Spool.Events, h.Spool.Bytes)
	if h.Spool.Oldest != nil {
		spool += ", the oldest of " + s.time(*h.Spool.Oldest)
	}
	rows = append(rows, []string{"reported", s.time(h.ReportedAt)}, []string{"uptime", rough(time.Duration(h.UptimeS) * time.Second)},
		[]string{"clock", fmt.Sprintf("%d ms from the control plane's", h.ClockSkewMS)}, []string{"store", store}, []string{"spool", spool},
		[]string{"memory", fmt.Sprintf("%d of %d bytes for clients", h.Memory.Used, h.Memory.Bound)},
		[]string{"disk", fmt.Sprintf("%d bytes free, low below %d", h.Disk.Free, h.Disk.LowWater)},
		[]string{"connections", fmt.Sprint(h.Connections)}, []string{"topics", orNone(h.Topics)})
	for _, x := range h.Sources {
		rows = append(rows, []string{x.Kind, fmt.Sprintf("%s: %s, %d given up", plain(x.Name), plain(x.State), x.Failed)})
	}
	err := s.table([]string{"node", plain(h.NodeID)}, nil, rows)
	if len(h.Groups) > 0 && err == nil {
		fmt.Fprintln(s) // the table has the error
		groups := make([][]string, len(h.Groups))
		for i, g := range h.Groups {
			groups[i] = []string{plain(g.Topic), plain(g.Group), fmt.Sprint(g.Lag), fmt.Sprint(g.InFlight), fmt.Sprint(g.Members),
				rough(time.Duration(g.OldestUnackedS) * time.Second), cmp.Or(plain(g.BlockedBy), "-")}
		}
		err = s.table([]string{"TOPIC", "GROUP", "LAG", "INFLIGHT", "MEMBERS", "OLDEST", "BLOCKED BY"}, nil, groups)
	}
	if len(h.DeadLetters) > 0 && err == nil {
		fmt.Fprintln(s) // likewise
		letters := make([][]string, len(h.DeadLetters))
		for i, d := range h.DeadLetters {
			letters[i] = []string{plain(d.Topic), plain(d.Group), fmt.Sprint(d.Count)}
		}
		err = s.table([]string{"TOPIC", "GROUP", "DEAD LETTERS"}, nil, letters)
	}
	if len(h.Log) > 0 && err == nil {
		_, err = fmt.Fprintf(s, "\n%s\n", strings.Join(h.Log, "\n"))
	}
	return err
}

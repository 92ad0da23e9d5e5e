package scenarios_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-bus/sluice/bench/report"
	"github.com/sluice-bus/sluice/bench/scenarios"
	"github.com/sluice-bus/sluice/test/mongotest"
	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

func TestMain(m *testing.M) {
	for _, program := range []*testkit.Program{testkit.SidecarProgram, testkit.ControlPlaneProgram} {
		bin, err := program.Build()
		if err == nil {
			err = os.Setenv("PATH", filepath.Dir(bin)+string(os.PathListSeparator)+os.Getenv("PATH"))
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	goleak.VerifyTestMain(m)
}

// moment is how long a case is measured at first.
const moment = 200 * time.Millisecond

// small makes a case one of a moment.
func small(p scenarios.Params) scenarios.Params {
	p.Events, p.Connections, p.Topics = min(p.Events, 3000), min(p.Connections, 40), min(p.Topics, 20)
	p.Groups, p.Rate, p.Sidecars = min(p.Groups, 10), min(p.Rate, 300), min(p.Sidecars, 3)
	return p
}

// TestEveryScenarioMeasuresSomething runs each case for a moment with real programs; those of a shared store with the model of
// MongoDB, whose timing is not that of one: only that they work is looked at.
func TestEveryScenarioMeasuresSomething(t *testing.T) {
	for _, s := range scenarios.All() {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			lab := &scenarios.Lab{Dir: t.TempDir(), Size: 64, Sync: time.Millisecond}
			lab.Start = func(ctx context.Context) (scenarios.System, error) { return lab.StartUnlimited(ctx) }
			switch {
			case s.Needs.Paused:
				server := mongotest.Start(t)
				lab.Store, lab.StorePIDs = server.URI("bench_paused"), []int{server.PID()}
			case s.Needs.Shared:
				server := mongotest.Shared(t)
				lab.Store = server.URI(server.NewDatabase(t))
			}
			for _, c := range s.Cases {
				var r *report.Round
				for lab.For = moment; ; lab.For *= 5 { // in which a loaded machine may do nothing
					var err error
					r, err = s.Run(t.Context(), lab, small(c.WithDefaults(lab.Size)))
					require.NoError(t, err)
					if r.Events > 0 || lab.For > testkit.Patience {
						break
					}
				}
				row := &report.Row{}
				row.Fill([]*report.Round{r})
				if r.Events == 0 || row.MPS <= 0 || row.Failed > 0 || row.LimitedBy == "" {
					t.Errorf("%s: %+v", c.Name, row)
				}
			}
		})
	}
}

func TestWhatALabCannotRunSaysWhy(t *testing.T) {
	const pause = "it stops the store for a while: give --store mongodb://… and --store-pids, where MongoDB runs on this machine"
	target, pids := &scenarios.Lab{Target: "http://127.0.0.1:1"}, &scenarios.Lab{Store: "mongodb://h", StorePIDs: []int{1}}
	shared, paused := scenarios.Needs{Own: true, Shared: true}, scenarios.Needs{Own: true, Shared: true, Paused: true}
	for _, c := range []struct {
		needs scenarios.Needs
		lab   *scenarios.Lab
		want  string
	}{
		{shared, target, "it starts its own sidecars, which --target forbids"},
		{shared, &scenarios.Lab{}, "its sidecars share a store: give --store mongodb://…"},
		{shared, &scenarios.Lab{Store: "mongodb://h"}, ""},
		{paused, &scenarios.Lab{}, pause},
		{paused, &scenarios.Lab{Store: "mongodb://h"}, pause},
		{paused, pids, ""},
	} {
		if got := c.needs.Missing(c.lab); got != c.want {
			t.Errorf("%+v: %q, want %q", c.needs, got, c.want)
		}
	}
}

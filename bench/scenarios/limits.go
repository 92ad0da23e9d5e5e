package scenarios

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-bus/sluice/bench/internal/load"
	"github.com/sluice-bus/sluice/bench/report"
	"github.com/sluice-bus/sluice/internal/launch"
)

var limits = Scenario{
	Name: "limits", Asks: "How exactly is a limit kept, by one sidecar and by a fleet together?",
	Cases: []Case{
		{"500/s, one sidecar", Params{Sidecars: 1, Rate: 2000}},
		{"500/s, fleet of three", Params{Sidecars: 3, Rate: 2000}},
	},
	Uses:  []string{"sidecars", "rate", "size", "keys", "batch", "transport"},
	Run:   runLimits,
	Needs: Needs{Own: true},
}

// limited is a limit of 500 a second, and limitedRate and limitedBurst what it says.
const (
	limited = `- name: "*"
  connection: {rate: 0}
  publish: {rate: 500, burst: 50, bytes_per_second: 0, scope: %s}
`
	limitedRate, limitedBurst = 500, 50
)

// settleFleetFor is how long a fleet is loaded before its limit is looked at: twice as long as sidecars go on with what they had
// when a control plane starts.
const settleFleetFor = 4 * time.Second

func runLimits(ctx context.Context, lab *Lab, p Params) (*report.Round, error) {
	fleet, err := lab.limitedFleet(ctx, p.Sidecars)
	if err != nil {
		return nil, err
	}
	defer fleet.Close()
	topic := load.FreshName("limits")
	p.Rate, p.Connections, p.Depth = p.Rate/float64(p.Sidecars), publishers, 64
	if p.Sidecars > 1 { // a control plane that has just started divides nothing yet
		if _, err := lab.offer(ctx, fleet, p, topic, settleFleetFor); err != nil {
			return nil, err
		}
	}
	r, err := lab.offer(ctx, fleet, p, topic, lab.For)
	if err != nil {
		return nil, err
	}
	allowed := limitedRate*r.Took.Seconds() + limitedBurst
	r.Measures, r.Published = "publish to OK", true
	r.Figures = map[string]float64{
		"accepted of what the limit allows (%)": 100 * float64(r.Events) / allowed,
		"refused":                               float64(r.Failed),
	}
	r.Failed = 0 // refusals are what was asked for
	return r, nil
}

// offer publishes through all sidecars of a fleet for a while.
func (l *Lab) offer(ctx context.Context, fleet *Fleet, p Params, topic string, d time.Duration) (*report.Round, error) {
	plans := make([]load.Publishing, len(fleet.sidecars))
	for i, sidecar := range fleet.sidecars {
		plans[i] = sidecar.Publishing(p)
		plans[i].Topic, plans[i].For, plans[i].Limited = topic, d, true
	}
	return l.publishTogether(ctx, fleet, plans)
}

// limitedFleet starts sidecars with a limit of 500 a second, each for itself, or several with a control plane.
func (l *Lab) limitedFleet(ctx context.Context, n int) (f *Fleet, err error) {
	f = &Fleet{}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	scope := "sidecar"
	if n > 1 {
		scope = "fleet"
	}
	dir, policies, err := l.policies(fmt.Sprintf(limited, scope))
	if err != nil {
		return f, err
	}
	flags := []string{"--policies", policies}
	if n > 1 {
		path, err := launch.Find("sluice-controlplane")
		if err != nil {
			return f, err
		}
		f.plane, err = launch.Start(ctx, dir, nil, path, "--xds-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0",
			"--data-dir", dir+"/plane", "--policies", policies)
		if err != nil {
			return f, err
		}
		flags = []string{"--control-plane", f.plane.Ready["xds"]}
	}
	for i := range n {
		dir, err := l.room()
		if err != nil {
			return f, err
		}
		sidecar, err := l.StartSidecar(ctx, dir, append(flags, "--node-id", fmt.Sprint("bench-", i))...)
		if err != nil {
			return f, err
		}
		f.sidecars = append(f.sidecars, sidecar)
	}
	return f, nil
}

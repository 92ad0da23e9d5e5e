package scenarios

import (
	"context"
	"time"

	"github.com/sluice-bus/sluice/bench/internal/load"
	"github.com/sluice-bus/sluice/bench/report"
)

var takeover = Scenario{
	Name: "takeover", Asks: "One of three sidecars is killed under load: how long does an event wait that it would have delivered?",
	Cases: []Case{{"three sidecars, 300 events/s", Params{Sidecars: 3, Rate: 300, Keys: 1000}}},
	Run:   runTakeover,
	Needs: Needs{Own: true, Shared: true},
}

// runTakeover publishes through one sidecar, consumes through two others, and kills one of these halfway.
func runTakeover(ctx context.Context, lab *Lab, p Params) (*report.Round, error) {
	fleet := &Fleet{}
	defer fleet.Close()
	for range p.Sidecars {
		sidecar, err := lab.StartUnlimited(ctx)
		if err != nil {
			return nil, err
		}
		fleet.sidecars = append(fleet.sidecars, sidecar)
	}
	doomed, killed := fleet.sidecars[1], make(chan error, 1)
	consuming := fleet.Consuming(p)
	consuming.Connections = p.Sidecars - 1
	next := 0
	consuming.Open = func(ctx context.Context, plan load.Consuming) (load.Source, error) {
		next++
		plan.URL = fleet.sidecars[next].URL
		source, err := load.Dial(ctx, plan)
		if fleet.sidecars[next] == doomed {
			source = mayEnd{source}
		}
		return source, err
	}
	timer := time.AfterFunc(lab.For/2, func() { killed <- doomed.Kill() })
	defer timer.Stop()
	r, err := lab.atRate(ctx, fleet, p, consuming)
	if err != nil {
		return nil, err
	}
	if err := <-killed; err != nil {
		return nil, err
	}
	r.Figures = map[string]float64{"longest wait of an event (ms)": r.Latency.Summary().Max}
	return r, nil
}

// mayEnd is a source whose end is no failure.
type mayEnd struct{ load.Source }

func (mayEnd) Done() <-chan struct{}       { return nil }
func (mayEnd) Flush(context.Context) error { return nil }

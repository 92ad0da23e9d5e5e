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
	Uses:  append([]string{"sidecars"}, rateUses...),
	Run:   runTakeover,
	Needs: Needs{Own: true, Shared: true, Sidecars: 3},
}

// runTakeover publishes through one sidecar, consumes through two others, and kills one of these halfway.
func runTakeover(ctx context.Context, lab *Lab, p Params) (*report.Round, error) {
	fleet, err := lab.unlimitedFleet(ctx, p.Sidecars)
	if err != nil {
		return nil, err
	}
	defer fleet.Close()
	doomed, killed := fleet.sidecars[1], make(chan error, 1)
	consuming := fleet.Consuming(p)
	consuming.Connections = p.Sidecars - 1
	next, timer := 0, (*time.Timer)(nil)
	consuming.Open = func(ctx context.Context, plan load.Consuming) (load.Source, error) {
		next++
		plan.URL = fleet.sidecars[next].URL
		source, err := load.Dial(ctx, plan)
		if fleet.sidecars[next] == doomed {
			source = &doomedSource{Source: source, subscribed: func() {
				timer = time.AfterFunc(lab.For/2, func() { killed <- doomed.Kill() })
			}}
		}
		return source, err
	}
	r, err := lab.atRate(ctx, mayLose{fleet}, p, consuming)
	if timer != nil && timer.Stop() {
		killed <- nil // the load ended before
	}
	if err != nil {
		return nil, err
	}
	if err := <-killed; err != nil {
		return nil, err
	}
	r.Figures = map[string]float64{"longest wait of an event (ms)": r.Latency.Summary().Max}
	return r, nil
}

// doomedSource is a source whose end is no failure.
type doomedSource struct {
	load.Source
	subscribed func()
}

func (s *doomedSource) Subscribe(ctx context.Context, to load.Sink) error {
	err := s.Source.Subscribe(ctx, to)
	if err == nil {
		s.subscribed()
	}
	return err
}

func (*doomedSource) Done() <-chan struct{}       { return nil }
func (*doomedSource) Flush(context.Context) error { return nil }

// mayLose is a fleet one of which is killed at any time: what its log did is not asked for.
type mayLose struct{ *Fleet }

func (mayLose) Appends(context.Context) (int64, time.Duration, error) { return 0, 0, nil }

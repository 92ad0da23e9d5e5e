package scenarios

import (
	"context"
	"errors"
	"time"

	"github.com/sluice-bus/sluice/bench/internal/node"
	"github.com/sluice-bus/sluice/bench/report"
)

var spool = Scenario{
	Name: "spool", Asks: "The store stands still for a third of the time: what does a publisher notice, and when is everything there?",
	Cases: []Case{{"200 events/s", Params{Rate: 200}}},
	Uses:  []string{"rate", "size", "keys", "topics", "batch", "transport"},
	Run:   runSpool,
	Needs: Needs{Own: true, Shared: true, Paused: true},
}

// runSpool publishes at a rate while the store's processes are stopped and go on again, and waits until nothing is spooled.
func runSpool(ctx context.Context, lab *Lab, p Params) (*report.Round, error) {
	sidecar, err := lab.StartUnlimited(ctx)
	if err != nil {
		return nil, err
	}
	defer sidecar.Close()
	p.Connections, p.Depth = publishers, 64
	plan := sidecar.Publishing(p)
	plan.For = lab.For
	paused := make(chan error, 2)
	pause := time.AfterFunc(lab.For/3, func() { paused <- node.Pause(lab.StorePIDs...) })
	defer pause.Stop()
	resume := time.AfterFunc(2*lab.For/3, func() { paused <- node.Resume(lab.StorePIDs...) })
	defer resume.Stop()
	r, err := lab.publishAll(ctx, sidecar, plan)
	err = errors.Join(err, <-paused, <-paused)
	if err != nil {
		return nil, errors.Join(err, node.Resume(lab.StorePIDs...))
	}
	began := time.Now()
	for {
		sums, err := sidecar.Metrics(ctx)
		if err != nil {
			return nil, err
		}
		if sums["sluice_spool_events"] == 0 {
			break
		}
		select {
		case <-time.After(sampleEvery):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	r.Measures, r.Published, r.Evidence.Rate = "publish to OK", true, p.Rate
	r.Figures = map[string]float64{"ms until nothing was spooled": float64(time.Since(began).Milliseconds())}
	return r, nil
}

package scenarios

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-bus/sluice/bench/internal/node"
	"github.com/sluice-bus/sluice/bench/report"
	"github.com/sluice-bus/sluice/internal/pause"
)

var spool = Scenario{
	Name: "spool", Asks: "The store stands still for a third of the time: what does a publisher notice, and when is everything there?",
	Cases: []Case{{"200 events/s", Params{Rate: 200}}},
	Uses:  []string{"rate", "size", "keys", "topics", "batch", "transport"},
	Run:   runSpool,
	Needs: Needs{Own: true, Shared: true, Paused: true},
}

// Bounds of a sidecar's store timeout, which is half of the time for which the store stands still: else nothing would be spooled.
const (
	leastStoreTimeout = 250 * time.Millisecond
	mostStoreTimeout  = 5 * time.Second // the default
)

// runSpool publishes at a rate while the store's processes are stopped and go on again, and waits until nothing is spooled.
func runSpool(ctx context.Context, lab *Lab, p Params) (*report.Round, error) {
	timeout := min(max(lab.For/6, leastStoreTimeout), mostStoreTimeout)
	sidecar, err := lab.StartUnlimited(ctx, "--store-timeout", timeout.String())
	if err != nil {
		return nil, err
	}
	defer sidecar.Close()
	p.Connections, p.Depth = publishers, 64
	plan := sidecar.Publishing(p)
	plan.For = lab.For
	var r *report.Round
	var figures map[string]float64
	both, ctx := errgroup.WithContext(ctx)
	both.Go(func() (err error) {
		r, err = lab.publishAll(ctx, sidecar, plan)
		return err
	})
	both.Go(func() (err error) {
		figures, err = lab.standStill(ctx, sidecar)
		return err
	})
	if err := both.Wait(); err != nil {
		return nil, err
	}
	r.Measures, r.Published, r.Evidence.Rate = "publish to OK", true, p.Rate
	r.Figures = figures
	return r, nil
}

// standStill stops the store after a third of the time for another third, and waits until the sidecar's spool is empty after that.
// One goroutine stops it and lets it go on, so that this never comes before that.
func (l *Lab) standStill(ctx context.Context, sidecar *Sidecar) (map[string]float64, error) {
	if !pause.For(ctx, l.For/3) {
		return nil, ctx.Err()
	}
	most := 0.
	until := time.Now().Add(l.For / 3)
	err := node.Pause(l.StorePIDs...)
	for err == nil && time.Now().Before(until) {
		var n float64
		n, err = sidecar.spooled(ctx)
		most = max(most, n)
	}
	if err := errors.Join(err, node.Resume(l.StorePIDs...)); err != nil {
		return nil, err
	}
	began := time.Now()
	least, since := math.Inf(1), began
	for {
		n, err := sidecar.spooled(ctx)
		switch now := time.Now(); {
		case err != nil:
			return nil, err
		case n == 0:
			return map[string]float64{
				"most events in the spool":                          most,
				"ms from the store's return until nothing is there": float64(now.Sub(began).Milliseconds()),
			}, nil
		case n < least:
			least, since = n, now
		case now.Sub(since) > patience:
			return nil, fmt.Errorf("the spool does not empty: the store goes on, and for %v there were %.0f events and more", patience, least)
		}
		most = max(most, n)
	}
}

// spooled is how many events the spool has after a moment.
func (s *Sidecar) spooled(ctx context.Context) (float64, error) {
	if !pause.For(ctx, sampleEvery/2) {
		return 0, ctx.Err()
	}
	sums, err := s.Metrics(ctx)
	return sums["sluice_spool_events"], err
}

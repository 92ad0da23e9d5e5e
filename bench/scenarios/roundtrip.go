package scenarios

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-bus/sluice/bench/internal/load"
	"github.com/sluice-bus/sluice/bench/report"
	"github.com/sluice-bus/sluice/sdk/wire"
)

var roundtrip = Scenario{
	Name: "roundtrip", Asks: "How long is the way from a publish to the EVENT, at a rate that is held?", Default: true,
	Cases: []Case{
		{"200 events/s", Params{Rate: 200}},
		{"2,000 events/s", Params{Rate: 2000}},
	},
	Uses: rateUses,
	Run:  runRoundtrip,
}

// publishers is how many connections publish where a rate is to be held: one that waits for its answers would be what limits it.
const publishers = 8

func runRoundtrip(ctx context.Context, lab *Lab, p Params) (*report.Round, error) {
	sys, err := lab.Start(ctx)
	if err != nil {
		return nil, err
	}
	defer sys.Close()
	return lab.atRate(ctx, sys, p, sys.Consuming(p))
}

// atRate publishes at a rate while consumers consume, all of one topic, and measures the way between.
func (l *Lab) atRate(ctx context.Context, sys System, p Params, consuming ...load.Consuming) (*report.Round, error) {
	return l.atRateOnce(ctx, sys, p, func() error { return nil }, consuming...)
}

// atRateOnce is atRate that begins to publish once ready, which is called when all have subscribed, returns.
func (l *Lab) atRateOnce(
	ctx context.Context, sys System, p Params, ready func() error, consuming ...load.Consuming,
) (*report.Round, error) {
	p.Connections, p.Depth = publishers, 64
	publishing := sys.Publishing(p)
	publishing.Topic, publishing.Events = consuming[0].Topic, max(1, int(p.Rate*l.For.Seconds()))
	crowd := make([]*load.Consumer, 0, len(consuming))
	defer func() {
		for _, c := range crowd {
			c.Close()
		}
	}()
	for i := range consuming {
		plan := consuming[i]
		plan.Topic, plan.Events, plan.From = publishing.Topic, publishing.Events, wire.FromLatest
		consumer, err := load.NewConsumer(ctx, plan)
		if err != nil {
			return nil, err
		}
		crowd = append(crowd, consumer)
		if err := consumer.Subscribe(ctx); err != nil {
			return nil, err
		}
	}
	publisher, err := load.NewPublisher(ctx, publishing)
	if err != nil {
		return nil, err
	}
	defer publisher.Close()
	if err := ready(); err != nil {
		return nil, err
	}
	done := func() (sum int64) {
		for _, c := range crowd {
			sum += c.Done()
		}
		return sum
	}
	r, err := l.measure(ctx, sys, measured{done, func(ctx context.Context) (*load.Tally, time.Duration, error) {
		began := time.Now()
		tallies := make([]*load.Tally, len(crowd))
		all, ctx := errgroup.WithContext(ctx)
		all.Go(func() error {
			_, _, err := publisher.Run(ctx)
			return err
		})
		for i, c := range crowd {
			all.Go(func() (err error) {
				tallies[i], err = c.Wait(ctx)
				return err
			})
		}
		err := all.Wait()
		return load.Sum(tallies), time.Since(began), err
	}})
	if r != nil {
		r.Measures, r.Evidence.Rate = "publish to EVENT", p.Rate*float64(len(crowd))
	}
	return r, err
}

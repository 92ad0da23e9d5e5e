package scenarios

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-bus/sluice/bench/internal/load"
	"github.com/sluice-bus/sluice/bench/internal/node"
	"github.com/sluice-bus/sluice/bench/report"
)

var rivals = Scenario{
	Name: "rivals", Asks: "What do sidecars cost each other that publish to one topic, and what does an event cost the database?",
	Cases: []Case{
		{"8 sidecars, one topic", Params{Sidecars: 8, Topics: 1, Rate: 400}},
		{"8 sidecars, a topic each", Params{Sidecars: 8, Topics: 8, Rate: 400}},
	},
	Run:   runRivals,
	Needs: Needs{Own: true, Shared: true},
}

func runRivals(ctx context.Context, lab *Lab, p Params) (*report.Round, error) {
	fleet := &Fleet{}
	defer fleet.Close()
	for range p.Sidecars {
		sidecar, err := lab.StartUnlimited(ctx)
		if err != nil {
			return nil, err
		}
		fleet.sidecars = append(fleet.sidecars, sidecar)
	}
	database, err := connect(ctx, lab.Store)
	if err != nil {
		return nil, err
	}
	defer database.close()
	topic, topics := freshName("rivals"), p.Topics
	p.Topics, p.Rate, p.Depth = 0, p.Rate/float64(p.Sidecars), 64
	crowd := make([]*load.Publisher, 0, p.Sidecars)
	defer func() {
		for _, publisher := range crowd {
			publisher.Close()
		}
	}()
	for i, sidecar := range fleet.sidecars {
		plan := sidecar.Publishing(p)
		plan.Topic, plan.For = fmt.Sprint(topic, ".", i%topics), lab.For
		publisher, err := load.NewPublisher(ctx, plan)
		if err != nil {
			return nil, err
		}
		crowd = append(crowd, publisher)
	}
	used := node.UsageOf(lab.StorePIDs...)
	before := database.prices(ctx)
	r, err := lab.measure(ctx, fleet, together(crowd))
	if err != nil {
		return nil, err
	}
	r.Measures, r.Published, r.Evidence.Rate = "publish to OK", true, p.Rate*float64(p.Sidecars)
	r.Figures = database.prices(ctx).since(before, r.Events)
	if len(lab.StorePIDs) > 0 {
		cpu := node.UsageOf(lab.StorePIDs...).CPU - used.CPU
		r.Figures["ms of MongoDB's CPU of an event"] = cpu.Seconds() * 1000 / float64(max(1, r.Events))
	}
	return r, nil
}

// together is a load of several publishers at once.
func together(crowd []*load.Publisher) measured {
	return measured{
		done: func() (sum int64) {
			for _, publisher := range crowd {
				sum += publisher.Done()
			}
			return sum
		},
		run: func(ctx context.Context) (*load.Tally, time.Duration, error) {
			began, tallies := time.Now(), make([]*load.Tally, len(crowd))
			all, ctx := errgroup.WithContext(ctx)
			for i, publisher := range crowd {
				all.Go(func() (err error) {
					tallies[i], _, err = publisher.Run(ctx)
					return err
				})
			}
			err := all.Wait()
			return load.Sum(tallies), time.Since(began), err
		},
	}
}

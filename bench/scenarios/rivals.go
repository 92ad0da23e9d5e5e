package scenarios

import (
	"cmp"
	"context"
	"fmt"

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
	Uses:  []string{"sidecars", "topics", "rate", "connections", "size", "keys", "batch", "transport"},
	Run:   runRivals,
	Needs: Needs{Own: true, Shared: true},
}

func runRivals(ctx context.Context, lab *Lab, p Params) (*report.Round, error) {
	fleet, err := lab.unlimitedFleet(ctx, p.Sidecars)
	if err != nil {
		return nil, err
	}
	defer fleet.Close()
	database, err := connect(ctx, lab.Store)
	if err != nil {
		return nil, err
	}
	defer database.close()
	topic, topics := load.FreshName("rivals"), p.Topics
	p.Topics, p.Rate, p.Depth = 0, p.Rate/float64(p.Sidecars), 64
	plans := make([]load.Publishing, len(fleet.sidecars))
	for i, sidecar := range fleet.sidecars {
		plans[i] = sidecar.Publishing(p)
		plans[i].Topic, plans[i].For = load.TopicNumber(topic, i%topics), lab.For
	}
	used := node.UsageOf(lab.StorePIDs...)
	before, unknown := database.prices(ctx)
	r, err := lab.publishTogether(ctx, fleet, plans)
	if err != nil {
		return nil, err
	}
	r.Measures, r.Published, r.Evidence.Rate = "publish to OK", true, p.Rate*float64(p.Sidecars)
	after, err := database.prices(ctx)
	if unknown = cmp.Or(unknown, err); unknown != nil {
		r.Unknown = fmt.Sprintf("what an event costs the database, which does not say (the role clusterMonitor may ask): %v", unknown)
		r.Figures = map[string]float64{}
	} else {
		r.Figures = after.since(before, r.Events)
	}
	if len(lab.StorePIDs) > 0 {
		cpu := node.UsageOf(lab.StorePIDs...).CPU - used.CPU
		r.Figures["ms of MongoDB's CPU of an event"] = cpu.Seconds() * 1000 / float64(max(1, r.Events))
	}
	return r, nil
}

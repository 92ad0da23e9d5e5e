package scenarios

import (
	"context"

	"github.com/sluice-bus/sluice/bench/internal/load"
	"github.com/sluice-bus/sluice/bench/report"
)

var scale = Scenario{
	Name: "scale", Asks: "Does an event cost the same where millions are stored (10,000,000 by a file)?",
	Cases: []Case{{"up to a million events", Params{Events: 1_000_000}}},
	Uses:  readUses,
	Run:   runScale,
}

// runScale stores events in batches, and looks at each power of ten what the batches since the one before cost, and what an event
// published by itself takes.
func runScale(ctx context.Context, lab *Lab, p Params) (*report.Round, error) {
	sys, err := lab.Start(ctx)
	if err != nil {
		return nil, err
	}
	defer sys.Close()
	p.Connections, p.Depth, p.Batch = 1, 8, 100
	topic, whole := load.FreshName("scale"), (*report.Round)(nil)
	for stored, next := 0, min(10_000, p.Events); stored < p.Events; next = min(next*10, p.Events) {
		plan := sys.Publishing(p)
		plan.Topic, plan.Events = topic, next-stored
		r, err := lab.publishAll(ctx, sys, plan)
		if err != nil {
			return nil, err
		}
		stored = next
		single := sys.Publishing(Params{Transport: load.TransportWS, Connections: 1, Depth: 1, Batch: 1, Size: p.Size})
		single.Topic, single.Events = topic, 500
		one, err := lab.publishAll(ctx, sys, single)
		if err != nil {
			return nil, err
		}
		r.Points = []report.Point{{
			At: float64(stored), Value: float64(r.CPU.Nanoseconds()) / float64(r.Events), Other: one.Latency.Summary().P50 * 1000,
		}}
		whole = whole.Add(r)
	}
	whole.Published, whole.Measures = true, "publish to OK"
	first, last := whole.Points[0], whole.Points[len(whole.Points)-1]
	whole.Figures = map[string]float64{"CPU of an event among all by one among the first (%)": 100 * last.Value / max(first.Value, 1)}
	whole.PointsOf = [3]string{"events stored", "CPU of an event, ns", "p50 of a publish alone, µs"}
	return whole, nil
}

package scenarios

import (
	"context"

	"github.com/sluice-bus/sluice/bench/internal/load"
	"github.com/sluice-bus/sluice/bench/report"
)

var publish = Scenario{
	Name: "publish", Asks: "How many events a second does it take, and how long does an OK take?", Default: true,
	Cases: []Case{
		{"one by one", Params{}},
		{"64 publishers", Params{Connections: 64}},
		{"pipelined", Params{Connections: 4, Depth: 1000}},
		{"batches of 500", Params{Connections: 4, Depth: 2, Batch: 500}},
		{"HTTP, 64 connections", Params{Connections: 64, Transport: load.TransportHTTP}},
		{"HTTP, batches of 500", Params{Connections: 4, Batch: 500, Transport: load.TransportHTTP}},
	},
	Uses: publishUses,
	Run:  runPublish,
}

func runPublish(ctx context.Context, lab *Lab, p Params) (*report.Round, error) {
	sys, err := lab.Start(ctx)
	if err != nil {
		return nil, err
	}
	defer sys.Close()
	plan := sys.Publishing(p)
	if err := lab.warm(ctx, sys, plan); err != nil {
		return nil, err
	}
	plan.For = lab.For
	r, err := lab.publishAll(ctx, sys, plan)
	if r != nil {
		r.Measures, r.Published = "publish to OK", true
		r.Evidence.Rate = p.Rate
	}
	return r, err
}

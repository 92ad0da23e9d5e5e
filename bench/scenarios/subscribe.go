package scenarios

import (
	"context"

	"github.com/sluice-bus/sluice/bench/report"
)

var subscribe = Scenario{
	Name: "subscribe", Asks: "How many stored events a second does it deliver and take the acks of?", Default: true,
	Cases: []Case{
		{"one by one", Params{Events: 30_000}},
		{"frames of 100", Params{Events: 150_000, Frame: 100}},
	},
	Uses: append([]string{"frame"}, readUses...),
	Run:  runSubscribe,
}

func runSubscribe(ctx context.Context, lab *Lab, p Params) (*report.Round, error) {
	sys, err := lab.Start(ctx)
	if err != nil {
		return nil, err
	}
	defer sys.Close()
	consuming := sys.Consuming(p)
	consuming.Events = p.Events
	if err := lab.store(ctx, sys, p, consuming.Topic); err != nil {
		return nil, err
	}
	return lab.drain(ctx, sys, consuming)
}

package scenarios

import (
	"context"
	"fmt"

	"github.com/sluice-bus/sluice/bench/internal/load"
	"github.com/sluice-bus/sluice/bench/report"
)

var fanout = Scenario{
	Name: "fanout", Asks: "What does each further group of one topic cost?", Default: true,
	Cases: []Case{
		{"1 group", Params{Groups: 1, Rate: 100}},
		{"10 groups", Params{Groups: 10, Rate: 100}},
		{"100 groups", Params{Groups: 100, Rate: 100}},
	},
	Uses: append([]string{"groups"}, rateUses...),
	Run: func(ctx context.Context, lab *Lab, p Params) (*report.Round, error) {
		sys, err := lab.Start(ctx)
		if err != nil {
			return nil, err
		}
		defer sys.Close()
		return lab.atRate(ctx, sys, p, groups(sys.Consuming(p), p.Groups)...)
	},
}

// groups is a load of consumers in groups of their own.
func groups(plan load.Consuming, n int) []load.Consuming {
	all := make([]load.Consuming, n)
	for i := range all {
		all[i] = plan
		all[i].Group = fmt.Sprint(plan.Group, "-", i)
	}
	return all
}

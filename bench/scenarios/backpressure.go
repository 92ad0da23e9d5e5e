package scenarios

import (
	"context"

	"github.com/sluice-bus/sluice/bench/report"
	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/wire"
)

var backpressure = Scenario{
	Name: "backpressure", Asks: "Do nine groups notice a tenth that reads nothing?",
	Cases: []Case{
		{"ten that read", Params{Groups: 10, Rate: 300}},
		{"nine that read, one that does not", Params{Groups: 9, Rate: 300}},
	},
	Uses: append([]string{"groups"}, rateUses...),
	Run: func(ctx context.Context, lab *Lab, p Params) (*report.Round, error) {
		sidecar, err := lab.StartUnlimited(ctx)
		if err != nil {
			return nil, err
		}
		defer sidecar.Close()
		consuming := sidecar.Consuming(p)
		if p.Groups < 10 {
			end, err := stuck(ctx, sidecar, consuming.Topic)
			if err != nil {
				return nil, err
			}
			defer end()
		}
		return lab.atRate(ctx, sidecar, p, groups(consuming, p.Groups)...)
	},
	Needs: Needs{Own: true},
}

// stuck subscribes a member that takes its first event and no other, until end is called.
func stuck(ctx context.Context, sidecar *Sidecar, topic string) (end func(), err error) {
	conn, err := sluice.DialConn(ctx, sidecar.URL, &sluice.ConnOptions{Token: sidecar.token})
	if err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	_, err = conn.Subscribe(ctx, topic, "bench-stuck", nil, func([]wire.Delivery) { <-ended })
	end = func() {
		close(ended)
		_ = conn.Close() // it was not to be used
	}
	if err != nil {
		end()
		return nil, err
	}
	return end, nil
}

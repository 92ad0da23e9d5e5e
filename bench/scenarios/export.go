package scenarios

import (
	"context"

	"github.com/sluice-bus/sluice/bench/report"
	"github.com/sluice-bus/sluice/sdk/admin"
)

var export = Scenario{
	Name: "export", Asks: "How fast is a stored topic exported as lines?",
	Cases: []Case{{"100,000 events", Params{Events: 100_000}}},
	Uses:  readUses,
	Run: func(ctx context.Context, lab *Lab, p Params) (*report.Round, error) {
		return lab.read(ctx, p, func(ctx context.Context, h *admin.HTTP, topic string, one func()) error {
			for _, err := range h.ExportLines(ctx, admin.ExportQuery{Topic: topic}) {
				if err != nil {
					return err
				}
				one()
			}
			return nil
		})
	},
}

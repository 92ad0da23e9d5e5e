package scenarios

import (
	"context"
	"time"

	"github.com/sluice-bus/sluice/bench/internal/load"
	"github.com/sluice-bus/sluice/bench/report"
	"github.com/sluice-bus/sluice/sdk/admin"
)

var replay = Scenario{
	Name: "replay", Asks: "How fast is a stored topic read in the order of time, page by page?",
	Cases: []Case{{"100,000 events", Params{Events: 100_000}}},
	Uses:  readUses,
	Run: func(ctx context.Context, lab *Lab, p Params) (*report.Round, error) {
		return lab.read(ctx, p, func(ctx context.Context, h *admin.HTTP, topic string, one func()) error {
			for _, err := range h.ReplayEvents(ctx, admin.ReplayQuery{Topic: topic}) {
				if err != nil {
					return err
				}
				one()
			}
			return nil
		})
	},
}

// read stores events and measures how they are read.
func (l *Lab) read(ctx context.Context, p Params, all func(ctx context.Context, h *admin.HTTP, topic string, one func()) error,
) (*report.Round, error) {
	sys, err := l.Start(ctx)
	if err != nil {
		return nil, err
	}
	defer sys.Close()
	topic := load.FreshName("read")
	if err := l.store(ctx, sys, p, topic); err != nil {
		return nil, err
	}
	plan := sys.Publishing(p)
	h := &admin.HTTP{AppURL: plan.URL, Token: plan.Token}
	defer h.CloseIdle()
	count := new(load.Count)
	return l.measure(ctx, sys, measured{count.Done, func(ctx context.Context) (*load.Tally, time.Duration, error) {
		began := time.Now()
		err := all(ctx, h, topic, count.One)
		return count.Tally(), time.Since(began), err
	}})
}

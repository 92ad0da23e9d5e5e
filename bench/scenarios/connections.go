package scenarios

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/sluice-bus/sluice/bench/internal/latency"
	"github.com/sluice-bus/sluice/bench/internal/node"
	"github.com/sluice-bus/sluice/bench/report"
	sluice "github.com/sluice-bus/sluice/sdk"
)

var connections = Scenario{
	Name: "connections", Asks: "What does a connection cost that does nothing, and how do many do that do little?",
	Cases: []Case{
		{"10,000 idle, dialled one by one", Params{Connections: 10_000}},
		{"1,000 with an event a second each", Params{Connections: 1000, Rate: 1000}},
	},
	Uses: publishUses,
	Run: func(ctx context.Context, lab *Lab, p Params) (*report.Round, error) {
		sidecar, err := lab.StartUnlimited(ctx)
		if err != nil {
			return nil, err
		}
		defer sidecar.Close()
		if p.Rate > 0 {
			plan := sidecar.Publishing(p)
			plan.For = lab.For
			r, err := lab.publishAll(ctx, sidecar, plan)
			if r != nil {
				r.Measures, r.Published, r.Evidence.Rate = "publish to OK", true, p.Rate
			}
			return r, err
		}
		return lab.idle(ctx, sidecar, p.Connections)
	},
	Needs: Needs{Own: true},
}

// settleFor is how long a sidecar is left alone before its memory is looked at.
const settleFor = 2 * time.Second

// idle opens connections and leaves them alone.
func (l *Lab) idle(ctx context.Context, sidecar *Sidecar, n int) (*report.Round, error) {
	before := node.UsageOf(sidecar.Processes()...)
	open := make([]*sluice.Conn, 0, n)
	defer func() {
		for _, c := range open {
			_ = c.Close() // nothing was sent
		}
	}()
	began := time.Now()
	dialled := latency.New()
	for range n {
		at := time.Now()
		conn, err := sluice.DialConn(ctx, sidecar.URL, &sluice.ConnOptions{})
		if err != nil {
			return nil, fmt.Errorf("after %d connections: %w", len(open), err)
		}
		open = append(open, conn)
		dialled.Record(time.Since(at))
		if l.Progress != nil {
			l.Progress(int64(len(open)))
		}
	}
	took := time.Since(began)
	select {
	case <-time.After(settleFor):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	at, idle := time.Now(), node.UsageOf(sidecar.Processes()...)
	select {
	case <-time.After(l.For):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	after := node.UsageOf(sidecar.Processes()...)
	return &report.Round{
		Evidence: report.Evidence{Took: took, Cores: runtime.NumCPU(), InTurn: true},
		Events:   n, Took: took, Latency: dialled, Measures: "dial to connected", CPU: idle.CPU - before.CPU, Memory: after.Memory,
		Figures: map[string]float64{
			"KiB for a connection":            float64(after.Memory-before.Memory) / 1024 / float64(n),
			"% of a core while all are idle":  100 * (after.CPU - idle.CPU).Seconds() / time.Since(at).Seconds(),
			"connections dialled in a second": float64(n) / took.Seconds(),
		},
	}, nil
}

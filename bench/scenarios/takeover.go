package scenarios

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/sluice-bus/sluice/bench/internal/load"
	"github.com/sluice-bus/sluice/bench/report"
	"github.com/sluice-bus/sluice/internal/pause"
	"github.com/sluice-bus/sluice/sdk/admin"
	"github.com/sluice-bus/sluice/sdk/wire"
)

var takeover = Scenario{
	Name: "takeover", Asks: "One of three sidecars is killed under load: how long does an event wait that it would have delivered?",
	Cases: []Case{{"three sidecars, 300 events/s", Params{Sidecars: 3, Rate: 300, Keys: 1000}}},
	Uses:  append([]string{"sidecars"}, rateUses...),
	Run:   runTakeover,
	Needs: Needs{Own: true, Shared: true, Sidecars: 3},
}

// runTakeover publishes through one sidecar, consumes through two others, and kills one of these halfway.
func runTakeover(ctx context.Context, lab *Lab, p Params) (*report.Round, error) {
	fleet, err := lab.unlimitedFleet(ctx, p.Sidecars)
	if err != nil {
		return nil, err
	}
	defer fleet.Close()
	doomed, killed := fleet.sidecars[1], make(chan error, 1)
	consuming := fleet.Consuming(p)
	consuming.Connections = p.Sidecars - 1
	h := &admin.HTTP{AppURL: fleet.sidecars[0].URL}
	defer h.CloseIdle()
	if _, err := h.MakeTopic(ctx, consuming.Topic); err != nil {
		return nil, err
	}
	next, timer := 0, (*time.Timer)(nil)
	consuming.Open = func(ctx context.Context, plan load.Consuming) (load.Source, error) {
		next++
		plan.URL = fleet.sidecars[next].URL
		source, err := load.Dial(ctx, plan)
		if fleet.sidecars[next] == doomed {
			source = doomedSource{source}
		}
		return source, err
	}
	r, err := lab.atRateOnce(ctx, mayLose{fleet}, p, func() error {
		err := shared(ctx, h, &consuming)
		timer = time.AfterFunc(lab.For/2, func() { killed <- doomed.Kill() })
		return err
	}, consuming)
	if timer != nil && timer.Stop() {
		killed <- nil // the load ended before
	}
	if err != nil {
		return nil, err
	}
	if err := <-killed; err != nil {
		return nil, err
	}
	r.Evidence.Killed = true
	r.Figures = map[string]float64{"longest wait of an event (ms)": r.Latency.Summary().Max}
	return r, nil
}

// shared waits until every consumer's sidecar delivers from partitions of the topic, and somebody from each partition.
func shared(ctx context.Context, h *admin.HTTP, consuming *load.Consuming) error {
	for end := time.Now().Add(patience); ; {
		group, err := h.GroupInfo(ctx, consuming.Topic, consuming.Group)
		if refusal, ok := errors.AsType[*wire.Error](err); err != nil && !(ok && refusal.Code == wire.NotFound) {
			return err
		}
		owners := map[string]bool{}
		for _, p := range group.Partitions {
			owners[p.Owner] = true
		}
		if len(owners) == consuming.Connections && !owners[""] {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("%d sidecars do not share the partitions of %s within %v: they are delivered from by %q",
				consuming.Connections, consuming.Topic, patience, slices.Sorted(maps.Keys(owners)))
		}
		if !pause.For(ctx, sampleEvery) {
			return ctx.Err()
		}
	}
}

// doomedSource is a source whose end is no failure.
type doomedSource struct{ load.Source }

func (doomedSource) Done() <-chan struct{}       { return nil }
func (doomedSource) Flush(context.Context) error { return nil }

func (s doomedSource) Subscribe(ctx context.Context, to load.Sink) error {
	return s.Source.Subscribe(ctx, doomedSink{to})
}

// doomedSink takes an ack without an answer for no failure: its event is delivered again by another sidecar.
type doomedSink struct{ load.Sink }

func (s doomedSink) Refused(err error) {
	if _, refusal := errors.AsType[*wire.Error](err); refusal {
		s.Sink.Refused(err)
	}
}

// mayLose is a fleet one of which is killed at any time: what its log did is not asked for.
type mayLose struct{ *Fleet }

func (mayLose) Appends(context.Context) (int64, time.Duration, error) { return 0, 0, nil }

package scenarios

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/sluice-bus/sluice/bench/internal/latency"
	"github.com/sluice-bus/sluice/bench/internal/load"
	"github.com/sluice-bus/sluice/bench/internal/node"
	"github.com/sluice-bus/sluice/bench/report"
)

// A Lab is where scenarios run.
type Lab struct {
	// Start starts a new system, or returns the one that runs.
	Start func(ctx context.Context) (System, error)
	// Dir holds what the scenarios write, on the disk that is measured.
	Dir string
	// Store is the sidecars' store; "": embedded.
	Store string
	// Target is the sidecar that runs and is to be measured; "": scenarios start their own.
	Target, Token string
	// Size is the bytes of a payload where a case names none, and For how long one round takes.
	Size int
	For  time.Duration
	// StorePIDs are the processes of the MongoDB, where they run on this machine.
	StorePIDs []int
	// Sync is how long the disk takes to make a block durable.
	Sync time.Duration
	// Progress is called with what is done so far; nil: nobody looks.
	Progress func(events int64)
}

// NewLab makes a lab in a folder of its own in dir, whose disk it looks at, for Close to remove. Its Start is still to be set.
func NewLab(dir string) (l *Lab, err error) {
	l = &Lab{}
	if l.Dir, err = os.MkdirTemp(dir, "sluice-bench-*"); err != nil {
		return nil, err
	}
	if l.Sync, err = node.Syncs(l.Dir); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// Close removes what the scenarios have written.
func (l *Lab) Close() error { return os.RemoveAll(l.Dir) }

// Machine is what the lab runs on.
func (l *Lab) Machine() report.Machine {
	return report.Machine{
		OS: runtime.GOOS, Arch: runtime.GOARCH, Cores: runtime.NumCPU(), CPU: node.CPU(), SyncMS: latency.Milliseconds(l.Sync),
	}
}

// sampleEvery is how long a step of a round's throughput is.
const sampleEvery = 100 * time.Millisecond

// warmFor is how long a system is loaded before it is measured: its files, connections and the runtime's heap are there then.
const warmFor = 500 * time.Millisecond

// room is a folder of its own.
func (l *Lab) room() (string, error) { return os.MkdirTemp(l.Dir, "node-*") }

// measured is a load that runs: what it has done so far, and its end.
type measured struct {
	done func() int64
	run  func(ctx context.Context) (*load.Tally, time.Duration, error)
}

// measure runs a load against a system, and looks at what both use.
func (l *Lab) measure(ctx context.Context, sys System, m measured) (*report.Round, error) {
	appends, appending, err := sys.Appends(ctx)
	if err != nil {
		return nil, err
	}
	server, client := node.UsageOf(sys.Processes()...), node.Self()
	busy, all := node.Machine()
	samples := l.sample(m.done)
	tally, took, err := m.run(ctx)
	series := samples()
	if err != nil {
		return nil, fmt.Errorf("the load ended early: %w", err)
	}
	busyAfter, allAfter := node.Machine()
	serverAfter, clientAfter := node.UsageOf(sys.Processes()...), node.Self()
	appendsAfter, appendingAfter, err := sys.Appends(ctx)
	if err != nil {
		return nil, err
	}
	r := &report.Round{
		Events: tally.Done, Took: took, Latency: tally.Latency, Failed: tally.Failed, Errors: tally.Errors, Duplicates: tally.Duplicates,
		Series: series, CPU: serverAfter.CPU - server.CPU, Memory: serverAfter.Memory,
	}
	r.Evidence = report.Evidence{
		Took: took, Events: tally.Done, Cores: runtime.NumCPU(), Server: r.CPU, Client: clientAfter.CPU - client.CPU,
		Appends: appendsAfter - appends, Appending: appendingAfter - appending, Sync: l.Sync, RateLimited: tally.Errors["rate_limited"],
		Shared: l.Store != "",
	}
	if there := allAfter - all; there > 0 {
		r.Evidence.Busy = float64(busyAfter-busy) / float64(there)
	}
	return r, nil
}

// sample counts what is done in each step of time, until the returned function is called.
func (l *Lab) sample(done func() int64) (stop func() []int64) {
	var series []int64
	var sampling sync.WaitGroup
	end := make(chan struct{})
	sampling.Go(func() {
		tick := time.NewTicker(sampleEvery)
		defer tick.Stop()
		for before := done(); ; {
			select {
			case <-end:
				return
			case <-tick.C:
				now := done()
				series = append(series, now-before)
				before = now
				if l.Progress != nil {
					l.Progress(now)
				}
			}
		}
	})
	return func() []int64 {
		close(end)
		sampling.Wait()
		return series
	}
}

// warm loads a system for a while, and each topic of the load with an event at least.
func (l *Lab) warm(ctx context.Context, sys System, plan load.Publishing) error {
	if plan.Topics > 0 {
		each := plan
		each.Batch, each.Events, each.Rate = 1, plan.Topics, 0
		if _, err := l.publishAll(ctx, sys, each); err != nil {
			return err
		}
	}
	plan.For, plan.Events = warmFor, 0
	_, err := l.publishAll(ctx, sys, plan)
	return err
}

// publishAll publishes what the plan says and measures it.
func (l *Lab) publishAll(ctx context.Context, sys System, plan load.Publishing) (*report.Round, error) {
	publisher, err := load.NewPublisher(ctx, plan)
	if err != nil {
		return nil, err
	}
	defer publisher.Close()
	return l.measure(ctx, sys, measured{publisher.Done, publisher.Run})
}

// store publishes the case's events to a topic in the fastest way.
func (l *Lab) store(ctx context.Context, sys System, p Params, topic string) error {
	p.Connections, p.Depth, p.Batch, p.Rate, p.Transport = 1, 8, 100, 0, load.TransportWS
	plan := sys.Publishing(p)
	plan.Topic, plan.Events = topic, p.Events
	publisher, err := load.NewPublisher(ctx, plan)
	if err != nil {
		return err
	}
	tally, _, err := publisher.Run(ctx)
	if err == nil && tally.Failed > 0 {
		err = fmt.Errorf("%d of %d events could not be published: %v", tally.Failed, p.Events, tally.Errors)
	}
	return err
}

// drain consumes the events of a topic, and measures it.
func (l *Lab) drain(ctx context.Context, sys System, plan load.Consuming) (*report.Round, error) {
	consumer, err := load.NewConsumer(ctx, plan)
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	r, err := l.measure(ctx, sys, measured{consumer.Done, func(ctx context.Context) (*load.Tally, time.Duration, error) {
		began := time.Now()
		if err := consumer.Subscribe(ctx); err != nil {
			return nil, 0, err
		}
		tally, err := consumer.Wait(ctx)
		return tally, time.Since(began), err
	}})
	if r != nil {
		r.Latency = nil // how long stored events lay there is no latency
	}
	return r, err
}

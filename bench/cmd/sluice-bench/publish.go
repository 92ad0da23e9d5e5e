package main

import (
	"context"

	"github.com/sluice-bus/sluice/bench/internal/load"
	"github.com/sluice-bus/sluice/bench/report"
	"github.com/sluice-bus/sluice/internal/program"
)

// defaultDepth is enough to keep a WebSocket busy, without needless queueing.
const defaultDepth = 64

type publishCommand struct {
	target
	pipeline
	Rate float64 `help:"Events a second of all connections together, each at its time; 0: as fast as it goes."`
}

// pipeline is how a load uses its connections.
type pipeline struct {
	Transport   string `enum:"ws,http" default:"ws" help:"ws (WebSocket) or http (NDJSON where --batch is above 1)."`
	Connections int    `default:"1" help:"How many connections."`
	Depth       int    `help:"Requests of a connection that may wait for their answer; 1: synchronous; 0: 64, or 1 with http."`
	Batch       int    `default:"1" help:"Events of a request."`
}

func (p *pipeline) validate() error {
	switch {
	case p.Connections < 1:
		return program.Usagef("--connections is %d; it has to be at least 1", p.Connections)
	case p.Batch < 1:
		return program.Usagef("--batch is %d; it has to be at least 1", p.Batch)
	case p.Depth < 0:
		return program.Usagef("--depth is %d; it has to be at least 1, or 0 for the default", p.Depth)
	case p.Depth > 1 && p.Transport == load.TransportHTTP:
		return program.Usagef("--depth is %d, but http has one request at a time on a connection: use --connections", p.Depth)
	case p.Depth == 0 && p.Transport == load.TransportHTTP:
		p.Depth = 1
	case p.Depth == 0:
		p.Depth = defaultDepth
	}
	return nil
}

func (p *publishCommand) Help() string {
	return `Without --rate, a latency counts from the send, and the next send waits for a
place in the pipeline (--depth). With it, events are due at fixed times, and a
latency counts from when its event was due, so that stalls are not left out.

Examples:

  sluice-bench publish --events 100000
  sluice-bench publish --connections 64 --depth 1
  sluice-bench publish --transport http --batch 500
  sluice-bench publish --rate 2000 --events 20000`
}

// Run runs the bench.
func (p *publishCommand) Run(ctx context.Context, app *program.App) error {
	if err := p.target.validate(); err != nil {
		return err
	}
	if err := p.pipeline.validate(); err != nil {
		return err
	}
	if p.Rate < 0 {
		return program.Usagef("--rate is %v; it has to be 0 or more", p.Rate)
	}
	if p.Topic == "" {
		p.Topic = load.FreshName("publish")
	}
	plan := p.plan(&p.pipeline, p.Rate)
	publisher, err := load.NewPublisher(ctx, plan)
	if err != nil {
		return err
	}
	done := watch(app, "publishing", p.Events, publisher.Done)
	tally, took, err := publisher.Run(ctx)
	done()
	r := &report.Report{Command: "publish", Published: &tally.Done, Parameters: plan}
	r.Rate(tally.Done, took)
	fill(r, tally, "from publish to OK")
	return finish(app, r, err)
}

// plan is the load that the flags describe.
func (t *target) plan(p *pipeline, rate float64) load.Publishing {
	return load.Publishing{
		URL: t.URL, Token: t.Token, Transport: p.Transport, Topic: t.Topic, Events: t.Events, Size: t.Size,
		Connections: p.Connections, Depth: p.Depth, Batch: p.Batch, Keys: t.Keys, Rate: rate,
	}
}

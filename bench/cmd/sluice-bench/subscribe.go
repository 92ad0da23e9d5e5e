package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-bus/sluice/bench/internal/load"
	"github.com/sluice-bus/sluice/bench/report"
	"github.com/sluice-bus/sluice/internal/program"
	"github.com/sluice-bus/sluice/sdk/wire"
)

type subscribeCommand struct {
	target
	Group       string        `xor:"group" help:"The consumer group (default: a fresh one)."`
	NoGroup     bool          `xor:"group" help:"Subscribe without a group: each connection gets every event, and nothing is acked."`
	Connections int           `default:"1" help:"How many connections subscribe."`
	Window      int           `default:"1000" help:"Events that a connection may hold unacked (maxInflight)."`
	MaxBatch    int           `default:"1" help:"Events that the sidecar may send in one frame; they are acked in one, too."`
	PublishRate float64       `xor:"mode" placeholder:"N" help:"Publish that many events a second here, and measure from publish to EVENT."`
	PublishURL  string        `placeholder:"URL" help:"With --publish-rate: publish through this sidecar, on the same store as the other."`
	Drain       bool          `xor:"mode" help:"Consume what is there already, from the earliest on; without --topic it is published first."`
	Patience    time.Duration `default:"30s" help:"Give up when no event came for so long."`
}

func (*subscribeCommand) Help() string {
	return `Three ways to run:

  --publish-rate N   the events are published by this process, on a connection
                     of its own, N a second; latencies count from the time when
                     an event was due
  --drain            how fast events that are there already are consumed and
                     acked; the time ends with the last ack's answer
  neither            waits for a sluice-bench publish elsewhere; the time begins
                     with the first event, latencies need clocks that agree

Examples:

  sluice-bench subscribe --publish-rate 2000 --events 20000
  sluice-bench subscribe --publish-rate 100 --publish-url http://other:7070 --events 1000
  sluice-bench subscribe --drain --events 100000 --max-batch 100
  sluice-bench subscribe --topic bench.mine --events 20000`
}

// Run runs the bench.
func (s *subscribeCommand) Run(ctx context.Context, app *program.App) error {
	if err := s.validate(); err != nil {
		return err
	}
	if err := s.prepare(ctx, app); err != nil {
		return err
	}
	consumer, err := load.NewConsumer(ctx, s.consuming())
	if err != nil {
		return err
	}
	defer consumer.Close()
	var publisher *load.Publisher
	if s.PublishRate > 0 {
		ws := &pipeline{Transport: load.TransportWS, Connections: 1, Depth: defaultDepth, Batch: 1}
		plan := s.plan(ws, s.PublishRate)
		if s.PublishURL != "" {
			plan.URL = s.PublishURL
		}
		if publisher, err = load.NewPublisher(ctx, plan); err != nil {
			return err
		}
		defer publisher.Close()
	}
	total := s.Events
	if s.Group == "" {
		total *= s.Connections
	}
	done := watch(app, "consuming", total, consumer.Done)
	r, err := s.measure(ctx, consumer, publisher)
	done()
	if r == nil {
		return err
	}
	return finish(app, r, err)
}

// measure runs both sides to their ends.
func (s *subscribeCommand) measure(ctx context.Context, consumer *load.Consumer, publisher *load.Publisher) (*report.Report, error) {
	start := time.Now() // stored events come with the subscription
	if err := consumer.Subscribe(ctx); err != nil {
		return nil, err
	}
	consumed, published := new(load.Tally), new(load.Tally)
	both, ctx := errgroup.WithContext(ctx)
	if publisher != nil {
		start = time.Now()
		both.Go(func() (err error) {
			published, _, err = publisher.Run(ctx)
			if err == nil && published.Failed > 0 {
				err = fmt.Errorf("%d events could not be published", published.Failed)
			}
			return err
		})
	}
	both.Go(func() (err error) {
		consumed, err = consumer.Wait(ctx)
		return err
	})
	err := both.Wait()
	took := time.Since(start)
	if publisher == nil && !s.Drain {
		took = consumer.SinceFirst() // the publisher is another process
	}
	r := &report.Report{Command: "subscribe", Consumed: &consumed.Done, Parameters: s.parameters()}
	r.Rate(consumed.Done, took)
	measures := "from publish to EVENT"
	if s.Drain {
		measures = "" // how long the events lay there is no latency
	}
	fill(r, consumed, measures)
	r.Failed += published.Failed
	for code, n := range published.Errors {
		r.Errors[code] += n
	}
	return r, err
}

func (s *subscribeCommand) validate() error {
	switch {
	case s.Connections < 1:
		return program.Usagef("--connections is %d; it has to be at least 1", s.Connections)
	case s.Window < 1 || s.Window > wire.MaxInflight:
		return program.Usagef("--window is %d; allowed is 1 to %d", s.Window, wire.MaxInflight)
	case s.MaxBatch < 1 || s.MaxBatch > wire.MaxDeliverBatch:
		return program.Usagef("--max-batch is %d; allowed is 1 to %d", s.MaxBatch, wire.MaxDeliverBatch)
	case s.PublishURL != "" && s.PublishRate == 0:
		return program.Usagef("--publish-url needs --publish-rate: without it nothing is published here")
	case s.PublishRate < 0:
		return program.Usagef("--publish-rate is %v; it has to be above 0", s.PublishRate)
	case s.Patience <= 0:
		return program.Usagef("--patience is %v; it has to be above 0", s.Patience)
	}
	return s.target.validate()
}

// prepare names what the flags leave open, and makes sure that there is something to drain.
func (s *subscribeCommand) prepare(ctx context.Context, app *program.App) error {
	if s.Group == "" && !s.NoGroup {
		s.Group = load.FreshName("group")
	}
	if s.Topic != "" {
		return nil
	}
	s.Topic = load.FreshName("subscribe")
	if !s.Drain {
		return nil
	}
	publisher, err := load.NewPublisher(ctx, s.plan(&pipeline{Transport: load.TransportWS, Connections: 1, Depth: 8, Batch: 100}, 0))
	if err != nil {
		return err
	}
	done := watch(app, "publishing", s.Events, publisher.Done)
	tally, _, err := publisher.Run(ctx)
	done()
	if err == nil && tally.Failed > 0 {
		err = fmt.Errorf("%d events could not be published", tally.Failed)
	}
	return explain(err)
}

func (s *subscribeCommand) consuming() load.Consuming {
	from := wire.FromLatest
	if s.Drain {
		from = wire.FromEarliest
	}
	return load.Consuming{
		URL: s.URL, Token: s.Token, Topic: s.Topic, Group: s.Group, From: from, Events: s.Events,
		Connections: s.Connections, Window: s.Window, MaxBatch: s.MaxBatch, Patience: s.Patience,
	}
}

// parameters are those of the report.
func (s *subscribeCommand) parameters() any {
	return struct {
		load.Consuming
		Size        int     `json:"size"`
		Keys        int     `json:"keys"`
		PublishRate float64 `json:"publish_rate"`
		PublishURL  string  `json:"publish_url,omitempty"`
		Drain       bool    `json:"drain"`
	}{s.consuming(), s.Size, s.Keys, s.PublishRate, s.PublishURL, s.Drain}
}

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sluice-bus/sluice/bench/internal/load"
	"github.com/sluice-bus/sluice/bench/scenarios"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// serveNATS runs a JetStream server until it is told to end: a process of its own, so that its CPU is counted apart.
func serveNATS(dir string, sync bool) error {
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: dir, SyncAlways: sync, NoSigs: true,
	})
	if err != nil {
		return err
	}
	s.Start()
	if !s.ReadyForConnections(30 * time.Second) {
		return errors.New("the NATS server is not ready after 30 s")
	}
	fmt.Printf("{\"ready\":true,\"listen\":%q}\n", s.ClientURL())
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM, syscall.SIGINT)
	<-end
	s.Shutdown()
	s.WaitForShutdown()
	return nil
}

// jetStream is a peer: a stream of JetStream in files, its messages with ids.
func jetStream(sync bool) peer {
	p := peer{name: "JetStream", version: func() string { return server.VERSION }, durability: "not fsynced"}
	args := []string{"serve-nats"}
	if sync {
		p.durability = "fsynced (sync_always)"
		args = append(args, "sync")
	}
	p.start = func(ctx context.Context, dir string) (scenarios.System, error) {
		program, err := self(ctx, dir, append(args, dir)...)
		if err != nil {
			return nil, err
		}
		url := program.Ready["listen"]
		nc, js, err := dialNATS(url)
		if err != nil {
			return nil, errors.Join(err, program.Stop())
		}
		defer nc.Close()
		if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "bench", Subjects: []string{"bench.>"}}); err != nil {
			return nil, errors.Join(err, program.Stop())
		}
		return broker{
			processes: []int{program.PID()}, stop: program.Stop,
			publisher: func(ctx context.Context, p load.Publishing) (load.Carrier, error) { return newNATSCarrier(url, &p) },
			consumer:  func(ctx context.Context, c load.Consuming) (load.Source, error) { return newNATSSource(ctx, url, &c) },
		}, nil
	}
	return p
}

// dialNATS connects.
func dialNATS(url string) (*nats.Conn, jetstream.JetStream, error) {
	nc, err := nats.Connect(url)
	if err != nil {
		return nil, nil, err
	}
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(maxPending))
	if err != nil {
		nc.Close()
		return nil, nil, err
	}
	return nc, js, nil
}

// maxPending is enough for the deepest pipeline times its batch.
const maxPending = 10_000

// natsCarrier publishes asynchronously.
type natsCarrier struct {
	nc      *nats.Conn
	js      jetstream.JetStream
	answers *answers[jetstream.PubAckFuture]
}

func newNATSCarrier(url string, p *load.Publishing) (load.Carrier, error) {
	nc, js, err := dialNATS(url)
	if err != nil {
		return nil, err
	}
	acked := func(ack jetstream.PubAckFuture) error {
		select {
		case <-ack.Ok():
			return nil
		case err := <-ack.Err():
			return err
		}
	}
	return &natsCarrier{nc: nc, js: js, answers: newAnswers(p.Depth, acked)}, nil
}

func (c *natsCarrier) Send(events []wire.Event, s *load.Slot) error {
	request := sent[jetstream.PubAckFuture]{slot: s}
	for i := range events {
		id := strconv.FormatInt(messageIDs.Add(1), 36)
		ack, err := c.js.PublishAsync("bench."+events[i].Topic, events[i].Payload, jetstream.WithMsgID(id))
		if err != nil {
			return err
		}
		request.each = append(request.each, ack)
	}
	c.answers.sent <- request
	return nil
}

func (c *natsCarrier) Flush() error {
	c.answers.wait()
	return nil
}

func (c *natsCarrier) Close() {
	c.answers.wait()
	c.nc.Close()
}

// natsSource consumes with explicit acks.
type natsSource struct {
	nc      *nats.Conn
	js      jetstream.JetStream
	plan    *load.Consuming
	running jetstream.ConsumeContext
	ended   chan struct{}
}

func newNATSSource(_ context.Context, url string, c *load.Consuming) (load.Source, error) {
	nc, js, err := dialNATS(url)
	if err != nil {
		return nil, err
	}
	return &natsSource{nc: nc, js: js, plan: c, ended: make(chan struct{})}, nil
}

func (s *natsSource) Subscribe(ctx context.Context, to load.Sink) error {
	config := jetstream.ConsumerConfig{
		Durable: s.plan.Group, FilterSubject: "bench." + s.plan.Topic, AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: s.plan.Window,
		DeliverPolicy: jetstream.DeliverAllPolicy,
	}
	if s.plan.From == wire.FromLatest {
		config.DeliverPolicy = jetstream.DeliverNewPolicy
	}
	consumer, err := s.js.CreateOrUpdateConsumer(ctx, "bench", config)
	if err != nil {
		return err
	}
	one := make([]wire.Delivery, 1)
	s.running, err = consumer.Consume(func(m jetstream.Msg) {
		if !to.Wanted() {
			return
		}
		about, err := m.Metadata()
		if err == nil {
			err = m.Ack()
		}
		if err != nil {
			to.Refused(err)
			return
		}
		one[0].Event = wire.Event{Seq: about.Sequence.Stream, Payload: m.Data()}
		to.Deliver(one)
	}, jetstream.PullMaxMessages(s.plan.Window))
	return err
}

func (s *natsSource) Flush(context.Context) error { return s.nc.FlushTimeout(30 * time.Second) }
func (s *natsSource) Done() <-chan struct{}       { return s.ended }
func (s *natsSource) Err() error                  { return s.nc.LastError() }

func (s *natsSource) Close() {
	if s.running != nil {
		s.running.Stop()
	}
	s.nc.Close()
}

package main

import (
	"context"
	"errors"
	"net"
	"strconv"
	"sync"

	rabbitmq "github.com/rabbitmq/amqp091-go"
	"github.com/rabbitmq/rabbitmq-stream-go-client/pkg/amqp"
	"github.com/rabbitmq/rabbitmq-stream-go-client/pkg/logs"
	"github.com/rabbitmq/rabbitmq-stream-go-client/pkg/message"
	"github.com/rabbitmq/rabbitmq-stream-go-client/pkg/stream"

	"github.com/sluice-bus/sluice/bench/internal/load"
	"github.com/sluice-bus/sluice/bench/scenarios"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// streams is a peer: a stream of RabbitMQ, which leaves the syncing of its files to the system.
func (r *rabbit) streams() peer {
	return peer{
		name: "RabbitMQ stream", version: r.version, durability: "not fsynced", missing: notInstalled(rabbitProgram),
		start: func(ctx context.Context, dir string) (scenarios.System, error) {
			if err := r.ensure(ctx, dir); err != nil {
				return nil, err
			}
			return broker{
				processes: []int{r.node.PID()}, stop: r.forget,
				publisher: func(_ context.Context, p load.Publishing) (load.Carrier, error) { return r.newStreamCarrier(&p) },
				consumer:  func(_ context.Context, c load.Consuming) (load.Source, error) { return r.newStreamSource(&c) },
			}, nil
		},
	}
}

// quiet is a logger for a client that warns of each connection that it closes.
type quiet struct{}

func (quiet) Info(string, ...any)  {}
func (quiet) Error(string, ...any) {}
func (quiet) Debug(string, ...any) {}
func (quiet) Warn(string, ...any)  {}

func init() { logs.SetLogger(quiet{}) }

// openStream connects, and declares a stream.
func (r *rabbit) openStream(name string) (*stream.Environment, error) {
	host, port, err := net.SplitHostPort(r.stream)
	if err != nil {
		return nil, err
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		return nil, err
	}
	env, err := stream.NewEnvironment(stream.NewEnvironmentOptions().SetHost(host).SetPort(number).SetUser("guest").SetPassword("guest"))
	if err != nil {
		return nil, err
	}
	err = env.DeclareStream(name, stream.NewStreamOptions().SetMaxLengthBytes(stream.ByteCapacity{}.GB(4)))
	if errors.Is(err, stream.StreamAlreadyExists) {
		return env, nil
	}
	if err != nil {
		return nil, errors.Join(err, env.Close())
	}
	r.kept(name)
	return env, nil
}

// streamCarrier publishes with confirms, which come in the order of the messages.
type streamCarrier struct {
	env      *stream.Environment
	producer *stream.Producer
	sent     chan streamSend
	pending  sync.WaitGroup // sends without their answer
	ended    chan struct{}
}

type streamSend struct {
	slot   *load.Slot
	events int
}

func (r *rabbit) newStreamCarrier(p *load.Publishing) (load.Carrier, error) {
	env, err := r.openStream(p.Topic)
	if err != nil {
		return nil, err
	}
	producer, err := env.NewProducer(p.Topic, stream.NewProducerOptions())
	if err != nil {
		return nil, errors.Join(err, env.Close())
	}
	c := &streamCarrier{env: env, producer: producer, sent: make(chan streamSend, p.Depth), ended: make(chan struct{})}
	confirms := producer.NotifyPublishConfirmation()
	go c.wait(confirms)
	return c, nil
}

func (c *streamCarrier) Send(events []wire.Event, s *load.Slot) error {
	c.pending.Add(1)
	c.sent <- streamSend{s, len(events)}
	if len(events) == 1 {
		return c.producer.Send(amqp.NewMessage(events[0].Payload))
	}
	messages := make([]message.StreamMessage, len(events))
	for i := range events {
		messages[i] = amqp.NewMessage(events[i].Payload)
	}
	return c.producer.BatchSend(messages)
}

func (c *streamCarrier) wait(confirms stream.ChannelPublishConfirm) {
	defer close(c.ended)
	var now streamSend
	var err error
	for batch := range confirms {
		for _, one := range batch {
			if now.events == 0 {
				now, err = <-c.sent, nil
			}
			if !one.IsConfirmed() {
				err = errors.Join(errors.New("RabbitMQ did not confirm a message"), one.GetError())
			}
			if now.events--; now.events == 0 {
				now.slot.Answered(err)
				c.pending.Done()
			}
		}
	}
}

func (c *streamCarrier) Flush() error {
	c.pending.Wait()
	return nil
}

func (c *streamCarrier) Close() {
	_ = errors.Join(c.producer.Close(), c.env.Close()) // all is answered
	<-c.ended
}

// newStreamSource consumes over AMQP. Over the stream protocol this server waited for about 0.2 s at each chunk where many were stored,
// with nothing busy.
func (r *rabbit) newStreamSource(c *load.Consuming) (load.Source, error) {
	env, err := r.openStream(c.Topic)
	if err != nil {
		return nil, err
	}
	if err := env.Close(); err != nil {
		return nil, err
	}
	conn, channel, err := r.dial()
	if err != nil {
		return nil, err
	}
	from := "first"
	if c.From == wire.FromLatest {
		from = "next"
	}
	return &rabbitSource{
		conn: conn, channel: channel, plan: c, ended: make(chan struct{}), from: rabbitmq.Table{"x-stream-offset": from},
	}, nil
}

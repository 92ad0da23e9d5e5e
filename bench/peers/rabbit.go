package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/sluice-bus/sluice/bench/internal/load"
	"github.com/sluice-bus/sluice/bench/scenarios"
	"github.com/sluice-bus/sluice/internal/launch"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// rabbitProgram is the server's own script: the one on PATH is for the system's service, in whose folders it writes.
const rabbitProgram = "/usr/lib/rabbitmq/bin/rabbitmq-server"

// rabbit is one node of RabbitMQ for all rounds, since it takes seconds to start. Its queues go with the round that made them.
type rabbit struct {
	epmd, node   *launch.Program
	amqp, stream string // addresses
	about        string // its version

	mu     sync.Mutex
	queues []string // of this round
}

// ensure starts the node, with a port mapper, a name and a folder of its own: it meets no other node of this machine.
func (r *rabbit) ensure(ctx context.Context, dir string) (err error) {
	if r.node != nil {
		return nil
	}
	var ports [4]string // of the port mapper, of the node for other nodes, of AMQP, of streams
	var addresses [4]string
	for i := range ports {
		if addresses[i], err = freeAddress(); err != nil {
			return err
		}
		if _, ports[i], err = net.SplitHostPort(addresses[i]); err != nil {
			return err
		}
	}
	r.amqp, r.stream = addresses[2], addresses[3]
	settings := fmt.Sprintf(`listeners.tcp.1 = %s
stream.listeners.tcp.1 = %s
stream.tcp_listen_options.nodelay = true
stream.advertised_host = 127.0.0.1
stream.advertised_port = %s
log.file = false
log.console = true
`, r.amqp, r.stream, ports[3])
	for name, text := range map[string]string{"rabbitmq.conf": settings, "plugins": "[rabbitmq_stream].\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	env := []string{
		"HOME=" + dir, "ERL_EPMD_ADDRESS=127.0.0.1", "ERL_EPMD_PORT=" + ports[0], "RABBITMQ_DIST_PORT=" + ports[1],
		"RABBITMQ_NODENAME=sluice-bench@localhost", "RABBITMQ_CONF_ENV_FILE=" + os.DevNull,
		"RABBITMQ_CONFIG_FILE=" + filepath.Join(dir, "rabbitmq.conf"), "RABBITMQ_ADVANCED_CONFIG_FILE=" + filepath.Join(dir, "advanced.config"),
		"RABBITMQ_ENABLED_PLUGINS_FILE=" + filepath.Join(dir, "plugins"), "RABBITMQ_MNESIA_BASE=" + filepath.Join(dir, "data"),
		"RABBITMQ_LOG_BASE=" + filepath.Join(dir, "log"), "RABBITMQ_PID_FILE=" + filepath.Join(dir, "pid"),
		// Without these the script stays as the server's parent, and the process of which CPU is counted would be the script's.
		"RABBITMQ_ALLOW_INPUT=true", "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-noinput -kernel inet_dist_use_interface {127,0,0,1}",
	}
	r.epmd, err = daemon(ctx, dir, env, func() bool { return listens(addresses[0]) }, "epmd", "-port", ports[0], "-address", "127.0.0.1")
	if err != nil {
		return err
	}
	r.node, err = daemon(ctx, dir, env, func() bool { return listens(r.stream) && listens(r.amqp) }, rabbitProgram)
	if err != nil {
		return errors.Join(err, r.epmd.Stop())
	}
	conn, _, err := r.dial()
	if err != nil {
		return err
	}
	r.about = fmt.Sprint(conn.Properties["version"])
	return conn.Close()
}

// stop ends the node, where it runs.
func (r *rabbit) stop() error {
	if r.node == nil {
		return nil
	}
	return errors.Join(r.node.Stop(), r.epmd.Stop())
}

func (r *rabbit) version() string { return r.about }

// dial opens a connection with a channel.
func (r *rabbit) dial() (*amqp.Connection, *amqp.Channel, error) {
	conn, err := amqp.Dial("amqp://guest:guest@" + r.amqp)
	if err != nil {
		return nil, nil, err
	}
	channel, err := conn.Channel()
	if err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	return conn, channel, nil
}

// kept notes a queue that was declared in this round.
func (r *rabbit) kept(queue string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queues = append(r.queues, queue)
}

// forget deletes the round's queues. A stream is one of them.
func (r *rabbit) forget() error {
	conn, channel, err := r.dial()
	if err != nil {
		return err
	}
	for _, queue := range r.queues {
		_, gone := channel.QueueDelete(queue, false, false, false)
		err = errors.Join(err, gone)
	}
	r.queues = nil
	return errors.Join(err, conn.Close())
}

// quorumQueue is a peer: a queue that is a Raft group of one, whose log is synced before a publish is confirmed.
func (r *rabbit) quorumQueue() peer {
	return peer{
		name: "RabbitMQ quorum queue", version: r.version, durability: "fsynced", missing: notInstalled(rabbitProgram),
		start: func(ctx context.Context, dir string) (scenarios.System, error) {
			if err := r.ensure(ctx, dir); err != nil {
				return nil, err
			}
			return broker{
				processes: []int{r.node.PID()}, stop: r.forget,
				publisher: func(_ context.Context, p load.Publishing) (load.Carrier, error) { return r.newCarrier(&p) },
				consumer:  func(_ context.Context, c load.Consuming) (load.Source, error) { return r.newSource(&c) },
			}, nil
		},
	}
}

// open dials, and declares a quorum queue.
func (r *rabbit) open(queue string) (conn *amqp.Connection, channel *amqp.Channel, err error) {
	if conn, channel, err = r.dial(); err != nil {
		return nil, nil, err
	}
	_, err = channel.QueueDeclare(queue, true, false, false, false, amqp.Table{amqp.QueueTypeArg: amqp.QueueTypeQuorum})
	if err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	r.kept(queue)
	return conn, channel, nil
}

// rabbitCarrier publishes persistent messages with confirms.
type rabbitCarrier struct {
	conn    *amqp.Connection
	channel *amqp.Channel
	answers *answers[*amqp.DeferredConfirmation]
}

func (r *rabbit) newCarrier(p *load.Publishing) (load.Carrier, error) {
	conn, channel, err := r.open(p.Topic)
	if err != nil {
		return nil, err
	}
	if err := channel.Confirm(false); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	confirmed := func(c *amqp.DeferredConfirmation) error {
		if !c.Wait() {
			return errors.New("RabbitMQ did not confirm a message")
		}
		return nil
	}
	return &rabbitCarrier{conn: conn, channel: channel, answers: newAnswers(p.Depth, confirmed)}, nil
}

func (c *rabbitCarrier) Send(events []wire.Event, s *load.Slot) error {
	request := sent[*amqp.DeferredConfirmation]{slot: s}
	for i := range events {
		confirmation, err := c.channel.PublishWithDeferredConfirm("", events[i].Topic, false, false, amqp.Publishing{
			DeliveryMode: amqp.Persistent, MessageId: strconv.FormatInt(messageIDs.Add(1), 36), Body: events[i].Payload,
		})
		if err != nil {
			return err
		}
		request.each = append(request.each, confirmation)
	}
	c.answers.sent <- request
	return nil
}

func (c *rabbitCarrier) Flush() error {
	c.answers.wait()
	return nil
}

func (c *rabbitCarrier) Close() {
	c.answers.wait()
	_ = c.conn.Close() // all is answered
}

// rabbitSource consumes with acks: one for all that came together, at most as many as a frame may have.
type rabbitSource struct {
	conn    *amqp.Connection
	channel *amqp.Channel
	plan    *load.Consuming
	from    amqp.Table // where a stream begins; nil: it is a queue
	ended   chan struct{}
	err     error
}

func (r *rabbit) newSource(c *load.Consuming) (load.Source, error) {
	conn, channel, err := r.open(c.Topic)
	if err != nil {
		return nil, err
	}
	return &rabbitSource{conn: conn, channel: channel, plan: c, ended: make(chan struct{})}, nil
}

func (s *rabbitSource) Subscribe(_ context.Context, to load.Sink) error {
	if err := s.channel.Qos(s.plan.Window, 0, false); err != nil {
		return err
	}
	coming, err := s.channel.Consume(s.plan.Topic, "", false, false, false, false, s.from)
	if err != nil {
		return err
	}
	go func() {
		defer close(s.ended)
		s.err = s.read(coming, to)
	}()
	return nil
}

func (s *rabbitSource) read(coming <-chan amqp.Delivery, to load.Sink) error {
	var batch []wire.Delivery
	for first := range coming {
		batch = append(batch[:0], delivery(first))
		last := first.DeliveryTag
		for len(batch) < s.plan.MaxBatch && len(coming) > 0 {
			d := <-coming
			batch, last = append(batch, delivery(d)), d.DeliveryTag
		}
		if !to.Wanted() {
			continue
		}
		if err := s.channel.Ack(last, true); err != nil {
			return err
		}
		to.Deliver(batch)
	}
	return errors.New("the channel was closed")
}

func delivery(d amqp.Delivery) wire.Delivery {
	return wire.Delivery{Event: wire.Event{Seq: d.DeliveryTag, Payload: d.Body}}
}

func (s *rabbitSource) Flush(context.Context) error { return nil } // acks are not answered
func (s *rabbitSource) Done() <-chan struct{}       { return s.ended }
func (s *rabbitSource) Err() error                  { return s.err }
func (s *rabbitSource) Close()                      { _ = s.conn.Close() } // nothing is under way

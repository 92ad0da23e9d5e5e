package main

import (
	"context"
	"errors"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluice-bus/sluice/bench/internal/load"
	"github.com/sluice-bus/sluice/bench/scenarios"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// redisStreams is a peer: a stream of Redis with an append-only file.
func redisStreams(fsync string) peer {
	p := peer{name: "Redis Streams", version: redisVersion, durability: "fsynced (appendfsync always)", missing: notInstalled("redis-server")}
	if fsync != "always" {
		p.durability = "not fsynced (appendfsync " + fsync + ")"
	}
	p.start = func(ctx context.Context, dir string) (scenarios.System, error) {
		address, err := freeAddress()
		if err != nil {
			return nil, err
		}
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		program, err := daemon(ctx, dir, nil, func() bool { return listens(address) }, "redis-server", "--bind", host, "--port", port, "--dir", dir,
			"--appendonly", "yes", "--appendfsync", fsync, "--save", "")
		if err != nil {
			return nil, err
		}
		dial := func() *redis.Client {
			return redis.NewClient(&redis.Options{Addr: address, PoolSize: 1, ReadTimeout: time.Minute})
		}
		return broker{
			processes: []int{program.PID()}, stop: program.Stop,
			publisher: func(_ context.Context, p load.Publishing) (load.Carrier, error) {
				return newRedisCarrier(dial(), &p), nil
			},
			consumer: func(_ context.Context, c load.Consuming) (load.Source, error) {
				return &redisSource{client: dial(), plan: c, ended: make(chan struct{})}, nil
			},
		}, nil
	}
	return p
}

// redisCarrier puts what waits into one pipeline.
type redisCarrier struct {
	client *redis.Client
	queue  chan redisSend
	ended  chan struct{}
}

type redisSend struct {
	slot   *load.Slot
	topic  string
	bodies []string
}

func newRedisCarrier(client *redis.Client, p *load.Publishing) load.Carrier {
	c := &redisCarrier{client: client, queue: make(chan redisSend, p.Depth), ended: make(chan struct{})}
	go c.run()
	return c
}

func (c *redisCarrier) Send(events []wire.Event, s *load.Slot) error {
	send := redisSend{slot: s, topic: events[0].Topic}
	for i := range events {
		send.bodies = append(send.bodies, string(events[i].Payload))
	}
	c.queue <- send
	return nil
}

func (c *redisCarrier) run() {
	defer close(c.ended)
	for first := range c.queue {
		sends := []redisSend{first}
		for len(c.queue) > 0 {
			sends = append(sends, <-c.queue)
		}
		pipeline := c.client.Pipeline()
		for _, send := range sends {
			for _, body := range send.bodies {
				pipeline.XAdd(context.Background(), &redis.XAddArgs{Stream: send.topic, Values: []any{"payload", body}})
			}
		}
		_, err := pipeline.Exec(context.Background())
		for _, send := range sends {
			send.slot.Answered(err)
		}
	}
}

func (c *redisCarrier) Flush() error {
	close(c.queue)
	<-c.ended
	c.queue = nil
	return nil
}

func (c *redisCarrier) Close() {
	if c.queue != nil {
		close(c.queue)
		<-c.ended
	}
	_ = c.client.Close() // all is answered
}

// redisSource reads as one consumer of a group, and acks what it read in one pipeline with the next read.
type redisSource struct {
	client *redis.Client
	plan   load.Consuming
	cancel context.CancelFunc
	ended  chan struct{}
	err    error
}

func (s *redisSource) Subscribe(ctx context.Context, to load.Sink) error {
	from := "0"
	if s.plan.From == wire.FromLatest {
		from = "$"
	}
	if err := s.client.XGroupCreateMkStream(ctx, s.plan.Topic, s.plan.Group, from).Err(); err != nil {
		return err
	}
	ctx, s.cancel = context.WithCancel(context.Background())
	go func() {
		defer close(s.ended)
		s.err = s.read(ctx, to)
	}()
	return nil
}

func (s *redisSource) read(ctx context.Context, to load.Sink) error {
	var deliveries []wire.Delivery
	for to.Wanted() {
		streams, err := s.client.XReadGroup(ctx, &redis.XReadGroupArgs{
			Group: s.plan.Group, Consumer: "bench", Streams: []string{s.plan.Topic, ">"}, Count: 100, Block: time.Second,
		}).Result()
		if errors.Is(err, redis.Nil) {
			continue
		}
		if err != nil {
			return err
		}
		deliveries = deliveries[:0]
		pipeline := s.client.Pipeline()
		for _, m := range streams[0].Messages {
			payload, _ := m.Values["payload"].(string)
			pipeline.XAck(ctx, s.plan.Topic, s.plan.Group, m.ID)
			deliveries = append(deliveries, wire.Delivery{Event: wire.Event{Seq: redisSeq(m.ID), Payload: []byte(payload)}})
		}
		if _, err := pipeline.Exec(ctx); err != nil {
			return err
		}
		to.Deliver(deliveries)
	}
	<-ctx.Done()
	return nil
}

// redisFirst is the time at which ids begin, so that they are small numbers.
var redisFirst = time.Now().UnixMilli()

// redisSeq makes a number of an id, milliseconds and a count: at most 1024 in one millisecond are told apart.
func redisSeq(id string) uint64 {
	ms, n, _ := strings.Cut(id, "-")
	at, _ := strconv.ParseInt(ms, 10, 64)
	count, _ := strconv.ParseUint(n, 10, 64)
	return uint64(at-redisFirst)<<10 | count
}

func (s *redisSource) Flush(context.Context) error { return nil }
func (s *redisSource) Done() <-chan struct{}       { return s.ended }
func (s *redisSource) Err() error                  { return s.err }

func (s *redisSource) Close() {
	if s.cancel != nil {
		s.cancel()
		<-s.ended
	}
	_ = s.client.Close() // nothing is under way
}

// redisVersion asks the program: "Redis server v=7.0.15 sha=…".
func redisVersion() string {
	out, err := exec.Command("redis-server", "--version").Output()
	if err != nil {
		return ""
	}
	_, version, _ := strings.Cut(string(out), "v=")
	version, _, _ = strings.Cut(version, " ")
	return version
}

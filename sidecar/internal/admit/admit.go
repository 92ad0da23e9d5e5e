// Package admit is the way of a publish through the sidecar, from a decoded
// request to the receipt: the stages in order, each of which lets the events
// pass or refuses them, with nothing left behind of what was refused. It knows
// no transport and no log file: events come decoded and leave through the
// writer.
package admit

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/limit"
	"github.com/sluice-bus/sluice/sidecar/internal/policy"
	"github.com/sluice-bus/sluice/sidecar/internal/telemetry"
	"github.com/sluice-bus/sluice/sidecar/internal/writer"
)

// Catalog knows how many partitions a topic has, and creates topics.
type Catalog interface {
	EnsureTopic(ctx context.Context, name string, partitions int) (eventlog.Topic, error)
}

// Config is what a Publisher needs; every field is required.
type Config struct {
	Catalog  Catalog
	Writer   *writer.Writer
	Policies *policy.Current
	Limits   wire.Limits
	Metrics  *telemetry.Metrics
}

// Publisher admits events. Its methods are safe for concurrent use.
type Publisher struct {
	cfg     Config
	buckets *limit.Set
	topics  sync.Map // name → eventlog.Topic, of those that are known to exist
}

// New makes a Publisher.
func New(cfg Config) *Publisher {
	return &Publisher{cfg: cfg, buckets: limit.NewSet(cfg.Limits.BatchBytes)}
}

// Connection is what a publisher's connection owns of the limits: a WebSocket,
// or the TCP connection of HTTP.
type Connection struct {
	bucket *limit.Bucket
}

// NewConnection makes a connection with a full bucket.
func (p *Publisher) NewConnection() *Connection {
	return &Connection{bucket: limit.NewBucket(connectionRate(p.cfg.Policies.Load()), time.Now())}
}

func connectionRate(s *policy.Snapshot) limit.Rate {
	r := s.Connection()
	return limit.Rate{PerSecond: r.Rate, Burst: r.Burst}
}

// Publish takes events through every stage, in the order of this function:
//
//  1. shape: an item that arrives with an Err is refused with it;
//  2. policy: a paused topic refuses its items;
//  3. limits: all tokens of all items at once, or the whole call is refused;
//  4. identity: id, ts and partition;
//  5. queue: a full one refuses the item, and its tokens go back;
//  6. log: the outcome, and the tokens go back where it is a refusal.
//
// A non-nil error refuses everything, and done is never called. Otherwise done
// is called exactly once with one result per item, in order, possibly before
// Publish returns and from any goroutine; it must not block. Events reach
// their partitions' queues in the order of the calls. ctx bounds waiting for
// tokens where the policy says so; Publish blocks meanwhile.
func (p *Publisher) Publish(ctx context.Context, c *Connection, items []wire.PublishItem, done func([]wire.ResultItem)) *wire.Error {
	a := newAdmission(p, len(items), done)
	policies := p.cfg.Policies.Load()
	for i := range items {
		if items[i].Err == nil && policies.Topic(items[i].Event.Topic).Paused {
			items[i].Err = wire.Errorf(wire.TopicPaused, "topic %q is paused by its policy", items[i].Event.Topic)
		}
	}
	if err := p.charge(ctx, c, policies, items, &a.toll); err != nil {
		p.countRefused(items, err.Code)
		return err
	}
	for i := range items {
		if err := items[i].Err; err != nil {
			a.refuse(i, items[i].Event.Topic, err)
			continue
		}
		p.enqueue(ctx, policies, a, i, &items[i])
	}
	a.finish(1) // the reservation of newAdmission
	return nil
}

// enqueue gives the event its identity and its place in the queue.
func (p *Publisher) enqueue(ctx context.Context, policies *policy.Snapshot, a *admission, i int, it *wire.PublishItem) {
	rec := &eventlog.Record{Event: it.Event, AcceptedAt: a.began.UnixMilli()}
	if rec.ID == "" {
		rec.ID, rec.FreshID = newID(), true
	}
	if !it.HasTS {
		rec.TS = rec.AcceptedAt
	}
	tp, err := p.topic(ctx, rec.Topic, policies)
	if err == nil {
		rec.Partition = eventlog.PartitionOf(rec.Key, rec.ID, tp.Partitions)
		a.records[i] = rec
		err = p.cfg.Writer.Enqueue(rec.Topic, rec.Partition, writer.Item{Record: rec, Receiver: a, Index: i})
	}
	if err != nil {
		a.toll.refund(rec.Topic, len(rec.Payload))
		a.refuse(i, rec.Topic, refusal(err))
	}
}

// topic finds a topic in the catalog, creating it on first use.
func (p *Publisher) topic(ctx context.Context, name string, policies *policy.Snapshot) (eventlog.Topic, error) {
	if tp, ok := p.topics.Load(name); ok {
		return tp.(eventlog.Topic), nil
	}
	tp, err := p.cfg.Catalog.EnsureTopic(ctx, name, policies.Topic(name).Partitions)
	if err == nil {
		p.topics.Store(name, tp)
	}
	return tp, err
}

// newID makes a UUIDv7.
func newID() string {
	id, err := uuid.NewV7()
	if err != nil {
		panic(err) // the system's random source never fails while it runs
	}
	return id.String()
}

// Bury appends an event of Sluice's own, such as a dead letter, to its topic:
// past limits and pauses, since it comes of an event that passed them. done is
// called once, with nil when the event is durable, now or from an earlier try
// under the same id.
func (p *Publisher) Bury(ctx context.Context, rec *eventlog.Record, done func(error)) {
	tp, err := p.topic(ctx, rec.Topic, p.cfg.Policies.Load())
	if err != nil {
		done(err)
		return
	}
	rec.Partition = eventlog.PartitionOf(rec.Key, rec.ID, tp.Partitions)
	it := writer.Item{Record: rec, Receiver: buryReceiver(done)}
	if err := p.cfg.Writer.Enqueue(rec.Topic, rec.Partition, it); err != nil {
		done(err)
	}
}

type buryReceiver func(error)

// Settled takes a conflict for success: the id says what it is a dead letter
// of, and only the circumstances of an earlier burial can differ.
func (done buryReceiver) Settled(_ int, out eventlog.Outcome) {
	if asConflict(out.Err) != nil {
		out.Err = nil
	}
	done(out.Err)
}

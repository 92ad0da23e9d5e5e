// Package admit takes a publish from the decoded request to the receipt, in stages. Each stage
// admits or refuses events, and a refused event leaves nothing behind. The package knows no
// transport and no log file: events come decoded and leave through the writer.
package admit

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/sluice-bus/sluice/internal/clock"
	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/internal/schema"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/limit"
	"github.com/sluice-bus/sluice/sidecar/internal/telemetry"
	"github.com/sluice-bus/sluice/sidecar/internal/tracing"
	"github.com/sluice-bus/sluice/sidecar/internal/writer"
)

// Catalog knows how many partitions a topic has, and creates topics.
type Catalog interface {
	EnsureTopic(ctx context.Context, name string, partitions int) (eventlog.Topic, error)
}

// Quota shares out the rates that are for all sidecars together.
type Quota interface {
	// Bucket is this sidecar's share of a topic's rate, as a bucket tuned to the present share, for
	// a publish of n events. It may wait, for a bounded time or until ctx ends, if it has to ask
	// for tokens.
	Bucket(ctx context.Context, topic string, n int, p policy.Publish, now time.Time) *limit.Bucket
	// Tenants is Bucket for tenants of a topic that have shares of their own: it sets the buckets
	// of the charges, one for each tenant.
	Tenants(ctx context.Context, topic string, tenants []string, charges []limit.Charge, p policy.Publish, now time.Time)
	// Count counts the events of a topic that got tokens, and the events that did not.
	Count(topic string, allowed, denied int)
	// CountTenant is Count for a tenant with a bucket of its own. Count does not count that tenant's
	// events.
	CountTenant(topic, tenant string, allowed, denied int)
}

// Scheduler keeps account of scheduled events. It must not block.
type Scheduler interface {
	// Reserve lets one more event of a topic, of about that size, be scheduled, or returns why not. Return cancels that
	// if the event is not scheduled. Accepted says that it is, and when it is due, in milliseconds
	// since the epoch.
	Reserve(topic string, bytes int) error
	Return(topic string, bytes int)
	Accepted(topic string, bytes int, due int64)
}

// Config is what a Publisher needs; every field is required but Quota, Tracing, Scheduler and
// Clock.
type Config struct {
	Catalog  Catalog
	Writer   *writer.Writer
	Policies *policy.Current
	Quota    Quota            // nil: this sidecar is the fleet
	Tracing  *tracing.Tracing // nil: off
	// Scheduler, if set, is asked before an event is scheduled, and told of each scheduled event.
	Scheduler Scheduler
	Limits    wire.Limits
	Metrics   *telemetry.Metrics
	Logger    *slog.Logger // gets the causes of internal errors
	Clock     clock.Clock
}

// Publisher admits events. Its methods are safe for concurrent use.
type Publisher struct {
	cfg     Config
	buckets *limit.Set
	schemas *schema.Cache

	mu         sync.RWMutex
	partitions map[string]int // of the topics that are known to exist
}

// New makes a Publisher.
func New(cfg Config) *Publisher {
	return &Publisher{
		cfg:        cfg,
		schemas:    schema.NewCache(schemasKept),
		buckets:    limit.NewSet(max(cfg.Limits.BatchBytes, cfg.Limits.PayloadBytes)),
		partitions: make(map[string]int),
	}
}

// Connection has the limits of one connection of a publisher: a WebSocket, or the TCP connection of
// HTTP. It is safe for concurrent use.
type Connection struct {
	bucket  *limit.Bucket
	logOnly bool // not of a client, and none of its events are spooled
}

// Tenants is how many tenants have buckets of their own, by topic.
func (p *Publisher) Tenants() map[string]int { return p.buckets.Tenants() }

// NewConnection makes a connection with a full bucket.
func (p *Publisher) NewConnection() *Connection { return p.connection(false) }

// NewLogOnlyConnection makes a connection for publishes from another store, which any sidecar may
// continue. Only the limits of topics apply to it, and its events go into the log or are refused.
// If they could wait in this sidecar's spool, events of another sidecar would overtake them.
func (p *Publisher) NewLogOnlyConnection() *Connection { return p.connection(true) }

func (p *Publisher) connection(logOnly bool) *Connection {
	c := &Connection{logOnly: logOnly}
	c.bucket = limit.NewBucket(c.rate(p.cfg.Policies.Load()), p.cfg.Clock.Now())
	return c
}

func (c *Connection) rate(s *policy.Snapshot) limit.Rate {
	if c.logOnly {
		return limit.Rate{}
	}
	r := s.Connection()
	return limit.Rate{PerSecond: r.Rate, Burst: r.Burst}
}

// Publish takes events through every stage, in the order of this function:
//
//  1. shape: an item that arrives with an Err is refused with it. An item with an invalid delivery
//     time or the id of a dead letter is refused too;
//  2. policy: the items' topics get their policies; a paused topic refuses its items;
//  3. limits: all tokens of all items at once, or the whole call is refused;
//  4. schema: items whose payloads it does not allow are refused, and their tokens go back. The
//     others get its version as a header. This stage comes after the limits, since a check takes
//     time;
//  5. topic: a topic that cannot be created refuses its items, and their tokens go back;
//  6. identity and queue: a full queue refuses the item, and its tokens go back;
//  7. log: the outcome; if it is a refusal, the tokens go back.
//
// A non-nil error refuses everything, and done is never called. Otherwise done is called exactly
// once with one result per item, in order, possibly before Publish returns and from any goroutine;
// it must not block. Events of calls that follow one another reach their partitions' queues in that
// order.
//
// If the policies of all topics say wait, Publish blocks for up to the shortest max_wait, or until
// ctx ends, for tokens; it also waits for a first share of a fleet-wide rate, and for the log to
// create a topic. It keeps references from the items' events, but not items itself. It may set an
// item's Err and its event's Headers.
func (p *Publisher) Publish(ctx context.Context, c *Connection, items []wire.PublishItem, done func([]wire.ResultItem)) *wire.Error {
	a := newAdmission(p, len(items), done)
	refuseMisshapen(items, a.began.UnixMilli())
	var judged *policy.Snapshot // the policies that the items were checked against
	for a.accepted = a.began; ; a.accepted = p.cfg.Clock.Now() {
		policies, changed := p.cfg.Policies.Watch()
		if policies != judged {
			refusePaused(policies, items)
			judged = policies
		}
		verdict := a.reservation.take(ctx, p, c, policies, items, a.accepted)
		a.reservation.report(p.cfg.Quota, verdict)
		if verdict.OK {
			break
		}
		waits := a.accepted.Add(verdict.Wait).Sub(a.began) <= a.reservation.patience()
		if verdict.OverBurst || !waits || !p.cfg.Clock.SleepUnless(ctx, verdict.Wait, changed) {
			return p.refuseAll(ctx, a, items, a.reservation.refusal(verdict))
		}
	}
	p.holdToSchemas(&a.reservation, items, a.accepted)
	p.locate(ctx, &a.reservation)
	a.trace(ctx, items)
	for i := range items {
		if err := items[i].Err; err != nil {
			a.refuse(i, items[i].Event.Topic, err)
			continue
		}
		p.enqueue(a, i, &items[i], c.logOnly)
	}
	a.finish() // newAdmission counted 1 for Publish
	return nil
}

// refuseMisshapen refuses the items whose delivery time is invalid, or whose id is a dead letter's.
func refuseMisshapen(items []wire.PublishItem, now int64) {
	for i := range items {
		it := &items[i]
		switch {
		case it.Err != nil:
		case eventlog.IsLetterID(it.Event.ID):
			it.Err = wire.Errorf(wire.BadRequest, "id %s is that of a dead letter, and only the sidecar makes these; publish under another id",
				it.Event.ID)
		case it.Later.Given():
			_, it.Err = it.DueAt(now)
		}
	}
}

// locate finds the partitions of the call's topics, except for topics whose schemas refused all
// events.
func (p *Publisher) locate(ctx context.Context, t *reservation) {
	for i := range t.topics {
		d := &t.topics[i]
		if d.violations == d.events {
			continue
		}
		d.partitions, d.err = p.partitionsOf(ctx, d.name, d.policy.Partitions)
	}
}

// partitionsOf is how many partitions a topic has. A new topic is created with the wanted number.
func (p *Publisher) partitionsOf(ctx context.Context, topic string, wanted int) (int, error) {
	p.mu.RLock()
	n, known := p.partitions[topic]
	p.mu.RUnlock()
	if known {
		return n, nil
	}
	tp, err := p.cfg.Catalog.EnsureTopic(ctx, topic, wanted)
	if err != nil {
		return 0, err
	}
	p.mu.Lock()
	p.partitions[topic] = tp.Partitions
	p.mu.Unlock()
	return tp.Partitions, nil
}

// Forget forgets a topic that was deleted.
func (p *Publisher) Forget(topic string) {
	p.mu.Lock()
	delete(p.partitions, topic)
	p.mu.Unlock()
	p.buckets.Forget(topic)
}

// enqueue gives the event its identity and its place in the queue.
func (p *Publisher) enqueue(a *admission, i int, it *wire.PublishItem, logOnly bool) {
	topic := a.reservation.topic(it.Event.Topic)
	rec := &eventlog.Record{Event: it.Event, AcceptedAt: a.accepted.UnixMilli(), LogOnly: logOnly}
	if rec.ID == "" {
		rec.ID, rec.FreshID = eventlog.NewTimedID(rec.AcceptedAt), true
	}
	if it.CloudEvent && topic.policy.Dedupe.By == policy.DedupeBySourceID {
		identifyBySource(&rec.Event)
	}
	if !it.HasTS {
		rec.TS = rec.AcceptedAt
	}
	if due, _ := it.DueAt(rec.AcceptedAt); it.Later.Given() {
		a.results[i].Receipt.DeliverAt = due
		if due > rec.AcceptedAt {
			rec.DeliverAt = due
		}
	}
	span := a.span(i)
	rec.Headers = span.Headers(rec.Headers)
	a.records[i] = rec // before the writer gets it, since the writer may complete it at once
	err := topic.err
	if err == nil && a.later(i) {
		err = p.cfg.Scheduler.Reserve(rec.Topic, rec.Size())
	}
	if err == nil {
		rec.Partition = eventlog.PartitionOf(rec.Key, rec.ID, topic.partitions)
		err = p.cfg.Writer.Enqueue(rec.Topic, rec.Partition, writer.Item{Record: rec, Receiver: a, Index: i, Span: span})
		if err != nil && a.later(i) {
			p.cfg.Scheduler.Return(rec.Topic, rec.Size())
		}
	}
	if err != nil {
		a.undo(i, err)
	}
}

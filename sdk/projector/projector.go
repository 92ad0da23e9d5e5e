package projector

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/option"
)

// Defaults of Config.
const (
	// DefaultKeepDeleted is longer than the 30 days that topics of dead letters
	// keep theirs.
	DefaultKeepDeleted = 32 * 24 * time.Hour
	DefaultBatch       = 500
	DefaultCheckEvery  = 10 * time.Second
)

const (
	batchWait   = 10 * time.Millisecond
	inFlight    = 1000
	holdFor     = time.Second      // events while MongoDB is away
	retryFor    = 10 * time.Second // what one event's document meets
	stopTimeout = 10 * time.Second // of settling what is in hand
	askTimeout  = 10 * time.Second // one question to the sidecar or the database
)

// Config says what is projected.
type Config struct {
	Topic string
	// Group is the consumer group; all processes of one projection have the same.
	// It starts at the topic's first event.
	Group      string
	Collection *mongo.Collection
	// Map returns the fields of the document that the event's key is to have: what
	// package bson encodes as a document, without _id. nil deletes. An error is
	// that of a handler: see sluice.Handler. It is called by several goroutines at
	// once.
	Map func(*sluice.Event) (any, error)

	// KeepDeleted is for how long a deleted document's guard stays. An event that
	// comes later than that brings the document back, so it is to be longer than
	// the topic and its dead letters keep events; 0: DefaultKeepDeleted.
	KeepDeleted time.Duration
	// Batch bounds the events that are written together; 0: DefaultBatch.
	Batch int
	// CheckEvery is how often the lag is asked for; 0: DefaultCheckEvery.
	CheckEvery time.Duration
	// Subscribe are further options of the subscription, option.MaxInflight for
	// example.
	Subscribe []option.Subscribe
	Observer  Observer
	// Logger is told what is tried again; nil: slog.Default().
	Logger *slog.Logger
}

// An Observer is told what a projection does, for metrics. Functions may be nil.
// They are called by several goroutines at once, and what they observe waits for
// them.
type Observer struct {
	// Applied: events are in the collection; superseded of them were not written,
	// because the document was further.
	Applied func(events, superseded int, took time.Duration)
	// Refused: an event cannot be projected, and goes to the dead letters.
	Refused func(e *sluice.Event, err error)
	// Lag: so many events of the topic are not settled yet.
	Lag func(events int64)
}

// projection is one call of Run.
type projection struct {
	cfg    Config
	client *sluice.Client
	coll   *mongo.Collection
}

func newProjection(client *sluice.Client, cfg Config) (*projection, error) {
	for _, field := range []struct {
		name    string
		missing bool
	}{{"Topic", cfg.Topic == ""}, {"Group", cfg.Group == ""}, {"Collection", cfg.Collection == nil}, {"Map", cfg.Map == nil}} {
		if field.missing {
			return nil, fmt.Errorf("projector: Config.%s is missing", field.name)
		}
	}
	if cfg.KeepDeleted <= 0 {
		cfg.KeepDeleted = DefaultKeepDeleted
	}
	if cfg.Batch <= 0 {
		cfg.Batch = DefaultBatch
	}
	if cfg.CheckEvery <= 0 {
		cfg.CheckEvery = DefaultCheckEvery
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	return &projection{cfg: cfg, client: client, coll: durable(cfg.Collection)}, nil
}

// durable is the collection with writes that the majority acknowledges, and reads
// of what they have written.
func durable(coll *mongo.Collection) *mongo.Collection {
	return coll.Clone(options.Collection().
		SetReadConcern(readconcern.Majority()).
		SetReadPreference(readpref.Primary()).
		SetWriteConcern(writeconcern.Majority()))
}

// Run projects the topic until ctx ends, and then settles what is in hand and
// returns nil. Any number of processes may run the same projection: they share
// the topic's partitions. The error is that of a setting, or of a subscription
// that the sidecar refuses for good.
func Run(ctx context.Context, client *sluice.Client, cfg Config) error {
	p, err := newProjection(client, cfg)
	if err != nil {
		return err
	}
	if err := p.run(ctx); ctx.Err() == nil {
		return err
	}
	return nil
}

func (p *projection) run(ctx context.Context) error {
	if err := p.ensureIndex(ctx, p.coll); err != nil {
		return err
	}
	opts := append([]option.Subscribe{
		option.FromEarliest(), option.Batch(p.cfg.Batch, batchWait), option.MaxInflight(inFlight), option.RetryFor(retryFor),
	}, p.cfg.Subscribe...)
	sub, err := p.client.SubscribeBatch(ctx, p.cfg.Topic, p.cfg.Group, p.handle, opts...)
	if err != nil {
		return fmt.Errorf("projector: %w", err)
	}
	ticker := time.NewTicker(p.cfg.CheckEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			p.observeLag(ctx)
		case <-sub.Closed():
			if err := sub.Err(); err != nil {
				return fmt.Errorf("projector: %w", err)
			}
			return errors.New("projector: the client was closed")
		case <-ctx.Done():
			sub.Drain()
			cut := time.AfterFunc(stopTimeout, sub.Stop)
			<-sub.Closed()
			cut.Stop()
			return nil
		}
	}
}

// ensureIndex has deleted documents expire.
func (p *projection) ensureIndex(ctx context.Context, coll *mongo.Collection) error {
	_, err := coll.Indexes().CreateOne(ctx, mongo.IndexModel{
		Keys:    bson.D{{Key: GuardField + ".expireAt", Value: 1}},
		Options: options.Index().SetName("sluice_deleted").SetExpireAfterSeconds(0),
	})
	if err != nil {
		return fmt.Errorf("projector: create the TTL index of %s: %w", coll.Name(), err)
	}
	return nil
}

func (p *projection) observeLag(ctx context.Context) {
	if p.cfg.Observer.Lag == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	info, err := p.client.HTTP().GroupInfo(ctx, p.cfg.Topic, p.cfg.Group)
	if err != nil {
		p.cfg.Logger.Warn("projector: how far the projection is cannot be asked", "topic", p.cfg.Topic, "group", p.cfg.Group, "error", err)
		return
	}
	p.cfg.Observer.Lag(info.Lag)
}

// handle is the handler of the group's subscription.
func (p *projection) handle(ctx context.Context, batch []*sluice.Message) error {
	events := make([]*sluice.Event, len(batch))
	for i, m := range batch {
		events[i] = &m.Event
	}
	errs := sluice.BatchErrors(p.project(ctx, p.coll, events))
	for i, m := range batch {
		errs[i] = p.verdict(m, errs[i])
	}
	return errs
}

// project writes the documents of events, no two of one key, and returns their
// errors.
func (p *projection) project(ctx context.Context, coll *mongo.Collection, events []*sluice.Event) []error {
	began := time.Now()
	all, sent := make([]*write, len(events)), make([]*write, 0, len(events))
	for i, e := range events {
		w := &write{event: e}
		if w.doc, w.err = p.document(e); w.err == nil {
			sent = append(sent, w)
		}
		all[i] = w
	}
	apply(ctx, coll, sent)
	errs, applied, superseded := make([]error, len(all)), 0, 0
	var away error
	for i, w := range all {
		errs[i] = w.err
		if w.err == nil {
			applied++
		}
		if w.stale {
			superseded++
		}
		if errors.As(w.err, new(*unavailable)) {
			away = w.err
		}
	}
	if away != nil && ctx.Err() == nil {
		p.cfg.Logger.Warn("projector: documents cannot be written, and are tried again", "collection", coll.Name(), "error", away)
	}
	if p.cfg.Observer.Applied != nil && applied > 0 {
		p.cfg.Observer.Applied(applied, superseded, time.Since(began))
	}
	return errs
}

// verdict says what is to become of an event by what its document has met.
func (p *projection) verdict(m *sluice.Message, err error) error {
	refused := errors.As(err, new(*refusal)) ||
		errors.As(err, new(*violation)) && m.Attempt > 1 // and its handler was called again for retryFor before
	switch {
	case refused:
		if p.cfg.Observer.Refused != nil {
			p.cfg.Observer.Refused(&m.Event, err)
		}
		return sluice.DeadLetter(err)
	case errors.As(err, new(*unavailable)), errors.As(err, new(*historyError)):
		return sluice.Hold(holdFor, err)
	}
	return err
}

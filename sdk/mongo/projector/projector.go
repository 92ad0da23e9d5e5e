package projector

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/admin"
	"github.com/sluice-bus/sluice/sdk/mongo/internal/majority"
	"github.com/sluice-bus/sluice/sdk/option"
)

// Defaults of Config.
const (
	// DefaultKeepDeleted is longer than the 30 days that topics of dead letters keep theirs.
	DefaultKeepDeleted = 32 * 24 * time.Hour
	DefaultBatch       = 500
	DefaultCheckEvery  = 10 * time.Second
)

const (
	batchWait   = 10 * time.Millisecond
	inFlight    = 1000
	holdFor     = time.Second      // how long events are held while MongoDB is away
	retryFor    = 10 * time.Second // errors about one event's document
	stopTimeout = 10 * time.Second // of settling what is in hand
	askTimeout  = 10 * time.Second // one question to the sidecar or the database
)

// Config is the configuration of a projection.
type Config struct {
	Topic string
	// Group is the consumer group; all processes of one projection have the same. It starts at the
	// topic's first event.
	Group      string
	Collection *mongo.Collection
	// Map returns the fields of the document that the event's key is to have: what package bson
	// encodes as a document, without _id. nil deletes. An error has the effect of an error of a
	// sluice.Handler. It is called by several goroutines at once.
	Map func(*sluice.Event) (any, error)

	// KeepDeleted is for how long a deleted document's guard stays. An event that comes later than
	// that brings the document back, so it is to be longer than the topic and its dead letters keep
	// events; 0: DefaultKeepDeleted.
	KeepDeleted time.Duration
	// Batch bounds the events that are written together; 0: DefaultBatch.
	Batch int
	// CheckEvery is how often the projection asks for the lag, and checks that the collection is of
	// the topic's history; 0: DefaultCheckEvery. A process that has done nothing for a rebuild in
	// three times as long is replaced.
	CheckEvery time.Duration
	// Subscribe are further options of the subscription, option.MaxInflight for example.
	Subscribe []option.Subscribe
	Observer  Observer
	// Logger gets the errors that are retried; nil: slog.Default().
	Logger *slog.Logger
}

// An Observer has functions that a projection calls, for metrics. They may be nil. Several
// goroutines call them at once, and wait for them.
type Observer struct {
	// Applied: events are in the collection; superseded of them were not written, because the
	// document was further.
	Applied func(events, superseded int, took time.Duration)
	// Refused: an event cannot be projected, and goes to the dead letters.
	Refused func(e *sluice.Event, err error)
	// Lag: so many events of the topic are not settled yet.
	Lag func(events int64)
	// Rebuild: how far a rebuild is that this process does, and that it has ended.
	Rebuild func(Progress)
}

// projection is one call of Run.
type projection struct {
	cfg    Config
	client *sluice.Client
	coll   *mongo.Collection
	states *mongo.Collection
	owner  string // this one's name

	work sync.WaitGroup // the rebuild
	busy atomic.Bool    // it runs

	// For the goroutine of Run: the owner and the beat of a rebuild when they last changed, and
	// when.
	seen   [2]any
	seenAt time.Time

	mu        sync.Mutex
	positions map[int]position // that are not saved, by partition
	stale     string           // why the collection is of another history
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
	cfg.KeepDeleted = cmp.Or(max(cfg.KeepDeleted, 0), DefaultKeepDeleted)
	cfg.Batch = cmp.Or(max(cfg.Batch, 0), DefaultBatch)
	cfg.CheckEvery = cmp.Or(max(cfg.CheckEvery, 0), DefaultCheckEvery)
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	return &projection{
		cfg: cfg, client: client, coll: majority.Collection(cfg.Collection), states: states(cfg.Collection),
		owner: newOwner(), positions: map[int]position{},
	}, nil
}

// Run projects the topic until ctx ends, and then settles the delivered events and returns nil. Any
// number of processes may run the same projection: they share the topic's partitions. The error is
// that of a setting, or of a subscription that the sidecar refuses for good.
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
	if err := majority.ExpireAfter(ctx, p.coll, indexDeleted, GuardField+".expireAt", 0); err != nil {
		return fmt.Errorf("projector: %w", err)
	}
	s, err := p.load(ctx)
	if err != nil {
		return err
	}
	if s.Topic != p.cfg.Topic || s.Group != p.cfg.Group {
		return fmt.Errorf("projector: collection %s is projected from topic %s by group %s; topic %s and group %s need another collection",
			p.coll.Name(), s.Topic, s.Group, p.cfg.Topic, p.cfg.Group)
	}
	gone, err := p.groupGone(ctx)
	if err != nil {
		return err
	}
	if gone && len(s.Positions) > 0 {
		p.stale = "the topic or its group was deleted"
	}
	sub, err := p.client.SubscribeBatch(ctx, p.cfg.Topic, p.cfg.Group, p.handle, p.subscribe()...)
	if err != nil {
		return fmt.Errorf("projector: %w", err)
	}
	working, stop := context.WithCancel(ctx)
	defer p.work.Wait()
	defer stop()
	ticker := time.NewTicker(p.cfg.CheckEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			if err := p.check(working); err != nil && ctx.Err() == nil {
				p.cfg.Logger.Warn("projector: a check has failed", "topic", p.cfg.Topic, "group", p.cfg.Group, "error", err)
			}
		case <-sub.Closed():
			if err := sub.Err(); err != nil {
				return fmt.Errorf("projector: %w", err)
			}
			return errors.New("projector: the client was closed")
		case <-ctx.Done():
			drain(sub)
			return p.save(context.WithoutCancel(ctx))
		}
	}
}

// subscribe are the options of a subscription.
func (p *projection) subscribe() []option.Subscribe {
	return append([]option.Subscribe{
		option.FromEarliest(), option.Batch(p.cfg.Batch, batchWait), option.MaxInflight(inFlight), option.RetryFor(retryFor),
	}, p.cfg.Subscribe...)
}

// drain ends a subscription, in order if that does not take long.
func drain(sub *sluice.Subscription) {
	sub.Drain()
	cut := time.AfterFunc(stopTimeout, sub.Stop)
	<-sub.Closed()
	cut.Stop()
}

// check looks how far the projection is, and whether it is to be rebuilt.
func (p *projection) check(ctx context.Context) error {
	if err := p.save(ctx); err != nil {
		return err
	}
	s, err := p.load(ctx)
	if err != nil {
		return err
	}
	info, err := p.groupInfo(ctx, p.cfg.Group) // after the positions, which the topic then has
	if err != nil {
		return err
	}
	if p.cfg.Observer.Lag != nil {
		p.cfg.Observer.Lag(info.Lag)
	}
	if s.Rebuild != nil {
		p.follow(ctx, s.Rebuild)
		return nil
	}
	p.sweep(ctx, s.Rebuilds)
	p.mu.Lock()
	why := p.stale
	p.stale = ""
	p.mu.Unlock()
	if why == "" {
		why = p.otherHistory(ctx, s, info)
	}
	if why == "" {
		return nil
	}
	return begin(ctx, p.states, p.byID(), s, why)
}

// groupGone reports whether there is no such group, or no such topic. It asks until that is known:
// subscribing makes both.
func (p *projection) groupGone(ctx context.Context) (gone bool, err error) {
	for {
		_, err := p.groupInfo(ctx, p.cfg.Group)
		switch {
		case err == nil, errors.Is(err, sluice.ErrNotFound):
			return err != nil, nil
		case errors.Is(err, sluice.ErrForbidden), errors.Is(err, sluice.ErrUnauthorized), errors.Is(err, sluice.ErrBadRequest):
			return false, fmt.Errorf("projector: ask for the group: %w", err)
		}
		p.cfg.Logger.Warn("projector: cannot find out yet whether the group exists", "topic", p.cfg.Topic, "group", p.cfg.Group, "error", err)
		select {
		case <-time.After(holdFor):
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}

func (p *projection) groupInfo(ctx context.Context, group string) (admin.GroupInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return p.client.HTTP().GroupInfo(ctx, p.cfg.Topic, group)
}

func eventsOf(batch []*sluice.Message) []*sluice.Event {
	events := make([]*sluice.Event, len(batch))
	for i, m := range batch {
		events[i] = &m.Event
	}
	return events
}

// handle is the handler of the projection's group.
func (p *projection) handle(ctx context.Context, batch []*sluice.Message) error {
	events := eventsOf(batch)
	errs := sluice.BatchErrors(p.project(ctx, p.coll, events))
	p.applied(events, errs)
	for i, m := range batch {
		errs[i] = p.verdict(m, errs[i])
	}
	return errs
}

// project writes the documents of events, no two of one key, and returns their errors.
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

// verdict is the handler's error for an event, given the error of its document.
func (p *projection) verdict(m *sluice.Message, err error) error {
	refused := errors.As(err, new(*refusal)) ||
		errors.As(err, new(*violation)) && m.Attempt > 1 // and its handler was called again for retryFor before
	switch {
	case refused:
		if p.cfg.Observer.Refused != nil {
			p.cfg.Observer.Refused(&m.Event, err)
		}
		return sluice.DeadLetter(err)
	case errors.As(err, new(*historyError)):
		p.mu.Lock()
		p.stale = err.Error()
		p.mu.Unlock()
		return sluice.Hold(holdFor, err)
	case errors.As(err, new(*unavailable)):
		return sluice.Hold(holdFor, err)
	}
	return err
}

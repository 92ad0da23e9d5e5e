package capture

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/connstring"

	"github.com/sluice-bus/sluice/internal/mongowatch"
	"github.com/sluice-bus/sluice/internal/pause"
	"github.com/sluice-bus/sluice/internal/secrets"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/roster"
)

// Topic is the topic of the groups as which sidecars announce captures, and of signals about them.
// It is reserved, so no application's group is mistaken for a capture.
const Topic = "_capture"

const (
	// retryMin and retryMax are the first and the longest wait before the next try.
	retryMin = 50 * time.Millisecond
	retryMax = 5 * time.Second
	// retryStopped is the wait while a capture has stopped and needs an operator.
	retryStopped = time.Minute
	// idleLook is how often a sidecar that does not capture checks whether it should, beside the
	// looks of the roster.
	idleLook = time.Second
	// operationTimeout bounds one operation on the servers.
	operationTimeout = 30 * time.Second
	// stopGrace bounds each call that is made after Run's context has ended.
	stopGrace = 5 * time.Second
)

// Capture publishes the changes of one collection.
type Capture struct {
	cfg   Config
	group eventlog.GroupName
	wake  pause.Wake // the roster has looked around

	// Set by Run.
	coll   *mongo.Collection
	places places
	opened chan struct{} // closed when these are set
	place  place         // the saved one

	asked     atomic.Bool // somebody has asked for a re-read here, and the session has yet to see it
	wakeAsked pause.Wake

	published, failed atomic.Int64
	health            health
}

// New makes a Capture. The error is about the settings.
func New(c Config) (*Capture, error) {
	if _, err := connstring.ParseAndValidate(c.Source.URL); err != nil {
		return nil, fmt.Errorf("capture: %s", secrets.Redact(err, c.Source.URL))
	}
	c.Logger = c.Logger.With("capture", c.Source.Namespace(), "topic", c.Source.Topic)
	x := &Capture{
		cfg: c, group: eventlog.GroupName{Topic: Topic, Group: c.Source.name()},
		wake: pause.NewWake(), opened: make(chan struct{}), wakeAsked: pause.NewWake(),
	}
	x.health.logger = c.Logger
	c.Roster.Watch(x.wake.Set)
	return x, nil
}

// Run captures until ctx ends, and then leaves the capture to another sidecar. It continues while
// the servers are away. It can be called once.
func (c *Capture) Run(ctx context.Context) error {
	client, err := mongo.Connect(c.clientOptions(c.cfg.Source.URL))
	if err != nil {
		return fmt.Errorf("capture: %w", err)
	}
	defer c.disconnect(client)
	c.coll = client.Database(c.cfg.Source.Database).Collection(c.cfg.Source.Collection)
	c.places = filePlaces{c.cfg.File}
	if url := c.cfg.Store; url != "" {
		store := client
		if url != c.cfg.Source.URL {
			if store, err = mongo.Connect(c.clientOptions(url)); err != nil {
				return fmt.Errorf("capture: %w", err)
			}
			defer c.disconnect(store)
		}
		c.places = mongoPlaces{store.Database(c.cfg.Database).Collection(Places)}
	}
	close(c.opened)
	c.cfg.Roster.Join(c.group)
	defer c.cfg.Roster.Leave(c.group)
	c.pump(ctx)
	return nil
}

// pump captures while the capture is this sidecar's, until ctx ends.
func (c *Capture) pump(ctx context.Context) {
	retry := pause.Backoff{First: retryMin, Most: retryMax}
	for ctx.Err() == nil {
		if !c.mine() {
			c.health.waits()
			c.cfg.Clock.SleepUnless(ctx, idleLook, c.wake)
			continue
		}
		followed, err := c.session(ctx)
		if followed {
			retry.Reset()
		}
		if ctx.Err() != nil || err == nil {
			continue
		}
		c.health.fails(err, c.cfg.Clock.Now())
		rest := retry.Step()
		if _, stopped := errors.AsType[*stoppedError](err); stopped {
			rest = retryStopped
		}
		c.cfg.Clock.SleepUnless(ctx, rest, c.wakeAsked)
	}
	c.health.waits()
}

// session continues from the saved place, until it fails or the capture is another sidecar's. It
// reports whether it has followed the stream.
func (c *Capture) session(ctx context.Context) (followed bool, err error) {
	c.asked.Store(false)
	if c.place, err = c.load(ctx); err != nil {
		return false, err
	}
	if c.place.Rev > 0 {
		c.health.reached(c.place.At)
	}
	if again := c.place.Again; again || c.place.Rev == 0 {
		token, at, err := c.now(ctx)
		if err != nil {
			return false, err
		}
		p := c.place
		p.Token, p.At = token, at
		if again {
			p.Again, p.Reading = false, emptyDocument
		}
		if err := c.save(ctx, p); err != nil {
			return false, err
		}
		c.health.reached(at)
	}
	if c.place.Reading != nil {
		if err := c.readAll(ctx); err != nil || c.place.Reading != nil {
			return false, err
		}
	}
	return c.follow(ctx)
}

// Reread makes the sidecar that captures publish all documents once more. This one begins at once;
// another one begins when it next saves the place, or looks at it.
func (c *Capture) Reread(ctx context.Context) error {
	select {
	case <-c.opened:
	case <-ctx.Done():
		return ctx.Err()
	}
	for {
		p, err := c.load(ctx)
		if err == nil && !p.Again {
			p.Again = true
			err = c.saveNext(ctx, &p)
		}
		if err == nil {
			c.asked.Store(true)
			c.wakeAsked.Set()
		}
		if !errors.Is(err, errTaken) {
			return err
		}
	}
}

// mine reports whether the capture is this sidecar's now.
func (c *Capture) mine() bool {
	r := c.cfg.Roster
	v := r.View()
	return r.Valid(c.cfg.Clock.Now()) && v.Known() && roster.Owner(append([]string{v.Name}, v.Others(c.group)...), c.group.Group) == v.Name
}

func (c *Capture) load(ctx context.Context) (place, error) {
	ctx, cancel := c.cfg.Clock.WithTimeout(ctx, operationTimeout)
	defer cancel()
	p, err := c.places.load(ctx, c.cfg.Source.name())
	if err != nil {
		err = fmt.Errorf("reading the place: %w", err)
	}
	return p, err
}

// save replaces the saved place.
func (c *Capture) save(ctx context.Context, p place) error {
	p.Rev = c.place.Rev
	if err := c.saveNext(ctx, &p); err != nil {
		return err
	}
	c.place = p
	return nil
}

// saveNext saves the place that follows the saved one, which has p's number.
func (c *Capture) saveNext(ctx context.Context, p *place) error {
	ctx, cancel := c.cfg.Clock.WithTimeout(ctx, operationTimeout)
	defer cancel()
	p.Rev++
	if err := c.places.save(ctx, c.cfg.Source.name(), *p); err != nil {
		return fmt.Errorf("saving the place: %w", err)
	}
	return nil
}

// saveLast saves the place at the end of a session, if it has moved. Without the save some changes
// are published again, as duplicates.
func (c *Capture) saveLast(ctx context.Context, p place) {
	if p.At.Equal(c.place.At) && string(p.Token) == string(c.place.Token) && string(p.Reading) == string(c.place.Reading) {
		return
	}
	ctx, cancel := c.cfg.Clock.WithTimeout(context.WithoutCancel(ctx), stopGrace)
	defer cancel()
	if err := c.save(ctx, p); err != nil && !errors.Is(err, errTaken) {
		c.cfg.Logger.Warn("the place of a capture was not saved; some changes are published again, under their ids", "error", err)
	}
}

// release closes a cursor or a stream. An error says that the server has closed it.
func (c *Capture) release(ctx context.Context, cursor interface{ Close(context.Context) error }) {
	ctx, cancel := c.cfg.Clock.WithTimeout(context.WithoutCancel(ctx), stopGrace)
	defer cancel()
	_ = cursor.Close(ctx)
}

func (c *Capture) disconnect(client *mongo.Client) {
	if err := mongowatch.Disconnect(client, c.cfg.Clock, stopGrace); err != nil {
		c.cfg.Logger.Warn("closing the connections of a capture failed", "error", err)
	}
}

func (c *Capture) clientOptions(url string) *options.ClientOptions {
	return mongowatch.ClientOptions(url, "sluice-sidecar capture "+c.cfg.NodeID, stopGrace, c.cfg.Dialer).
		SetReadConcern(readconcern.Majority()).SetWriteConcern(writeconcern.Majority())
}

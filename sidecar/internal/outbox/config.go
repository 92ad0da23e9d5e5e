package outbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/connstring"

	"github.com/sluice-bus/sluice/internal/clock"
	"github.com/sluice-bus/sluice/internal/secrets"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/roster"
)

// Publisher takes the events. Its methods are called from several goroutines
// at once, but one call after the other for each topic.
type Publisher interface {
	// Publish publishes a batch, all of one topic, checked and within the
	// limits. A non-nil error refuses everything, and done is never called;
	// the drainer then tries fewer at a time, unless the code says that the
	// refusal will pass: rate_limited, overloaded, store_unavailable,
	// topic_paused. Otherwise done is called exactly once, with one result for
	// each event, in order, possibly before Publish returns and from any
	// goroutine. A result without Err means that the event is in the
	// log, not in a spool, where what another drainer publishes would overtake
	// it. Events of calls that follow one another are logged in that order. An
	// event that comes again under its id with the same content is answered as
	// a duplicate.
	Publish(ctx context.Context, items []wire.PublishItem, done func([]wire.ResultItem)) *wire.Error

	// MaxEvents is the most events of one call to the topic, such as the burst
	// of its rate limit; 0 is as many as a batch may have.
	MaxEvents(topic string) int
}

// Observer is told what happens, for metrics. It must be quick, and safe for
// concurrent use.
type Observer interface {
	// Published counts documents whose events are in the log.
	Published(n int)
	// Failed counts documents that became "error".
	Failed(code wire.Code)
	// Deferred counts refusals that will pass, and tries that failed.
	Deferred(code wire.Code)
	// PlaceLost counts change streams that lost their place in the oplog.
	PlaceLost()
}

// Config is what a Drainer needs. Zero values of optional fields mean their
// defaults.
type Config struct {
	// URL is a MongoDB connection string. Its path names the database;
	// DefaultDatabase if it names none.
	URL        string
	Collection string
	NodeID     string // the sidecar's, for people
	Publisher  Publisher
	LogID      func() string  // of the log that the Publisher publishes into; "" while it is not known
	Roster     *roster.Roster // of the sidecars on that log, not run yet; nil: no other can be

	Limits wire.Limits // of an event and of a batch

	// Ordered says that the Publisher refuses, behind an event that it
	// refuses with a code that will pass or with internal, the later events of
	// the same key in the same call, too. Without it there is one event of a
	// key in a call, which holds a key up to one round trip an event.
	Ordered bool

	Lease       time.Duration         // default DefaultLease
	MaxAttempts int                   // default DefaultMaxAttempts
	Logger      *slog.Logger          // default slog.Default
	Observer    Observer              // default nobody
	Monitor     *event.CommandMonitor // told about every command; may be nil
	Dialer      options.ContextDialer // nil: the network
	Clock       clock.Clock
}

// Defaults of Config.
const (
	DefaultDatabase    = "sluice"
	DefaultLease       = 10 * time.Second
	DefaultMaxAttempts = 5
)

// withDefaults checks the settings, fills in what was left out, and says which
// database it is.
func (c Config) withDefaults() (_ Config, database string, _ error) {
	cs, err := connstring.ParseAndValidate(c.URL)
	switch {
	case err != nil:
		return c, "", fmt.Errorf("outbox: %s", secrets.Redact(err, c.URL))
	case c.Collection == "" || strings.ContainsAny(c.Collection, "$\x00"):
		return c, "", fmt.Errorf("outbox: %q cannot name a collection", c.Collection)
	case c.Publisher == nil || c.LogID == nil:
		return c, "", errors.New("outbox: no publisher, or none that says which log it is")
	case c.Lease < 0 || c.MaxAttempts < 0:
		return c, "", errors.New("outbox: neither the lease nor the attempts may be below 0")
	}
	if c.Limits == (wire.Limits{}) {
		c.Limits = wire.DefaultLimits()
	}
	if c.Lease == 0 {
		c.Lease = DefaultLease
	}
	if c.MaxAttempts == 0 {
		c.MaxAttempts = DefaultMaxAttempts
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Observer == nil {
		c.Observer = nobody{}
	}
	database = cmp.Or(cs.Database, DefaultDatabase)
	c.Logger = c.Logger.With("outbox", database+"."+c.Collection)
	return c, database, nil
}

// nobody observes nothing.
type nobody struct{}

func (nobody) Published(int)      {}
func (nobody) Failed(wire.Code)   {}
func (nobody) Deferred(wire.Code) {}
func (nobody) PlaceLost()         {}

package outbox

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/connstring"

	"github.com/sluice-bus/sluice/internal/clock"
	"github.com/sluice-bus/sluice/internal/secrets"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/roster"
	"github.com/sluice-bus/sluice/sidecar/internal/source"
)

// Observer counts events, and change streams for metrics.
type Observer interface {
	source.Observer
	// PlaceLost counts change streams that lost their place in the oplog.
	PlaceLost()
}

// Config is what a Drainer needs.
type Config struct {
	// URL is a MongoDB connection string. Its path names the database; DefaultDatabase if it names
	// none.
	URL        string
	Collection string
	NodeID     string // the sidecar's, for people
	Publisher  source.Publisher
	LogID      func() string  // of the log that the Publisher publishes into; "" while it is not known
	Roster     *roster.Roster // of the sidecars on that log, not run yet

	Limits   wire.Limits // of an event and of a batch
	Lease    time.Duration
	Logger   *slog.Logger
	Observer Observer
	Dialer   options.ContextDialer // nil: the network
	Clock    clock.Clock
}

// DefaultDatabase is the database of a URL that names none.
const DefaultDatabase = "sluice"

// check checks the settings, and returns the database's name.
func (c Config) check() (database string, _ error) {
	cs, err := connstring.ParseAndValidate(c.URL)
	switch {
	case err != nil:
		return "", fmt.Errorf("outbox: %s", secrets.Redact(err, c.URL))
	case c.Collection == "" || strings.ContainsAny(c.Collection, "$\x00"):
		return "", fmt.Errorf("outbox: %q cannot name a collection", c.Collection)
	case c.Publisher == nil || c.LogID == nil:
		return "", errors.New("outbox: no publisher, or none that says which log it is")
	}
	return cmp.Or(cs.Database, DefaultDatabase), nil
}

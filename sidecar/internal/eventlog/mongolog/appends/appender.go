package appends

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/core"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/heads"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/topics"
)

// Config is what an Appender needs.
type Config struct {
	Store   *core.Store
	Catalog *topics.Catalog
	Heads   *heads.Heads
	// WriteConcern is a topic's, as policies write it; nil means majority for every topic.
	WriteConcern func(topic string) string
	// Linger is how long a topic's next batch waits after the previous one.
	Linger time.Duration
	// LoneAfter is after how many reservations in a row without a rival's between them a process
	// becomes a topic's lone writer; 0: it never does.
	LoneAfter int
}

// Appender appends events to the topics of a store.
type Appender struct {
	store        *core.Store
	catalog      *topics.Catalog
	heads        *heads.Heads
	writeConcern func(topic string) string
	linger       time.Duration
	loneAfter    int

	queues sync.Map // a *queue by *topics.Topic
	// unmet has, by topic, the write concern that the topic's last append did not meet: the event
	// was stored, but fewer members acknowledged it than the concern asks for. Only topics whose
	// policy names a number of members are in it.
	unmet sync.Map
}

// queue makes batches of the calls for a topic.
type queue struct {
	core.Batcher[*call]
	lone lone
}

// New makes an Appender.
func New(c Config) *Appender {
	return &Appender{
		store: c.Store, catalog: c.Catalog, heads: c.Heads, writeConcern: c.WriteConcern, linger: c.Linger, loneAfter: c.LoneAfter,
	}
}

// errAnotherGeneration says that the append is for a generation that has ended.
var errAnotherGeneration = errors.New("the topic was deleted meanwhile")

// Unknown is the error of an event that may or may not be stored.
func Unknown(err error) error {
	if !errors.Is(err, eventlog.ErrNotFound) && !errors.Is(err, eventlog.ErrUnavailable) {
		err = fmt.Errorf("%w: %w", eventlog.ErrUnavailable, err)
	}
	return err
}

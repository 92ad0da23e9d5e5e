// Package topics decides which topics may be created: by publishing and subscribing if the policy
// allows it, and up to a number.
package topics

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// Log is what a Catalog needs of the store's log.
type Log interface {
	Maker
	LookupTopic(ctx context.Context, name string) (eventlog.Topic, error)
	CountTopics(ctx context.Context, by string) (all, own int, err error)
}

// Maker makes topics.
type Maker interface {
	EnsureTopic(ctx context.Context, name string, partitions int) (eventlog.Topic, error)
}

// Config is what a Catalog needs; every field but Away is required.
type Config struct {
	// Entry is where publishes enter the Log, perhaps through a spool.
	Entry eventlog.Appender
	Log   Log
	// Policies say which topics are created by their first use.
	Policies *policy.Current
	// Away reports whether the Log does not answer now; nil: it always does.
	Away func() bool
	// Most bounds the number of topics, and MostEach the number of topics created for one identity.
	// A MostEach of 0 is no bound.
	Most, MostEach int
}

// Catalog is an eventlog.Appender that creates the topics that may be created. Its methods are safe
// for concurrent use.
type Catalog struct {
	cfg   Config
	known sync.Map // for whom topics that were there were made, by name
}

// New makes a Catalog.
func New(cfg Config) *Catalog { return &Catalog{cfg: cfg} }

// May returns nil if the topic exists or may be created. The error is a *wire.Error, or the log's.
func (c *Catalog) May(ctx context.Context, name string) error {
	if _, known := c.known.Load(name); known {
		return nil
	}
	// Dead letters may always have their topic.
	made := strings.HasSuffix(name, wire.DeadLetterSuffix) || c.cfg.Policies.Load().Topic(name).AutoCreate
	if made && c.cfg.Away != nil && c.cfg.Away() {
		return nil // the spool decides
	}
	there, err := c.cfg.Log.LookupTopic(ctx, name)
	switch {
	case err == nil:
		c.known.Store(name, there.By)
		return nil
	case errors.Is(err, eventlog.ErrNotFound) && made:
		return c.Room(ctx)
	case errors.Is(err, eventlog.ErrNotFound):
		return wire.Errorf(wire.NotFound,
			"there is no topic %q, and its policy has auto_create: false; PUT /v1/topics/%s makes it", name, name)
	case made && errors.Is(err, eventlog.ErrUnavailable):
		return nil
	}
	return err
}

// Known are the topics that were found.
func (c *Catalog) Known() (names []string) {
	for name := range c.known.Range {
		names = append(names, name.(string))
	}
	return names
}

// MadeFor is the identity that a topic was made for; "": none, or it is not known here.
func (c *Catalog) MadeFor(name string) string {
	by, _ := c.known.Load(name)
	identity, _ := by.(string)
	return identity
}

// Forget forgets a topic that was deleted.
func (c *Catalog) Forget(name string) { c.known.Delete(name) }

// Room returns an error if there are already as many topics as allowed, in all or for the identity
// in ctx (see eventlog.MadeBy). Concurrent calls may all find room.
func (c *Catalog) Room(ctx context.Context) error {
	by := eventlog.Maker(ctx)
	all, own, err := c.cfg.Log.CountTopics(ctx, by)
	if err != nil {
		return err
	}
	if all >= c.cfg.Most {
		return TooMany("topics", all, "--max-topics", c.cfg.Most)
	}
	if by != "" && c.cfg.MostEach > 0 && own >= c.cfg.MostEach {
		return TooMany("topics that were made for "+strconv.Quote(by), own, "a tenth of --max-topics", c.cfg.MostEach)
	}
	return nil
}

// EnsureTopic implements eventlog.Appender.
func (c *Catalog) EnsureTopic(ctx context.Context, name string, partitions int) (eventlog.Topic, error) {
	return c.EnsureIn(ctx, c.cfg.Entry, name, partitions)
}

// EnsureIn is EnsureTopic with another Maker.
func (c *Catalog) EnsureIn(ctx context.Context, log Maker, name string, partitions int) (eventlog.Topic, error) {
	if err := c.May(ctx, name); err != nil {
		return eventlog.Topic{}, err
	}
	made, err := log.EnsureTopic(ctx, name, partitions)
	if err == nil && (c.cfg.Away == nil || !c.cfg.Away()) {
		c.known.Store(name, made.By)
	}
	return made, err
}

// GroupLog is the log as groups see it: a subscription creates the topics that a publish would
// create, and not through a spool.
type GroupLog struct {
	eventlog.Log
	Catalog *Catalog
}

// EnsureTopic implements group.Log.
func (l GroupLog) EnsureTopic(ctx context.Context, name string, partitions int) (eventlog.Topic, error) {
	return l.Catalog.EnsureIn(ctx, l.Log, name, partitions)
}

// Append implements eventlog.Appender.
func (c *Catalog) Append(ctx context.Context, name string, partition int, batch []*eventlog.Record) []eventlog.Outcome {
	one := []eventlog.Batch{{Topic: name, Partition: partition, Records: batch}}
	c.AppendAll(ctx, one)
	return one[0].Outcomes
}

// AppendAll implements eventlog.GroupAppender. Events of a topic that was deleted meanwhile create it
// again, if events of a new topic would.
func (c *Catalog) AppendAll(ctx context.Context, batches []eventlog.Batch) {
	eventlog.AppendAll(ctx, c.cfg.Entry, batches)
	for i := range batches {
		c.retry(ctx, &batches[i])
	}
}

// retry appends those events of a batch again that found no topic.
func (c *Catalog) retry(ctx context.Context, b *eventlog.Batch) {
	var rest []*eventlog.Record
	var at []int
	for i := range b.Outcomes {
		if errors.Is(b.Outcomes[i].Err, eventlog.ErrNotFound) {
			rest, at = append(rest, b.Records[i]), append(at, i)
		}
	}
	if len(rest) == 0 {
		return
	}
	c.known.Delete(b.Topic)
	if _, err := c.EnsureIn(ctx, c.cfg.Log, b.Topic, c.cfg.Policies.Load().Topic(b.Topic).Partitions); err != nil {
		for _, i := range at {
			b.Outcomes[i] = eventlog.Outcome{Err: err}
		}
		return
	}
	for i, out := range c.cfg.Entry.Append(ctx, b.Topic, b.Partition, rest) {
		b.Outcomes[at[i]] = out
	}
}

// retryFull is when to try again if there are too many topics or groups.
const retryFull = time.Minute

// TooMany refuses another topic or group, since a flag bounds their number.
func TooMany(things string, there int, flag string, most int) *wire.Error {
	e := wire.Errorf(wire.Overloaded, "there are %d %s, and %s allows %d: delete some, or raise it", there, things, flag, most)
	e.RetryAfter = retryFull
	return e
}

package topics

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/core"
)

// maxPartitions is the interface's bound.
const maxPartitions = 1024

// Catalog holds the topics that this process has read, including deleted ones. It never holds more
// topics than the store. A topic that is deleted and created again keeps its name and partitions,
// so these stay right. A topic's generation is the last one read; operations that depend on it
// notice a later one.
type Catalog struct {
	store *core.Store

	mu     sync.RWMutex
	topics map[string]*Topic
	listed time.Time // when all topics of the store were last read
}

// New returns the catalog of a store.
func New(s *core.Store) *Catalog { return &Catalog{store: s, topics: map[string]*Topic{}} }

// listAgain is how long the number of topics is trusted: a server that crashed may count them
// wrongly.
const listAgain = 10 * time.Minute

// Document is a topic's entry in the store.
type Document struct {
	Name       string `bson:"_id"`
	Partitions int    `bson:"partitions"`
	By         string `bson:"by,omitempty"` // the identity that it was created for
	// Generation is odd while the topic is deleted. Emptied says that nothing of the deleted topic
	// is left.
	Generation int64 `bson:"generation"`
	Emptied    bool  `bson:"emptied,omitempty"`
	// Letters are the topics that have its dead letters, beside its own.
	Letters []string `bson:"letters,omitempty"`
}

func (d Document) check() error {
	if d.Partitions < 1 || d.Partitions > maxPartitions {
		return fmt.Errorf("topic %q: its document says %d partitions; 1 to %d are allowed", d.Name, d.Partitions, maxPartitions)
	}
	return nil
}

// cached is the topic if it is known, and exists.
func (c *Catalog) cached(name string) *Topic {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if t := c.topics[name]; t != nil && t.Exists() {
		return t
	}
	return nil
}

// remember returns the topic of a document that is in the store, and the document, which people may
// have edited.
func (c *Catalog) remember(raw bson.Raw) (*Topic, Document, error) {
	var d Document
	if err := bson.Unmarshal(raw, &d); err != nil {
		return nil, d, fmt.Errorf("topic document %s: %w", raw.Lookup("_id"), err)
	}
	if err := d.check(); err != nil {
		return nil, d, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	t, ok := c.topics[d.Name]
	if !ok {
		t = &Topic{Topic: eventlog.Topic{Name: d.Name, Partitions: d.Partitions}, Parts: make([]Partition, d.Partitions)}
		c.topics[d.Name] = t
	}
	if d.Generation >= t.Generation() { // mu is held
		t.madeBy.Store(&d.By)
		t.generation.Store(d.Generation)
	}
	return t, d, nil
}

// Begin begins an operation of the store, and finds a topic.
func (c *Catalog) Begin(ctx context.Context, name string) (_ context.Context, t *Topic, end func(), err error) {
	if ctx, end, err = c.store.Begin(ctx); err != nil {
		return nil, nil, nil, err
	}
	if t, err = c.Find(ctx, name); err != nil {
		end()
		return nil, nil, nil, err
	}
	return ctx, t, end, nil
}

// Find finds a topic, within an operation.
func (c *Catalog) Find(ctx context.Context, name string) (*Topic, error) {
	if t := c.cached(name); t != nil {
		return t, nil
	}
	return c.Stored(ctx, name)
}

// FindPartition is Find for a partition.
func (c *Catalog) FindPartition(ctx context.Context, name string, p int) (*Topic, *Partition, error) {
	t, err := c.Find(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	part, err := t.Partition(p)
	return t, part, err
}

// Stored reads a topic from the store, within an operation.
func (c *Catalog) Stored(ctx context.Context, name string) (*Topic, error) {
	raw, err := c.read(ctx, name)
	switch {
	case errors.Is(err, eventlog.ErrNotFound):
		return nil, err
	case err != nil:
		return nil, c.store.Unavailable(ctx, "look up topic "+name, err)
	}
	t, _, err := c.remember(raw)
	if err == nil && !t.Exists() {
		err = NotThere(name)
	}
	return t, err
}

// stored reads a topic, also a deleted one, and its document.
func (c *Catalog) stored(ctx context.Context, name string) (*Topic, Document, error) {
	raw, err := c.read(ctx, name)
	if err != nil {
		return nil, Document{}, err
	}
	return c.remember(raw)
}

// read reads a topic's document.
func (c *Catalog) read(ctx context.Context, name string) (raw bson.Raw, err error) {
	err = c.store.Persist(ctx, func() (err error) {
		raw, err = c.store.Majority(core.Topics).FindOne(ctx, core.ByID(name)).Raw()
		return err
	})
	if errors.Is(err, mongo.ErrNoDocuments) {
		err = NotThere(name)
	}
	return raw, err
}

// NotThere is the error about a topic that does not exist.
func NotThere(name string) error { return eventlog.NotFound("topic %q", name) }

// Known is Find as an operation of its own, for callers whose steps each begin one.
func (c *Catalog) Known(ctx context.Context, name string) (*Topic, error) {
	_, t, end, err := c.Begin(ctx, name)
	if err == nil {
		end()
	}
	return t, err
}

// KnownPartition is Known for a partition.
func (c *Catalog) KnownPartition(ctx context.Context, name string, p int) (t *Topic, part *Partition, err error) {
	if t, err = c.Known(ctx, name); err == nil {
		part, err = t.Partition(p)
	}
	return t, part, err
}

// Reread reads the topic's generation from the store, as an operation of its own.
func (c *Catalog) Reread(ctx context.Context, name string) error {
	return c.store.Within(ctx, "look up topic "+name, func(ctx context.Context) error {
		_, err := c.Stored(ctx, name)
		return err
	})
}

// Topics implements eventlog.Reader. Sidecars call it often: while the number of topics in the
// store equals the number known, it reads no documents.
func (c *Catalog) Topics(ctx context.Context) ([]eventlog.Topic, error) {
	ctx, end, err := c.store.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	var n int64
	err = c.store.Persist(ctx, func() (err error) {
		n, err = c.store.Majority(core.Topics).EstimatedDocumentCount(ctx)
		return err
	})
	if err != nil {
		return nil, c.store.Unavailable(ctx, "count topics", err)
	}
	began := c.store.Clock.Now()
	if list := c.all(n, began); list != nil {
		c.store.Reached()
		return list, nil
	}
	byName := options.Find().SetSort(bson.D{{Key: "_id", Value: 1}})
	documents, err := core.FindAll[bson.Raw](ctx, c.store, core.Topics, bson.D{}, byName)
	if err != nil {
		return nil, c.store.Unavailable(ctx, "list topics", err)
	}
	list := make([]eventlog.Topic, 0, len(documents))
	for _, raw := range documents {
		t, _, err := c.remember(raw)
		if err != nil {
			return nil, err
		}
		if t.Exists() {
			list = append(list, t.entry())
		}
	}
	c.mu.Lock()
	c.listed = began
	c.mu.Unlock()
	c.store.Reached()
	return list, nil
}

// CountTopics implements eventlog.Reader.
func (c *Catalog) CountTopics(ctx context.Context, by string) (all, own int, err error) {
	list, err := c.Topics(ctx)
	for i := range list {
		if list[i].By == by {
			own++
		}
	}
	return len(list), own, err
}

// Deleted returns those of the topics that are deleted completely, as an operation of its own.
func (c *Catalog) Deleted(ctx context.Context, names []string) (deleted []string, err error) {
	if len(names) == 0 {
		return nil, nil
	}
	filter := bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: names}}}, {Key: "emptied", Value: true}}
	err = c.store.Within(ctx, "look for deleted topics", func(ctx context.Context) error {
		found, err := core.FindAll[Document](ctx, c.store, core.Topics, filter, nil)
		for _, d := range found {
			deleted = append(deleted, d.Name)
		}
		return err
	})
	return deleted, err
}

// all returns the topics by name if there are n, none was deleted and the list is not too old; else
// nil.
func (c *Catalog) all(n int64, now time.Time) []eventlog.Topic {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if int64(len(c.topics)) != n || c.listed.IsZero() || now.Sub(c.listed) >= listAgain {
		return nil
	}
	list := make([]eventlog.Topic, 0, n)
	for _, t := range c.topics {
		if !t.Exists() { // it may have been made again
			return nil
		}
		list = append(list, t.entry())
	}
	slices.SortFunc(list, func(a, b eventlog.Topic) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// LookupTopic implements eventlog.Reader.
func (c *Catalog) LookupTopic(ctx context.Context, name string) (eventlog.Topic, error) {
	ctx, end, err := c.store.Begin(ctx)
	if err != nil {
		return eventlog.Topic{}, err
	}
	defer end()
	t, err := c.Stored(ctx, name)
	if err != nil {
		return eventlog.Topic{}, err
	}
	return t.entry(), nil
}

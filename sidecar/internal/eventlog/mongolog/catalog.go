package mongolog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// maxPartitions is the interface's bound.
const maxPartitions = 1024

// catalog holds the topics that this sidecar has read, including deleted ones. It never holds more
// topics than the store. A topic that is deleted and created again keeps its name and partitions,
// so these stay right. A topic's generation is the last one read; operations that depend on it
// notice a later one.
type catalog struct {
	mu     sync.RWMutex
	topics map[string]*topic
	listed time.Time // when all topics of the store were last read
}

// listAgain is how long the number of topics is trusted: a server that crashed may count them
// wrongly.
const listAgain = 10 * time.Minute

// all returns the topics by name if there are n, none was deleted and the list is not too old; else
// nil.
func (c *catalog) all(n int64, now time.Time) []eventlog.Topic {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if int64(len(c.topics)) != n || c.listed.IsZero() || now.Sub(c.listed) >= listAgain {
		return nil
	}
	list := make([]eventlog.Topic, 0, n)
	for _, t := range c.topics {
		if !t.exists() { // it may have been made again
			return nil
		}
		list = append(list, t.entry())
	}
	slices.SortFunc(list, func(a, b eventlog.Topic) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// topic is one topic and its partitions, as far as this log knows them.
type topic struct {
	eventlog.Topic
	partitions []partition
	// generation is the highest generation that was read; see delete.go. made is the By of that
	// generation, and replaces the Topic's.
	generation atomic.Int64
	made       atomic.Pointer[string]
	// eventBytes is the approximate size of an event of the topic, as wire.Event.Size counts; 0
	// until one was read.
	eventBytes atomic.Int64
	// calls are the calls of Append.
	calls batcher[*call]
	// rivals is when another sidecar was last seen to append to the topic, in nanoseconds since the
	// epoch.
	rivals atomic.Int64
	// watermarkDue is when this log may raise the watermark again, in nanoseconds since the epoch.
	watermarkDue atomic.Int64
}

// partition is one partition, as far as this log knows it.
type partition struct {
	// reserved is the highest seq that was given to this log.
	reserved atomic.Uint64
	// watermark was read from the head, and seen is a seq up to which nothing is missing.
	watermark, seen atomic.Uint64
	holes           holes
	newest          newest
	// floor is a seq below which nothing is readable any more.
	floor atomic.Uint64
	// unswept is the floor at which no stub was found; 0: one may be there.
	unswept atomic.Uint64
	// oldest is when the lowest live event was accepted, as a sweep found it; 0 if it is not known.
	// It only rises, since seqs do.
	oldest atomic.Int64
}

// exists reports whether the topic exists, as far as this log knows.
func (t *topic) exists() bool { return t.generation.Load()%2 == 0 }

// entry is the topic with By of its generation.
func (t *topic) entry() eventlog.Topic {
	tp := t.Topic
	if by := t.made.Load(); by != nil {
		tp.By = *by
	}
	return tp
}

// raise makes n at least as high as to.
func raise(n *atomic.Uint64, to uint64) {
	for was := n.Load(); was < to && !n.CompareAndSwap(was, to); was = n.Load() {
	}
}

// topicDocument is a topic's entry in the store.
type topicDocument struct {
	Name       string `bson:"_id"`
	Partitions int    `bson:"partitions"`
	By         string `bson:"by,omitempty"` // the identity that it was created for
	// Generation is odd while the topic is deleted. Emptied says that nothing of the deleted topic
	// is left.
	Generation int64 `bson:"generation"`
	Emptied    bool  `bson:"emptied,omitempty"`
}

// readTopic reads a topic's document, which people may have edited.
func readTopic(raw bson.Raw) (d topicDocument, err error) {
	if err := bson.Unmarshal(raw, &d); err != nil {
		return d, fmt.Errorf("topic document %s: %w", raw.Lookup("_id"), err)
	}
	return d, d.check()
}

func (d topicDocument) check() error {
	if d.Partitions < 1 || d.Partitions > maxPartitions {
		return fmt.Errorf("topic %q: its document says %d partitions; 1 to %d are allowed", d.Name, d.Partitions, maxPartitions)
	}
	return nil
}

// cached is the topic if it is known, and exists.
func (c *catalog) cached(name string) *topic {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if t := c.topics[name]; t != nil && t.exists() {
		return t
	}
	return nil
}

// remember returns the topic of a document that is in the store, and the document.
func (c *catalog) remember(raw bson.Raw) (*topic, topicDocument, error) {
	d, err := readTopic(raw)
	if err != nil {
		return nil, d, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	t, ok := c.topics[d.Name]
	if !ok {
		t = &topic{
			Topic:      eventlog.Topic{Name: d.Name, Partitions: d.Partitions},
			partitions: make([]partition, d.Partitions),
		}
		c.topics[d.Name] = t
	}
	if d.Generation >= t.generation.Load() { // mu is held
		t.made.Store(&d.By)
		t.generation.Store(d.Generation)
	}
	return t, d, nil
}

// beginOn is begin, and finds a topic.
func (l *Log) beginOn(ctx context.Context, name string) (_ context.Context, t *topic, end func(), err error) {
	if ctx, end, err = l.begin(ctx); err != nil {
		return nil, nil, nil, err
	}
	if t, err = l.topic(ctx, name); err != nil {
		end()
		return nil, nil, nil, err
	}
	return ctx, t, end, nil
}

// topic finds a topic; it must be called between begin and its end.
func (l *Log) topic(ctx context.Context, name string) (*topic, error) {
	if t := l.catalog.cached(name); t != nil {
		return t, nil
	}
	return l.storedTopic(ctx, name)
}

// storedTopic reads a topic from the store.
func (l *Log) storedTopic(ctx context.Context, name string) (*topic, error) {
	raw, err := l.topicRaw(ctx, name)
	switch {
	case errors.Is(err, eventlog.ErrNotFound):
		return nil, err
	case err != nil:
		return nil, l.unavailable(ctx, "look up topic "+name, err)
	}
	t, _, err := l.catalog.remember(raw)
	if err == nil && !t.exists() {
		err = notThere(name)
	}
	return t, err
}

// topicRaw reads a topic's document.
func (l *Log) topicRaw(ctx context.Context, name string) (raw bson.Raw, err error) {
	err = l.persist(ctx, func() (err error) {
		raw, err = l.majority(topicsName).FindOne(ctx, byID(name)).Raw()
		return err
	})
	if errors.Is(err, mongo.ErrNoDocuments) {
		err = notThere(name)
	}
	return raw, err
}

func notThere(name string) error { return fmt.Errorf("topic %q: %w", name, eventlog.ErrNotFound) }

// partition finds a partition of a topic; it must be called between begin and its end.
func (l *Log) partition(ctx context.Context, name string, p int) (*topic, *partition, error) {
	t, err := l.topic(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	part, err := t.partition(p)
	return t, part, err
}

func (t *topic) partition(p int) (*partition, error) {
	if p < 0 || p >= len(t.partitions) {
		return nil, fmt.Errorf("topic %q has partitions 0 to %d, not %d: %w", t.Name, len(t.partitions)-1, p, eventlog.ErrNotFound)
	}
	return &t.partitions[p], nil
}

// EnsureTopic implements eventlog.Appender.
func (l *Log) EnsureTopic(ctx context.Context, name string, partitions int) (eventlog.Topic, error) {
	ctx, end, err := l.begin(ctx)
	if err != nil {
		return eventlog.Topic{}, err
	}
	defer end()
	var wait backoff
	for {
		t, err := l.topic(ctx, name)
		if err == nil {
			return t.entry(), nil
		}
		if !errors.Is(err, eventlog.ErrNotFound) {
			return eventlog.Topic{}, err
		}
		d := topicDocument{Name: name, Partitions: partitions, By: eventlog.Maker(ctx)}
		if err := d.check(); err != nil {
			return eventlog.Topic{}, err
		}
		// The first insert wins. The document is read at majority; another sidecar's insert may
		// appear there a moment later.
		longest := shortWait
		if _, err = l.majority(topicsName).InsertOne(ctx, d); mongo.IsDuplicateKeyError(err) {
			var again bool
			if again, err = l.makeAgain(ctx, name); err == nil && !again {
				err = errBehind
			}
		} else if err != nil {
			longest = longWait
		}
		switch {
		case err == nil:
			continue
		case errors.Is(err, eventlog.ErrDeleting):
			return eventlog.Topic{}, err
		}
		if isPermanent(err) || wait.sleep(ctx, l.opts.Clock, longest) != nil {
			return eventlog.Topic{}, l.unavailable(ctx, "create topic "+name, err)
		}
	}
}

// Topics implements eventlog.Reader. Sidecars call it often: while the number of topics in the
// store equals the number known, it reads no documents.
func (l *Log) Topics(ctx context.Context) ([]eventlog.Topic, error) {
	ctx, end, err := l.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	var n int64
	err = l.persist(ctx, func() (err error) {
		n, err = l.majority(topicsName).EstimatedDocumentCount(ctx)
		return err
	})
	if err != nil {
		return nil, l.unavailable(ctx, "count topics", err)
	}
	began := l.opts.Clock.Now()
	if list := l.catalog.all(n, began); list != nil {
		l.reached()
		return list, nil
	}
	byName := options.Find().SetSort(bson.D{{Key: "_id", Value: 1}})
	documents, err := findAll[bson.Raw](ctx, l, l.majority(topicsName), bson.D{}, byName)
	if err != nil {
		return nil, l.unavailable(ctx, "list topics", err)
	}
	list := make([]eventlog.Topic, 0, len(documents))
	for _, raw := range documents {
		t, _, err := l.catalog.remember(raw)
		if err != nil {
			return nil, err
		}
		if t.exists() {
			list = append(list, t.entry())
		}
	}
	l.catalog.mu.Lock()
	l.catalog.listed = began
	l.catalog.mu.Unlock()
	l.reached()
	return list, nil
}

// LookupTopic implements eventlog.Reader.
func (l *Log) LookupTopic(ctx context.Context, name string) (eventlog.Topic, error) {
	ctx, end, err := l.begin(ctx)
	if err != nil {
		return eventlog.Topic{}, err
	}
	defer end()
	t, err := l.storedTopic(ctx, name)
	if err != nil {
		return eventlog.Topic{}, err
	}
	return t.entry(), nil
}

// known is topic, for callers whose steps each begin an operation of their own.
func (l *Log) known(ctx context.Context, name string) (*topic, error) {
	_, t, end, err := l.beginOn(ctx, name)
	if err == nil {
		end()
	}
	return t, err
}

// knownPartition is known for a partition.
func (l *Log) knownPartition(ctx context.Context, name string, p int) (t *topic, part *partition, err error) {
	if t, err = l.known(ctx, name); err == nil {
		part, err = t.partition(p)
	}
	return t, part, err
}

// reread reads the topic's generation from the store.
func (l *Log) reread(ctx context.Context, name string) error {
	return l.within(ctx, "look up topic "+name, func(ctx context.Context) error {
		_, err := l.storedTopic(ctx, name)
		return err
	})
}

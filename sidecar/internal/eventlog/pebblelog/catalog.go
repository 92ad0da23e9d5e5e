package pebblelog

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"

	"github.com/sluice-bus/sluice/internal/pause"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// maxPartitions is the interface's bound; keys have room for more.
const maxPartitions = 1024

// catalog is all topics of the store, in memory.
type catalog struct {
	// creating is held while a topic is created, through its sync: no caller sees a topic before it
	// is durable.
	creating pause.Mutex
	nextID   uint32 // guarded by creating

	mu     sync.RWMutex
	topics map[string]*topic
}

// topic is one topic and what is known of its partitions.
type topic struct {
	id   uint32
	name string
	by   atomic.Pointer[string] // nil: no identity
	// gone says that the topic is deleted. Its entry stays, since it keeps the topic's number and
	// seqs. gone changes with all of the partitions' turns held.
	gone atomic.Bool
	// made says that the topic was made since the start: a partition that was not used yet has nothing to recover.
	made bool

	claims     claims
	sweeping   pause.Mutex // held by the one sweep that may run
	waiting    tally
	partitions []partition
}

// partition is the state of one partition. It is recovered from the store on first use, and is
// ahead of the store from then on.
type partition struct {
	recovery sync.Mutex
	ready    atomic.Bool

	// turn is held while seqs are given out and their batch is applied to Pebble, so that seqs are
	// in the order of commits. It guards last, the highest seq given out, and order.
	turn  pause.Mutex
	last  uint64
	order order

	// head is the highest seq that is durable, hence readable.
	head atomic.Uint64
	// floor is the highest seq that retention, or the topic's deletion, has removed.
	floor atomic.Uint64
}

func newTopic(id uint32, name string, partitions int) *topic {
	return &topic{
		id: id, name: name,
		claims:     claims{held: map[string]chan struct{}{}},
		sweeping:   pause.NewMutex(),
		partitions: make([]partition, partitions),
	}
}

func (t *topic) entry() eventlog.Topic {
	return eventlog.Topic{Name: t.name, Partitions: len(t.partitions), By: t.maker()}
}

// maker is the identity that the topic was created for.
func (t *topic) maker() string {
	if by := t.by.Load(); by != nil {
		return *by
	}
	return ""
}

// A catalog entry's value: the topic's number and its partitions, as unsigned varints, then topicLives
// or topicDeleted, and then the identity that it was created for.
func (t *topic) value(state byte, by string) []byte {
	value := binary.AppendUvarint(binary.AppendUvarint(nil, uint64(t.id)), uint64(len(t.partitions)))
	return append(append(value, state), by...)
}

const (
	topicLives   = 0
	topicDeleted = 1
)

func (t *topic) madeBy(name string) {
	if t.by.Store(nil); name != "" {
		t.by.Store(&name)
	}
}

func loadCatalog(db *pebble.DB) (*catalog, error) {
	c := &catalog{creating: pause.NewMutex(), nextID: 1, topics: map[string]*topic{}}
	all := pebble.IterOptions{LowerBound: []byte{kindCatalog}, UpperBound: []byte{kindCatalog + 1}}
	for e, err := range entries(context.Background(), db, &all) {
		if err != nil {
			return nil, err
		}
		name := string(e.key[1:])
		d := decoder{rest: e.value}
		id, partitions, state := uint32(d.uvarint()), int(d.uvarint()), d.byte()
		if d.err != nil || partitions < 1 || partitions > maxPartitions {
			return nil, fmt.Errorf("catalog entry of topic %q is damaged", name)
		}
		t := newTopic(id, name, partitions)
		t.gone.Store(state == topicDeleted)
		t.madeBy(string(d.rest))
		c.topics[name] = t
		c.nextID = max(c.nextID, id+1)
	}
	return c, nil
}

func (c *catalog) find(name string) (*topic, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if t, ok := c.topics[name]; ok && !t.gone.Load() {
		return t, nil
	}
	return nil, eventlog.NotFound("topic %q", name)
}

// deleted is the topic of that name if it is deleted, else nil.
func (c *catalog) deleted(name string) *topic {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if t := c.topics[name]; t != nil && t.gone.Load() {
		return t
	}
	return nil
}

// byID are all topics, the deleted ones too, by their numbers.
func (c *catalog) byID() map[uint32]*topic {
	c.mu.RLock()
	defer c.mu.RUnlock()
	topics := make(map[uint32]*topic, len(c.topics))
	for _, t := range c.topics {
		topics[t.id] = t
	}
	return topics
}

// EnsureTopic implements eventlog.Appender.
func (l *Log) EnsureTopic(ctx context.Context, name string, partitions int) (eventlog.Topic, error) {
	if err := l.enter(ctx); err != nil {
		return eventlog.Topic{}, err
	}
	defer l.leave()
	if t, err := l.catalog.find(name); err == nil {
		return t.entry(), nil
	}
	if partitions < 1 || partitions > maxPartitions {
		return eventlog.Topic{}, fmt.Errorf("topic %q: %d partitions; 1 to %d are allowed", name, partitions, maxPartitions)
	}
	if err := l.catalog.creating.Lock(ctx); err != nil {
		return eventlog.Topic{}, err
	}
	defer l.catalog.creating.Unlock()
	if t, err := l.catalog.find(name); err == nil {
		return t.entry(), nil
	}
	if err := l.space.check(); err != nil {
		return eventlog.Topic{}, err
	}
	t := l.catalog.deleted(name)
	again := t != nil
	if !again {
		t = newTopic(l.catalog.nextID, name, partitions)
		t.made = true
	}
	b := l.db.NewBatch()
	by := eventlog.Maker(ctx)
	_ = b.Set(catalogKey(name), t.value(topicLives, by), nil)
	// An applied entry cannot be cancelled, so this waits for its commit also if the context ends:
	// the next caller must find it.
	x, err := l.commits.apply(ctx, &change{entries: b}, nil)
	if err != nil {
		return eventlog.Topic{}, err
	}
	if <-x.done; x.err != nil {
		return eventlog.Topic{}, x.err
	}
	t.madeBy(by)
	if again {
		t.gone.Store(false)
		return t.entry(), nil
	}
	l.catalog.nextID++
	l.catalog.mu.Lock()
	l.catalog.topics[name] = t
	l.catalog.mu.Unlock()
	return t.entry(), nil
}

// Topics implements eventlog.Reader.
func (l *Log) Topics(ctx context.Context) ([]eventlog.Topic, error) {
	if err := l.enter(ctx); err != nil {
		return nil, err
	}
	defer l.leave()
	l.catalog.mu.RLock()
	list := make([]eventlog.Topic, 0, len(l.catalog.topics))
	for _, t := range l.catalog.topics {
		if !t.gone.Load() {
			list = append(list, t.entry())
		}
	}
	l.catalog.mu.RUnlock()
	slices.SortFunc(list, func(a, b eventlog.Topic) int { return cmp.Compare(a.Name, b.Name) })
	return list, nil
}

// CountTopics implements eventlog.Reader.
func (l *Log) CountTopics(ctx context.Context, by string) (all, own int, err error) {
	if err := l.enter(ctx); err != nil {
		return 0, 0, err
	}
	defer l.leave()
	l.catalog.mu.RLock()
	defer l.catalog.mu.RUnlock()
	for _, t := range l.catalog.topics {
		if t.gone.Load() {
			continue
		}
		all++
		if t.maker() == by {
			own++
		}
	}
	return all, own, nil
}

// LookupTopic implements eventlog.Reader.
func (l *Log) LookupTopic(ctx context.Context, name string) (eventlog.Topic, error) {
	t, err := l.enterTopic(ctx, name)
	if err != nil {
		return eventlog.Topic{}, err
	}
	defer l.leave()
	return t.entry(), nil
}

// Extents implements eventlog.Reader.
func (l *Log) Extents(ctx context.Context, name string) ([]eventlog.Extent, error) {
	t, err := l.enterTopic(ctx, name)
	if err != nil {
		return nil, err
	}
	defer l.leave()
	extents := make([]eventlog.Extent, len(t.partitions))
	for p := range extents {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		part, err := l.partition(t, p)
		if err != nil {
			return nil, err
		}
		// floor first: it never passes the head that is read after it.
		floor := part.floor.Load()
		extents[p].First, extents[p].Removed = floor+1, floor
		extents[p].Head = part.head.Load()
	}
	return extents, nil
}

// Holdings implements eventlog.Reader.
func (l *Log) Holdings(ctx context.Context, names []string) ([]eventlog.Holding, error) {
	return eventlog.HoldingsOf(ctx, l, names)
}

// partition returns a partition of the topic, recovered.
func (l *Log) partition(t *topic, p int) (*partition, error) {
	if p < 0 || p >= len(t.partitions) {
		return nil, eventlog.NotFound("partition %d of topic %q, which has 0 to %d", p, t.name, len(t.partitions)-1)
	}
	part := &t.partitions[p]
	if part.ready.Load() {
		return part, nil
	}
	part.recovery.Lock()
	defer part.recovery.Unlock()
	if part.ready.Load() {
		return part, nil
	}
	if !t.made {
		if err := l.recoverPartition(t, p, part); err != nil {
			return nil, err
		}
	}
	part.turn = pause.NewMutex()
	part.ready.Store(true)
	return part, nil
}

// recoverPartition reads from the store what a partition had before the start.
func (l *Log) recoverPartition(t *topic, p int, part *partition) error {
	floor, err := l.storedSeq(floorKey(t.id, p))
	if err != nil {
		return err
	}
	last, err := l.lastSeq(t.id, p)
	if err != nil {
		return err
	}
	given, err := l.storedSeq(givenKey(t.id, p))
	if err != nil {
		return err
	}
	part.last = max(last, floor, given)
	if err := l.passNamed(t, p, part); err != nil {
		return err
	}
	if part.order, err = l.recoverOrder(t, p, part.last); err != nil {
		return err
	}
	part.head.Store(part.last)
	part.floor.Store(floor)
	return nil
}

// passNamed raises a partition's last seq above all seqs that progress and redrives name, and says what is missing.
func (l *Log) passNamed(t *topic, p int, part *partition) error {
	for _, named := range []func(*topic, int) (uint64, string, error){l.epochs.named, l.redriven} {
		seq, group, err := named(t, p)
		if err != nil {
			return err
		}
		if seq > part.last {
			l.health.log.Error("a group is ahead of its partition: events are missing, and their seqs are not given out again",
				"topic", t.name, "partition", p, "group", group, "first_missing", part.last+1, "last_missing", seq)
			part.last = seq
		}
	}
	return nil
}

// heads returns the readable head of each partition. Callers call it before they open the iterator
// that it bounds, so that the iterator sees every durable event.
func (l *Log) heads(t *topic) ([]uint64, error) {
	heads := make([]uint64, len(t.partitions))
	for p := range heads {
		part, err := l.partition(t, p)
		if err != nil {
			return nil, err
		}
		heads[p] = part.head.Load()
	}
	return heads, nil
}

// reach is the range of a partition's seqs that may be read: above floor, up to head.
type reach struct{ floor, head uint64 }

// reaches returns the reach of each partition.
func (l *Log) reaches(t *topic) ([]reach, error) {
	reaches := make([]reach, len(t.partitions))
	for p := range reaches {
		part, err := l.partition(t, p)
		if err != nil {
			return nil, err
		}
		// floor first: it never passes the head that is read after it.
		reaches[p].floor = part.floor.Load()
		reaches[p].head = part.head.Load()
	}
	return reaches, nil
}

// storedSeq is the seq under a key, 0 if there is none.
func (l *Log) storedSeq(key []byte) (uint64, error) {
	value, found, err := l.get(key)
	if !found || err != nil {
		return 0, err
	}
	d := decoder{rest: value}
	seq := d.uvarint()
	return seq, d.err
}

// lastSeq is the highest seq of the partition's events, 0 if there are none.
func (l *Log) lastSeq(topic uint32, p int) (uint64, error) {
	it, err := l.db.NewIter(&pebble.IterOptions{
		LowerBound: eventKey(nil, topic, p, 0),
		UpperBound: eventKey(nil, topic, p+1, 0),
	})
	if err != nil {
		return 0, failed(err)
	}
	defer it.Close()
	if !it.Last() {
		return 0, failed(it.Error())
	}
	value, err := it.ValueAndErr()
	if err != nil {
		return 0, failed(err)
	}
	r, err := decodeRun(topic, p, it.Key(), value)
	return r.last(), failed(err)
}

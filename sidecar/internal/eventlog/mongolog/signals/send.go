// Package signals carries signals between the sidecars of a store.
package signals

import (
	"context"
	"hash/fnv"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/core"
)

// Signals are selected by their topics. The hash of a topic gives its slot, one of signalSlots, and
// the slot gives the collection of its signals, one of core.SignalShards. A follower has a cursor on
// each collection of its topics, and the server returns only signals about their slots:
//
//   - One more collection costs a sidecar that reads many topics one more cursor, and a connection
//     that waits at the server. It also saves the server work: an insert wakes fewer cursors in
//     vain.
//   - With more slots, fewer sidecars receive signals about topics that they do not read. A
//     cursor's filter does not grow beyond a collection's slots, however many topics there are.
const signalSlots = 1024

// slotOf is a topic's slot.
func slotOf(topic string) int32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(topic))
	return int32(h.Sum32() % signalSlots)
}

// shardOf is the collection of a slot.
func shardOf(slot int32) int { return int(slot % core.SignalShards) }

// signalDoc is a signal in the store.
type signalDoc struct {
	ID       bson.ObjectID        `bson:"_id,omitempty"`
	Node     string               `bson:"node"`  // the log that sends the signal
	Slots    []int32              `bson:"slots"` // of all its topics
	Appended []eventlog.Hint      `bson:"appended,omitempty"`
	Moved    []eventlog.GroupName `bson:"moved,omitempty"`
	Nodes    []string             `bson:"nodes,omitempty"`
	Erased   []string             `bson:"erased,omitempty"`
	// All says that one signal could not hold all the news: receivers look at all topics of its
	// slots.
	All bool `bson:"all,omitempty"`
}

func (d *signalDoc) signal() eventlog.Signal {
	return eventlog.Signal{Appended: d.Appended, Moved: d.Moved, Nodes: d.Nodes, Erased: d.Erased}
}

// Bounds of one signal. A signal that exceeds them names only slots, and readers look at all topics
// of these.
const (
	maxSignalParts = 256      // partitions, groups and topics
	maxSignalBytes = 16 << 10 // of their names
)

// signalSet holds merged signals about topics of one collection.
type signalSet struct {
	slots map[int32]struct{}
	heads map[eventlog.Hint]uint64 // by hint without head
	moved map[eventlog.GroupName]struct{}
	nodes map[string]struct{}
	gone  map[string]struct{} // topics of which events were erased
	bytes int
	all   bool // too much to name
}

func (s *signalSet) empty() bool { return len(s.slots) == 0 }

// addHint keeps the highest head of a partition.
func (s *signalSet) addHint(h eventlog.Hint) {
	head := h.Head
	h.Head = 0
	if known, ok := s.heads[h]; ok {
		s.heads[h] = eventlog.HigherHead(known, head)
		return
	}
	put(s, &s.heads, h, head, h.Topic, "")
}

func (s *signalSet) addMoved(g eventlog.GroupName) { put(s, &s.moved, g, struct{}{}, g.Topic, g.Group) }

func (s *signalSet) addNodes(topic string) { put(s, &s.nodes, topic, struct{}{}, topic, "") }

func (s *signalSet) addErased(topic string) { put(s, &s.gone, topic, struct{}{}, topic, "") }

// put adds an entry about a topic to one of the maps if there is room. The map has no entry under
// that key, or the same one.
func put[K comparable, V any](s *signalSet, into *map[K]V, key K, value V, topic, group string) {
	if _, known := (*into)[key]; known {
		return
	}
	s.about(slotOf(topic))
	bytes := len(topic) + len(group)
	switch {
	case s.all:
		return
	case len(s.heads)+len(s.moved)+len(s.nodes)+len(s.gone) >= maxSignalParts || s.bytes+bytes > maxSignalBytes:
		s.overflow()
		return
	case *into == nil:
		*into = map[K]V{}
	}
	s.bytes += bytes
	(*into)[key] = value
}

// about adds slots.
func (s *signalSet) about(slots ...int32) {
	if s.slots == nil {
		s.slots = map[int32]struct{}{}
	}
	for _, slot := range slots {
		s.slots[slot] = struct{}{}
	}
}

// overflow drops all names. It keeps the slots of the topics so far, and adds these slots.
func (s *signalSet) overflow(slots ...int32) {
	*s = signalSet{slots: s.slots, all: true}
	s.about(slots...)
}

func (s *signalSet) doc() *signalDoc {
	d := &signalDoc{
		Slots: slices.Sorted(maps.Keys(s.slots)), Moved: slices.Collect(maps.Keys(s.moved)),
		Nodes: slices.Sorted(maps.Keys(s.nodes)), Erased: slices.Sorted(maps.Keys(s.gone)), All: s.all,
	}
	for h, head := range s.heads {
		h.Head = head
		d.Appended = append(d.Appended, h)
	}
	return d
}

// signalSpacing is the time between two signals of a sidecar. The next signal has all news since
// the last one.
const signalSpacing = 20 * time.Millisecond

// signalRetry is the longest wait between two tries while the store is away.
const signalRetry = 2 * time.Second

// Signals sends and follows the signals of a store.
type Signals struct {
	store  *core.Store
	unsent signalQueue
}

// New makes Signals.
func New(s *core.Store) *Signals {
	return &Signals{store: s, unsent: signalQueue{id: uuid.NewString()}}
}

// Send implements eventlog.Signals.
func (x *Signals) Send(s eventlog.Signal) {
	for _, shard := range x.unsent.put(s) {
		x.store.Spawn(func() { x.sendPending(shard) }) // once the log is closed, no more signals are sent
	}
}

// sendPending sends until nothing is left to send into a collection, or the log is closed. Only one
// sendPending runs at a time for each collection.
func (x *Signals) sendPending(shard int) {
	q := &x.unsent
	var retry core.Backoff
	for {
		if !x.store.Clock.Sleep(x.store.Lasting(), signalSpacing-x.store.Clock.Since(q.shards[shard].sent)) {
			return
		}
		d, found := q.pop(shard)
		if !found {
			return
		}
		err := x.sendSignal(shard, d)
		q.shards[shard].sent = x.store.Clock.Now()
		if err == nil {
			retry = core.Backoff{}
			continue
		}
		q.putBack(shard, d)
		if retry.Sleep(x.store.Lasting(), x.store.Clock, signalRetry) != nil {
			return
		}
	}
}

// sendSignal writes one signal.
func (x *Signals) sendSignal(shard int, d *signalDoc) error {
	ctx, end, err := x.store.Begin(x.store.Lasting())
	if err != nil {
		return err
	}
	defer end()
	return x.writeSignal(ctx, shard, d)
}

func (x *Signals) writeSignal(ctx context.Context, shard int, d *signalDoc) error {
	_, err := collection(x.store, shard).InsertOne(ctx, d)
	return err
}

// lastSignalTimeout bounds the wait for the last signals when the log is closed.
const lastSignalTimeout = time.Second

// SendLast sends the waiting signals when the log is closed; often they say that this sidecar has
// left. Without them the other sidecars would learn that only from their next look, much later if
// leases are long. Nothing else sends signals by then.
func (x *Signals) SendLast() {
	ctx, cancel := x.store.Clock.WithTimeout(context.Background(), lastSignalTimeout)
	defer cancel()
	for shard := range core.SignalShards {
		if d, found := x.unsent.pop(shard); found && x.writeSignal(ctx, shard, d) != nil {
			return // sidecars that miss it find the changes with their next look
		}
	}
}

// signalQueue holds signals to be sent.
type signalQueue struct {
	id     string // of this process as a sender of signals
	mu     sync.Mutex
	shards [core.SignalShards]struct {
		sending bool
		waiting signalSet
		sent    time.Time // of the one that sends
	}
}

// put adds to the waiting signals, and returns the collections for which the caller has to start
// sendPending.
func (q *signalQueue) put(s eventlog.Signal) (start []int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.add(s)
	for shard := range q.shards {
		if sh := &q.shards[shard]; !sh.sending && !sh.waiting.empty() {
			sh.sending = true
			start = append(start, shard)
		}
	}
	return start
}

// add adds to the waiting signals; mu is held.
func (q *signalQueue) add(s eventlog.Signal) {
	about := func(topic string) *signalSet { return &q.shards[shardOf(slotOf(topic))].waiting }
	for _, h := range s.Appended {
		if h.Topic != "" {
			about(h.Topic).addHint(h)
			continue
		}
		for slot := range int32(signalSlots) {
			q.shards[shardOf(slot)].waiting.overflow(slot)
		}
	}
	for _, g := range s.Moved {
		about(g.Topic).addMoved(g)
	}
	for _, topic := range s.Nodes {
		about(topic).addNodes(topic)
	}
	for _, topic := range s.Erased {
		about(topic).addErased(topic)
	}
}

// pop removes and returns all signals that wait for a collection. If none waits, the sending ends.
func (q *signalQueue) pop(shard int) (*signalDoc, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	sh := &q.shards[shard]
	if sh.waiting.empty() {
		sh.sending = false
		return nil, false
	}
	d := sh.waiting.doc()
	d.ID, d.Node = bson.NewObjectID(), q.id
	sh.waiting = signalSet{}
	return d, true
}

// putBack keeps a signal that could not be sent.
func (q *signalQueue) putBack(shard int, d *signalDoc) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.add(d.signal())
	if d.All {
		q.shards[shard].waiting.overflow(d.Slots...)
	}
}

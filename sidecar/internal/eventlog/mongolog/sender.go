package mongolog

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// Bounds of one signal. A signal that exceeds them names only slots, and readers look at all topics
// of these.
const (
	maxSignalParts = 256      // partitions, groups and topics
	maxSignalBytes = 16 << 10 // of their names
)

// signalSpacing is the time between two signals of a sidecar. The next signal has all news since
// the last one.
const signalSpacing = 20 * time.Millisecond

// signalRetry is the longest wait between two tries while the store is away.
const signalRetry = 2 * time.Second

// Send implements eventlog.Signals.
func (l *Log) Send(s eventlog.Signal) {
	for _, shard := range l.unsent.put(s) {
		l.spawn(func() { l.sendPending(shard) }) // once the log is closed, no more signals are sent
	}
}

// sendPending sends until nothing is left to send into a collection, or the log is closed. Only one
// sendPending runs at a time for each collection.
func (l *Log) sendPending(shard int) {
	o := &l.unsent
	var retry backoff
	for {
		if !l.opts.Clock.Sleep(l.ctx, signalSpacing-l.opts.Clock.Since(o.shards[shard].sent)) {
			return
		}
		d, found := o.pop(shard)
		if !found {
			return
		}
		err := l.sendSignal(shard, d)
		o.shards[shard].sent = l.opts.Clock.Now()
		if err == nil {
			retry = backoff{}
			continue
		}
		o.putBack(shard, d)
		if retry.sleep(l.ctx, l.opts.Clock, signalRetry) != nil {
			return
		}
	}
}

// sendSignal writes one signal.
func (l *Log) sendSignal(shard int, d *signalDoc) error {
	ctx, end, err := l.begin(l.ctx)
	if err != nil {
		return err
	}
	defer end()
	return l.writeSignal(ctx, shard, d)
}

func (l *Log) writeSignal(ctx context.Context, shard int, d *signalDoc) error {
	_, err := l.signals(shard).InsertOne(ctx, d)
	return err
}

// lastSignalTimeout bounds the wait for the last signals when the log is closed.
const lastSignalTimeout = time.Second

// sendLast sends the waiting signals when the log is closed; often they say that this sidecar has
// left. Without them the other sidecars would learn that only from their next look, much later if
// leases are long. Nothing else sends signals by then.
func (l *Log) sendLast() {
	ctx, cancel := l.opts.Clock.WithTimeout(context.Background(), lastSignalTimeout)
	defer cancel()
	for shard := range signalShards {
		if d, found := l.unsent.pop(shard); found && l.writeSignal(ctx, shard, d) != nil {
			return // sidecars that miss it find the changes with their next look
		}
	}
}

// signalQueue holds signals to be sent.
type signalQueue struct {
	id     string // of the log as a sender of signals
	mu     sync.Mutex
	shards [signalShards]struct {
		sending bool
		waiting signalSet
		sent    time.Time // of the one that sends
	}
}

// put adds to the waiting signals, and returns the collections for which the caller has to start
// sendPending.
func (o *signalQueue) put(s eventlog.Signal) (start []int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.add(s)
	for shard := range o.shards {
		if of := &o.shards[shard]; !of.sending && !of.waiting.empty() {
			of.sending = true
			start = append(start, shard)
		}
	}
	return start
}

// add adds to the waiting signals; mu is held.
func (o *signalQueue) add(s eventlog.Signal) {
	of := func(topic string) *signalSet { return &o.shards[shardOf(slotOf(topic))].waiting }
	for _, h := range s.Appended {
		if h.Topic != "" {
			of(h.Topic).addHint(h)
			continue
		}
		for slot := range int32(signalSlots) {
			o.shards[shardOf(slot)].waiting.overflow(slot)
		}
	}
	for _, g := range s.Moved {
		of(g.Topic).addMoved(g)
	}
	for _, topic := range s.Nodes {
		of(topic).addNodes(topic)
	}
	for _, topic := range s.Erased {
		of(topic).addErased(topic)
	}
}

// pop removes and returns all signals that wait for a collection. If none waits, the sending ends.
func (o *signalQueue) pop(shard int) (*signalDoc, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	of := &o.shards[shard]
	if of.waiting.empty() {
		of.sending = false
		return nil, false
	}
	d := of.waiting.doc()
	d.ID, d.Node = bson.NewObjectID(), o.id
	of.waiting = signalSet{}
	return d, true
}

// putBack keeps a signal that could not be sent.
func (o *signalQueue) putBack(shard int, d *signalDoc) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.add(d.signal())
	if d.All {
		o.shards[shard].waiting.overflow(d.Slots...)
	}
}

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
	d := &signalDoc{Slots: slices.Sorted(maps.Keys(s.slots)), Moved: slices.Collect(maps.Keys(s.moved)), Nodes: slices.Sorted(maps.Keys(s.nodes)), Erased: slices.Sorted(maps.Keys(s.gone)), All: s.all}
	for h, head := range s.heads {
		h.Head = head
		d.Appended = append(d.Appended, h)
	}
	return d
}

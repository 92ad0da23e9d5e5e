package signals

import (
	"hash/fnv"
	"maps"
	"slices"

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

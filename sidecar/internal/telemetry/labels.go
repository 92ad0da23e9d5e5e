package telemetry

import (
	"maps"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/sluice-bus/sluice/internal/budget"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// otherLabel is the label of all names beyond the bound. No client's topic can have it, since a
// first "_" is reserved.
const otherLabel = "_other"

// labelOrOther is the name itself if it can be a label. A name that is too long or not UTF-8 was
// refused, and would make the exposition invalid.
func labelOrOther(name string, maxBytes int) string {
	if len(name) > maxBytes || !utf8.ValidString(name) {
		return otherLabel
	}
	return name
}

// labels are one attribute set, made once as an option, since making that costs more than counting;
// since is when.
type labels struct {
	set     attribute.Set
	options []metric.ObserveOption
	since   time.Time
}

func newLabels(kvs ...attribute.KeyValue) labels {
	set := attribute.NewSet(kvs...)
	return labels{set: set, options: []metric.ObserveOption{metric.WithAttributeSet(set)}, since: time.Now()}
}

// series has what is counted by topic and by group.
type series struct {
	topics handles[string, Topic]
	groups handles[eventlog.GroupName, Group]
}

func newSeries(maxTopics int, owner func(topic string) string) *series {
	return &series{
		topics: handles[string, Topic]{
			max: maxTopics, owner: owner, byOwner: map[string][]string{}, make: newTopic,
			fold: func(string) string { return otherLabel }, byKey: map[string]*Topic{},
		},
		groups: handles[eventlog.GroupName, Group]{
			max: groupsPerTopic * maxTopics, make: newGroup, fold: othersOf, byKey: map[eventlog.GroupName]*Group{},
		},
	}
}

// handles are the values of requested keys, at most max of them and those of folded keys. Where keys have owners, each has a share:
// while there is room one may have more, which makes room for the keys of who has less.
type handles[K comparable, V any] struct {
	max   int
	owner func(K) string // nil: there are none
	make  func(K) *V
	fold  func(K) K // the key whose value a key beyond the bound shares; it folds to itself

	mu    sync.RWMutex
	byKey map[K]*V
	own   int // keys that are not folded
	// byOwner are the keys of each owner, the oldest first; nil without owners.
	byOwner map[string][]K
}

func (h *handles[K, V]) get(k K) *V {
	if v := h.find(k); v != nil {
		return v
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.byKey[k] == nil && h.own >= h.max && !h.makeRoom(k) {
		k = h.fold(k)
	}
	v := h.byKey[k]
	if v == nil {
		v = h.make(k)
		h.byKey[k] = v
		if k != h.fold(k) {
			h.own++
			h.owns(k)
		}
	}
	return v
}

func (h *handles[K, V]) ownerOf(k K) string {
	if h.owner == nil {
		return ""
	}
	return h.owner(k)
}

func (h *handles[K, V]) owns(k K) {
	if h.byOwner != nil {
		owner := h.ownerOf(k)
		h.byOwner[owner] = append(h.byOwner[owner], k)
	}
}

// makeRoom drops the newest key of the owner that has the most, for a key of one that has less than its share. It reports false where
// nobody has more than that. The caller holds mu.
func (h *handles[K, V]) makeRoom(k K) bool {
	share := max(h.max/budget.SharesOfAll, 1)
	if len(h.byOwner[h.ownerOf(k)]) >= share || k == h.fold(k) {
		return false
	}
	most := ""
	for owner, keys := range h.byOwner {
		if len(keys) > len(h.byOwner[most]) {
			most = owner
		}
	}
	keys := h.byOwner[most]
	if len(keys) <= share {
		return false
	}
	delete(h.byKey, keys[len(keys)-1])
	h.byOwner[most] = keys[:len(keys)-1]
	h.own--
	return true
}

// find is the value that a key has of its own, or nil.
func (h *handles[K, V]) find(k K) *V {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.byKey[k]
}

func (h *handles[K, V]) all() []*V {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return slices.Collect(maps.Values(h.byKey))
}

// keys are those that have a value of their own.
func (h *handles[K, V]) keys() []K {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return slices.DeleteFunc(slices.Collect(maps.Keys(h.byKey)), func(k K) bool { return k == h.fold(k) })
}

func (h *handles[K, V]) forget(gone func(K) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	maps.DeleteFunc(h.byKey, func(k K, _ *V) bool {
		if gone(k) && k != h.fold(k) {
			h.own--
		}
		return gone(k)
	})
	maps.DeleteFunc(h.byOwner, func(owner string, keys []K) bool {
		keys = slices.DeleteFunc(keys, gone)
		h.byOwner[owner] = keys
		return len(keys) == 0
	})
}

// Topic is the handle of one topic, or of all topics that share "_other".
func (m *Metrics) Topic(name string) *Topic {
	return m.series.topics.get(labelOrOther(name, wire.MaxTopicBytes))
}

// KnownTopic is the handle of a topic that has one already, or of "_other": a topic of which events
// are refused, and that may not exist, takes no label.
func (m *Metrics) KnownTopic(name string) *Topic {
	if t := m.series.topics.find(name); t != nil {
		return t
	}
	return m.series.topics.get(otherLabel)
}

// Group is the handle of one consumer group of a topic. The empty group stands for subscriptions
// without one. Keep it as long as the group is not forgotten.
func (m *Metrics) Group(topic, group string) *Group {
	if topic = m.Topic(topic).label; topic == otherLabel {
		group = otherLabel
	}
	return m.series.groups.get(eventlog.GroupName{Topic: topic, Group: labelOrOther(group, wire.MaxGroupBytes)})
}

// Names are the topics and groups that have labels of their own. The empty group is none.
func (m *Metrics) Names() (topics []string, groups []eventlog.GroupName) {
	groups = slices.DeleteFunc(m.series.groups.keys(), func(g eventlog.GroupName) bool { return g.Group == "" })
	return m.series.topics.keys(), groups
}

// ForgetTopic drops the series of a topic, and those of no single group of it. What is counted for it
// later begins at 0.
func (m *Metrics) ForgetTopic(topic string) {
	m.series.topics.forget(func(k string) bool { return k == topic })
	m.series.groups.forget(func(g eventlog.GroupName) bool {
		return g.Topic == topic && (g.Group == "" || g == othersOf(g))
	})
}

// ForgetGroup drops the series of a group, whose handle nobody may hold any more.

func (m *Metrics) ForgetGroup(g eventlog.GroupName) {
	m.series.groups.forget(func(k eventlog.GroupName) bool { return k == g })
}

package telemetry

import (
	"context"
	"sync"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/sluice-bus/sluice/sdk/wire"
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

// labels are one attribute set as the options of every kind of measurement: made once, since making
// them costs more than counting.
type labels struct {
	add     []metric.AddOption
	record  []metric.RecordOption
	observe []metric.ObserveOption
}

func newLabels(kvs ...attribute.KeyValue) labels {
	o := metric.WithAttributeSet(attribute.NewSet(kvs...))
	return labels{
		add:     []metric.AddOption{o},
		record:  []metric.RecordOption{o},
		observe: []metric.ObserveOption{o},
	}
}

// counter returns a function that counts under the labels. It starts by counting 0: if a counter
// first appears at 1, no rate shows that event.
func (l labels) counter(c metric.Int64Counter) func(n int) {
	count := func(n int) { c.Add(context.Background(), int64(n), l.add...) }
	count(0)
	return count
}

// handles are the values of requested keys, at most max of them and those of folded keys.
type handles[K comparable, V any] struct {
	max  int
	make func(K) *V
	fold func(K) K // the key whose value a key beyond the bound shares

	mu    sync.RWMutex
	byKey map[K]*V
}

func newHandles[K comparable, V any](limit int, build func(K) *V, fold func(K) K) handles[K, V] {
	return handles[K, V]{max: limit, make: build, fold: fold, byKey: make(map[K]*V)}
}

func (h *handles[K, V]) get(k K) *V {
	h.mu.RLock()
	v := h.find(k)
	h.mu.RUnlock()
	if v != nil {
		return v
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if v := h.find(k); v != nil {
		return v
	}
	if len(h.byKey) >= h.max {
		k = h.fold(k)
	}
	v = h.make(k)
	h.byKey[k] = v
	return v
}

// has reports whether a key was requested, and has a value of its own.
func (h *handles[K, V]) has(k K) bool {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.byKey[k] != nil
}

// find returns nil for a key that get has to add.
func (h *handles[K, V]) find(k K) *V {
	if v := h.byKey[k]; v != nil || len(h.byKey) < h.max {
		return v
	}
	return h.byKey[h.fold(k)]
}

// Topic is the handle of one topic, or of all topics that share "_other". Keep it to count many
// events.
func (m *Metrics) Topic(name string) *Topic {
	return m.topics.get(labelOrOther(name, wire.MaxTopicBytes))
}

// Group is the handle of one consumer group of a topic. The empty group stands for subscriptions
// without one.
func (m *Metrics) Group(topic, group string) *Group {
	return m.groups.get(groupKey{
		topic: m.Topic(topic).label,
		group: labelOrOther(group, wire.MaxGroupBytes),
	})
}

// Package tail keeps the newest events of partitions with readers in memory, and wakes the readers
// when there are more. It is a cache and a hint: a reader that misses an event here finds it in the
// log.
package tail

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// Bounds are the bounds of memory. A ring drops its oldest events first. When all rings together
// are at TotalBytes, appends are announced but not kept.
type Bounds struct {
	RingEvents int
	RingBytes  int
	TotalBytes int64
}

// DefaultBounds suit a sidecar that may use some tens of megabytes.
func DefaultBounds() Bounds {
	return Bounds{RingEvents: 2048, RingBytes: 1 << 20, TotalBytes: 32 << 20}
}

// Tails are the tails of all topics that are watched.
type Tails struct {
	bounds Bounds
	bytes  atomic.Int64 // of all rings

	mu      sync.RWMutex
	topics  map[string]*topic
	changed chan struct{} // closed and replaced when topics change
}

// New makes Tails without any topic.
func New(b Bounds) *Tails {
	return &Tails{bounds: b, topics: make(map[string]*topic), changed: make(chan struct{})}
}

type topic struct {
	mu      sync.Mutex
	watches map[*Watch]struct{}
	rings   map[int]*ring
}

// ring finds or makes the ring of a partition; it is called with mu held.
func (tp *topic) ring(partition int) *ring {
	r := tp.rings[partition]
	if r == nil {
		r = &ring{}
		tp.rings[partition] = r
	}
	return r
}

// Watch is one reader's interest in a topic.
type Watch struct {
	tails *Tails
	name  string
	topic *topic
	wake  func()
}

// Watch calls wake after every append to the topic until Close. wake must not block, nor use the
// Tails or a Watch: it runs under the topic's lock, between an append and the answer to its
// publishers. A reader first watches and then asks the log for the heads, so that it misses no
// append.
func (t *Tails) Watch(name string, wake func()) *Watch {
	w := &Watch{tails: t, name: name, wake: wake}
	t.mu.Lock()
	defer t.mu.Unlock()
	tp := t.topics[name]
	if tp == nil {
		tp = &topic{watches: make(map[*Watch]struct{}), rings: make(map[int]*ring)}
		t.topics[name] = tp
		t.change()
	}
	tp.mu.Lock()
	tp.watches[w] = struct{}{}
	tp.mu.Unlock()
	w.topic = tp
	return w
}

// Close ends the watch. The last Watch of a topic to close frees its rings.
func (w *Watch) Close() {
	t := w.tails
	t.mu.Lock()
	defer t.mu.Unlock()
	tp := w.topic
	tp.mu.Lock()
	defer tp.mu.Unlock()
	delete(tp.watches, w)
	if len(tp.watches) > 0 || t.topics[w.name] != tp {
		return
	}
	delete(t.topics, w.name)
	t.change()
	for _, r := range tp.rings {
		t.bytes.Add(-int64(r.bytes))
	}
	clear(tp.rings)
}

// Appended announces events that have become readable in one partition, in seq order.
func (t *Tails) Appended(name string, partition int, recs []*eventlog.Record) {
	if len(recs) == 0 {
		return
	}
	t.announce(name, func(tp *topic) bool {
		r := tp.ring(partition)
		before := r.bytes
		r.add(recs, t.bounds)
		if t.bytes.Add(int64(r.bytes-before)) > t.bounds.TotalBytes {
			t.bytes.Add(-int64(r.bytes))
			r.clear()
		}
		return true
	})
}

// Heard announces that a partition has events up to seq head that another sidecar appended, and
// that readers get from the log.
func (t *Tails) Heard(name string, partition int, head uint64) {
	t.announce(name, func(tp *topic) bool {
		r := tp.ring(partition)
		if head <= r.announced() {
			return false
		}
		r.heard = head
		return true
	})
}

// Forget drops the events of a topic, since some of them were removed from the log.
func (t *Tails) Forget(name string) {
	t.announce(name, func(tp *topic) bool {
		for _, r := range tp.rings {
			t.bytes.Add(-int64(r.bytes))
			r.clear()
		}
		return false
	})
}

// announce changes a watched topic, and wakes its readers if there is news for them.
func (t *Tails) announce(name string, change func(*topic) (news bool)) {
	t.mu.RLock()
	tp := t.topics[name]
	t.mu.RUnlock()
	if tp == nil {
		return
	}
	tp.mu.Lock()
	defer tp.mu.Unlock()
	if len(tp.watches) == 0 || !change(tp) {
		return
	}
	for w := range tp.watches {
		w.wake()
	}
}

// change signals that topics have changed; it is called with mu held.
func (t *Tails) change() {
	close(t.changed)
	t.changed = make(chan struct{})
}

// Topics are the watched topics, in any order; changed is closed once they change.
func (t *Tails) Topics() (names []string, changed <-chan struct{}) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return slices.Collect(maps.Keys(t.topics)), t.changed
}

// Watched lists the watched topics, each with the highest seq that was announced in its partitions,
// as far as any was.
func (t *Tails) Watched() map[string]map[int]uint64 {
	t.mu.RLock()
	defer t.mu.RUnlock()
	all := make(map[string]map[int]uint64, len(t.topics))
	for name, tp := range t.topics {
		tp.mu.Lock()
		heads := make(map[int]uint64, len(tp.rings))
		for p, r := range tp.rings {
			heads[p] = r.announced()
		}
		tp.mu.Unlock()
		all[name] = heads
	}
	return all
}

// Head is the highest seq that was announced in the partition since the watch began, or 0.
func (w *Watch) Head(partition int) uint64 {
	w.topic.mu.Lock()
	defer w.topic.mu.Unlock()
	if r := w.topic.rings[partition]; r != nil {
		return r.announced()
	}
	return 0
}

// Read returns events from seq from on, ascending; none when the ring does not hold that seq.
func (w *Watch) Read(partition int, from uint64, b eventlog.Bounds) []*eventlog.Record {
	w.topic.mu.Lock()
	defer w.topic.mu.Unlock()
	if r := w.topic.rings[partition]; r != nil {
		return r.read(from, b)
	}
	return nil
}

// ring is the newest events of one partition, without holes.
type ring struct {
	recs  []*eventlog.Record // recs[start:] are held
	start int
	bytes int
	head  uint64 // of recs
	heard uint64 // the head of events that others appended
}

// announced is the highest seq announced to readers.
func (r *ring) announced() uint64 { return max(r.head, r.heard) }

func (r *ring) add(recs []*eventlog.Record, b Bounds) {
	for _, rec := range recs {
		if rec.Seq <= r.head {
			continue // a later append was announced first
		}
		// A missing seq was stored by another sidecar.
		if rec.Seq != r.head+1 {
			r.clear()
		}
		r.recs = append(r.recs, rec)
		r.bytes += rec.Size()
		r.head = rec.Seq
	}
	for len(r.recs)-r.start > b.RingEvents || r.bytes > b.RingBytes && r.start < len(r.recs) {
		r.bytes -= r.recs[r.start].Size()
		r.recs[r.start] = nil
		r.start++
	}
	if r.start > len(r.recs)/2 {
		n := copy(r.recs, r.recs[r.start:])
		clear(r.recs[n:])
		r.recs, r.start = r.recs[:n], 0
	}
}

func (r *ring) clear() {
	r.recs, r.start, r.bytes = nil, 0, 0
}

func (r *ring) read(from uint64, b eventlog.Bounds) []*eventlog.Record {
	held := r.recs[r.start:]
	if len(held) == 0 || from < held[0].Seq || from > r.head {
		return nil
	}
	held = held[from-held[0].Seq:]
	n, size := 0, 0
	for n < len(held) && n < b.Events && (b.Bytes == 0 || n == 0 || size < b.Bytes) {
		size += held[n].Size()
		n++
	}
	return slices.Clone(held[:n])
}

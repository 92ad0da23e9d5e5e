// Package topics is the catalog of the shared log, and what this process remembers of each topic
// and its partitions.
package topics

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-bus/sluice/internal/clock"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// Topic is one topic and its partitions, as far as this process knows them.
type Topic struct {
	eventlog.Topic
	Parts []Partition
	// generation is the highest generation that was read; see generation.go. madeBy is the By of
	// that generation, and replaces the Topic's.
	generation atomic.Int64
	madeBy     atomic.Pointer[string]
	// EventBytes is the approximate size of an event of the topic, as wire.Event.Size counts; 0
	// until one was read.
	EventBytes atomic.Int64
	// Rivals is when another sidecar was last seen to append to the topic, in nanoseconds since the
	// epoch.
	Rivals atomic.Int64
	// WatermarkDue is when this process may raise the watermark again, in nanoseconds since the
	// epoch.
	WatermarkDue atomic.Int64
}

// Generation is the highest generation that was read.
func (t *Topic) Generation() int64 { return t.generation.Load() }

// Exists reports whether the topic exists, as far as this process knows.
func (t *Topic) Exists() bool { return t.Generation()%2 == 0 }

// entry is the topic with By of its generation.
func (t *Topic) entry() eventlog.Topic {
	entry := t.Topic
	if by := t.madeBy.Load(); by != nil {
		entry.By = *by
	}
	return entry
}

// Partition finds a partition.
func (t *Topic) Partition(p int) (*Partition, error) {
	if p < 0 || p >= len(t.Parts) {
		return nil, eventlog.NotFound("partition %d of topic %q, which has 0 to %d", p, t.Name, len(t.Parts)-1)
	}
	return &t.Parts[p], nil
}

// Partition is one partition, as far as this process knows it.
type Partition struct {
	// Reserved is the highest seq that was given to this process.
	Reserved atomic.Uint64
	// Watermark was read from the head, and Seen is a seq up to which a majority has everything.
	Watermark, Seen atomic.Uint64
	Holes           Holes
	Newest          Newest
	// Floor is a seq below which nothing is readable any more.
	Floor atomic.Uint64
	// Unswept is the Floor at which no stub was found; 0: one may be there.
	Unswept atomic.Uint64
	// Oldest is when the lowest live event was accepted, as a sweep found it; 0 if it is not known.
	// It only rises, since seqs do.
	Oldest atomic.Int64
}

// Raise makes n at least as high as to.
func Raise(n *atomic.Uint64, to uint64) {
	for was := n.Load(); was < to && !n.CompareAndSwap(was, to); was = n.Load() {
	}
}

// Holes are the missing seqs of a partition as this process sees them.
type Holes struct {
	mu sync.Mutex
	// reserved is the highest seq given out at the time since. A missing seq up to it has been
	// missing at least since then.
	reserved uint64
	since    time.Time
}

// Stood notes that the seqs from first to last are missing. It returns the highest of them that has
// been missing for longer than patience; 0: none. head is the highest seq given out.
func (h *Holes) Stood(c clock.Clock, first, last, head uint64, patience time.Duration) uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	if first > h.reserved || h.since.IsZero() {
		h.reserved, h.since = head, c.Now()
		return 0
	}
	if c.Since(h.since) < patience {
		return 0
	}
	return min(last, h.reserved)
}

// Newest is the highest seq of an event, for partitions that have voids above it.
type Newest struct {
	mu sync.Mutex
	// last is the highest seq of an event up to exact.
	last, exact uint64
}

// Saw notes that a reader has seen all documents from first to to. last is the highest event among
// them; 0: there is none.
func (n *Newest) Saw(first, to, last uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if first <= n.exact+1 && to > n.exact {
		n.exact, n.last = to, max(n.last, last)
	}
}

// UpTo is the highest event up to end, if that is known.
func (n *Newest) UpTo(end uint64) (last uint64, known bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.last, n.exact == end && n.last > 0
}

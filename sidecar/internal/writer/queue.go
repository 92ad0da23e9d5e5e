package writer

import (
	"slices"
	"sync"
	"time"

	"github.com/sluice-bus/sluice/internal/clock"
)

// queue has the waiting events of one partition. At most one goroutine drains it.
type queue struct {
	key   partitionKey
	clock clock.Clock

	mu       sync.Mutex
	items    []Item
	bytes    int
	draining bool
	inflight int           // events of the batch being appended
	popped   time.Time     // when that was
	perEvent time.Duration // what an event took in the last batches, smoothed
}

// push queues an item; start tells the caller to start the drain.
func (q *queue) push(it Item, size int, b Bounds) (start bool, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.items) >= b.PartitionEvents || len(q.items) > 0 && q.bytes+size > b.PartitionBytes {
		return false, full("partition", q.estimate())
	}
	q.items = append(q.items, it)
	q.bytes += size
	start = !q.draining
	q.draining = true
	return start, nil
}

// pop moves the next batch into dst, which is empty. An empty batch ends the drain.
func (q *queue) pop(dst []Item, b Bounds) (batch []Item, size int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, it := range q.items[:min(len(q.items), b.BatchEvents)] {
		n := it.Record.Size()
		if len(dst) > 0 && size+n > b.BatchBytes {
			break
		}
		size += n
		dst = append(dst, it)
	}
	q.bytes -= size
	q.inflight, q.popped = len(dst), q.clock.Now()
	q.items = slices.Delete(q.items, 0, len(dst))
	if len(q.items) == 0 && cap(q.items) > keepItems {
		q.items = nil
	}
	q.draining = len(dst) > 0
	return dst, size
}

// keepItems is how large an empty queue may stay allocated.
const keepItems = 256

// measured adds the duration of a finished batch to the estimate.
func (q *queue) measured(events int, took time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.inflight = 0
	per := took / time.Duration(events)
	if q.perEvent == 0 {
		q.perEvent = per
		return
	}
	q.perEvent += (per - q.perEvent) / 8
}

func (q *queue) timeToEmpty() time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.estimate()
}

// estimate is how long the events ahead take at the measured pace. A batch that has been under way
// for longer than that is expected to take as long again, so that publishers do not retry a hanging
// log every few milliseconds.
func (q *queue) estimate() time.Duration {
	d := time.Duration(len(q.items)+q.inflight) * q.perEvent
	if q.inflight > 0 {
		d = max(d, q.clock.Since(q.popped))
	}
	return min(max(d, 10*time.Millisecond), 10*time.Second)
}

func (q *queue) len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.items) + q.inflight
}

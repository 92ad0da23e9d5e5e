package writer

import (
	"slices"
	"sync"
	"time"

	"github.com/sluice-bus/sluice/internal/clock"
)

// queue has the waiting events of one partition. At most one goroutine appends from it.
type queue struct {
	key   partitionKey
	clock clock.Clock

	mu       sync.Mutex
	items    []Item
	bytes    int
	busy     bool          // it waits for an append, or is in one
	inflight int           // events of the batch being appended
	popped   time.Time     // when that was
	perEvent time.Duration // what an event took in the last batches, smoothed
}

// push queues an item; start tells the caller that the queue waits for an append from now on.
func (q *queue) push(it Item, size int, b Bounds) (start bool, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.items) >= b.PartitionEvents || len(q.items) > 0 && q.bytes+size > b.PartitionBytes {
		return false, full("partition", q.estimate())
	}
	q.items = append(q.items, it)
	q.bytes += size
	start = !q.busy
	q.busy = true
	return start, nil
}

// pop adds the next batch, of an event at least, to dst.
func (q *queue) pop(dst []Item, b Bounds) (_ []Item, size int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := 0
	for _, it := range q.items[:min(len(q.items), b.BatchEvents)] {
		one := it.Record.Size()
		if n > 0 && size+one > b.BatchBytes {
			break
		}
		size += one
		n++
	}
	dst = append(dst, q.items[:n]...)
	q.bytes -= size
	q.inflight, q.popped = n, q.clock.Now()
	q.items = slices.Delete(q.items, 0, n)
	if len(q.items) == 0 && cap(q.items) > keepItems {
		q.items = nil
	}
	return dst, size
}

// keepItems is how large an empty queue may stay allocated.
const keepItems = 256

// appended adds the duration of a finished batch to the estimate.
func (q *queue) appended(took time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	per := took / time.Duration(q.inflight)
	q.inflight = 0
	if q.perEvent == 0 {
		q.perEvent = per
	}
	q.perEvent += (per - q.perEvent) / 8
}

// release lets another append have the next batch. more says that the queue waits for it.
func (q *queue) release() (more bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.busy = len(q.items) > 0
	return q.busy
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

package writer

import (
	"sync"
	"time"

	"github.com/sluice-bus/sluice/internal/clock"
)

// lane is the queue of one partition. At most one goroutine drains it.
type lane struct {
	key   laneKey
	clock clock.Clock

	mu       sync.Mutex
	queue    []Item // queue[start:] wait
	start    int
	bytes    int
	draining bool
	inflight int           // events of the batch being appended
	popped   time.Time     // when that was
	perEvent time.Duration // what an event took in the last batches, smoothed
}

// push queues an item; start tells the caller to start the drain.
func (l *lane) push(it Item, size int, b Bounds) (start bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	waiting := len(l.queue) - l.start
	if waiting >= b.LaneEvents || waiting > 0 && l.bytes+size > b.LaneBytes {
		return false, &FullError{Queue: "partition", RetryAfter: l.estimate()}
	}
	l.queue = append(l.queue, it)
	l.bytes += size
	start = !l.draining
	l.draining = true
	return start, nil
}

// pop moves the next batch into dst. An empty one means that the drain is over.
func (l *lane) pop(dst []Item, b Bounds) (batch []Item, size int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.start < len(l.queue) && len(dst) < b.BatchEvents {
		n := l.queue[l.start].Record.Size()
		if len(dst) > 0 && size+n > b.BatchBytes {
			break
		}
		size += n
		dst = append(dst, l.queue[l.start])
		l.queue[l.start] = Item{}
		l.start++
	}
	l.bytes -= size
	l.inflight, l.popped = len(dst), l.clock.Now()
	l.compact()
	if len(dst) == 0 {
		l.draining = false
	}
	return dst, size
}

// compact drops what was popped, so that a queue that never runs empty does not
// grow either.
func (l *lane) compact() {
	switch {
	case l.start == len(l.queue) && cap(l.queue) > keepItems:
		l.queue, l.start = nil, 0
	case l.start > len(l.queue)/2:
		n := copy(l.queue, l.queue[l.start:])
		clear(l.queue[n:])
		l.queue, l.start = l.queue[:n], 0
	}
}

// keepItems is how large an empty lane's queue may stay allocated.
const keepItems = 256

// measured takes the duration of the batch that is over into the estimate.
func (l *lane) measured(events int, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inflight = 0
	per := took / time.Duration(events)
	if l.perEvent == 0 {
		l.perEvent = per
		return
	}
	l.perEvent += (per - l.perEvent) / 8
}

func (l *lane) timeToEmpty() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.estimate()
}

// estimate is how long the events ahead take at the measured pace. A batch that
// has been under way for longer than that is expected to take as long again, so
// that nobody is sent to a hanging log every few milliseconds.
func (l *lane) estimate() time.Duration {
	d := time.Duration(len(l.queue)-l.start+l.inflight) * l.perEvent
	if l.inflight > 0 {
		d = max(d, l.clock.Since(l.popped))
	}
	return min(max(d, 10*time.Millisecond), 10*time.Second)
}

// len counts the events that have no outcome yet.
func (l *lane) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.queue) - l.start + l.inflight
}

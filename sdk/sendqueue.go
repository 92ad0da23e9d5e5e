package sluice

import (
	"container/list"
	"slices"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
)

const (
	// batchEvents is the most events of one request. It fits the burst that a connection has by
	// default; where a burst is less, the publisher learns it for the topic.
	batchEvents = 100
	batchBytes  = 1 << 20 // the event that crosses it is the last of its batch
	maxRequests = 64      // on their way at a time
)

// entryState is where an event of the queue is.
type entryState int

const (
	queued  entryState = iota // in its topic's ready
	behind                    // behind another event of its key
	sent                      // on its way
	removed                   // it has its result
)

// entry is one event on its way to its result.
type entry struct {
	event Event
	later wire.Later
	size  int
	done  func(Receipt, error)
	fresh bool // the id was made here

	// The rest is guarded by the publisher's lock.
	state     entryState
	number    uint64
	topic     *sendTopic
	ofKey     *keyQueue     // nil without a key
	at        *list.Element // in the topic's ready, or behind in ofKey
	abandoned bool          // nobody waits for it any more
	alone     bool          // it was sent while nothing else was on its way, in solo
	uncertain bool          // it was sent, and its outcome is unknown
	refusal   *wire.Error   // the last one
}

// keyQueue has the events of one key behind the first one, which is ready or on its way, with
// keyedBatches together with some of those that were behind it.
type keyQueue struct {
	key    string
	out    int // events that are not behind: one, or what is on its way in one batch
	behind list.List
}

// sendTopic is the events of one topic.
type sendTopic struct {
	name  string
	ready list.List // of *entry
	keys  map[string]*keyQueue
	// After a refusal that asks for time the topic is on hold until then, and goes on with few
	// requests at a time.
	until    time.Time
	width    int
	most     int // events of a batch
	requests int
	left     int // entries in any state
}

// sendQueue holds the events without a result, and decides which are sent next. At most one event
// of a key is on its way, with keyedBatches one batch. Its methods are called under the publisher's
// lock.
type sendQueue struct {
	entries  map[*entry]struct{}
	topics   map[string]*sendTopic
	turns    []*sendTopic // the topic that sends next first
	until    time.Time    // the connection is on hold
	requests int
	solo     bool   // one event at a time, to find the one that ends connections
	number   uint64 // of the last event
	untold   int    // events whose callback has not returned
	flushes  []flush

	keyedBatches bool
}

// flush is closed when the callbacks of all events up to a number have returned.
type flush struct {
	number uint64
	left   int // of those
	done   chan struct{}
}

func newSendQueue() sendQueue {
	return sendQueue{entries: map[*entry]struct{}{}, topics: map[string]*sendTopic{}}
}

func (q *sendQueue) add(e *entry) {
	q.number++
	q.untold++
	e.number = q.number
	q.entries[e] = struct{}{}
	t := q.topics[e.event.Topic]
	if t == nil {
		t = &sendTopic{name: e.event.Topic, keys: map[string]*keyQueue{}, width: maxRequests, most: batchEvents}
		q.topics[t.name] = t
		q.turns = append(q.turns, t)
	}
	t.left++
	e.topic = t
	if key := e.event.Key; key != "" {
		if e.ofKey = t.keys[key]; e.ofKey != nil {
			e.state, e.at = behind, e.ofKey.behind.PushBack(e)
			return
		}
		e.ofKey = &keyQueue{key: key, out: 1}
		t.keys[key] = e.ofKey
	}
	e.state, e.at = queued, t.ready.PushBack(e)
}

// next removes the next batch, whose events then count as sent. Where there is none, wait is how
// long to wait unless something happens.
func (q *sendQueue) next(now time.Time) (batch []*entry, wait time.Duration) {
	if q.requests >= maxRequests || q.solo && q.requests > 0 {
		return nil, farAway
	}
	if wait := q.until.Sub(now); wait > 0 {
		return nil, wait
	}
	wait = farAway
	for range q.turns {
		t := q.turns[0]
		q.turns = append(q.turns[1:], t)
		if t.ready.Len() == 0 || t.requests >= t.width {
			continue
		}
		if left := t.until.Sub(now); left > 0 {
			wait = min(wait, left)
			continue
		}
		return q.nextOf(t), 0
	}
	return nil, wait
}

func (q *sendQueue) nextOf(t *sendTopic) (batch []*entry) {
	most := t.most
	if q.solo {
		most = 1
	}
	size := 0
	send := func(e *entry) {
		e.state, e.at, e.alone = sent, nil, q.solo
		size += e.size
		batch = append(batch, e)
	}
	room := func() bool { return len(batch) < most && size < batchBytes }
	for room() && t.ready.Len() > 0 {
		send(t.ready.Remove(t.ready.Front()).(*entry))
	}
	for i := 0; q.keyedBatches && i < len(batch); i++ {
		for l := batch[i].ofKey; l != nil && l.behind.Len() > 0 && room(); l.out++ {
			send(l.behind.Remove(l.behind.Front()).(*entry))
		}
	}
	t.requests++
	q.requests++
	return batch
}

// putBack makes the events of a batch ready again, before all others; of a key, the first of them,
// before the others.
func (q *sendQueue) putBack(batch []*entry) {
	for i := len(batch) - 1; i >= 0; i-- {
		e := batch[i]
		switch {
		case e.state == removed:
		case e.ofKey != nil && e.ofKey.out > 1:
			e.ofKey.out--
			e.state, e.at = behind, e.ofKey.behind.PushFront(e)
		default:
			e.state, e.at = queued, e.topic.ready.PushFront(e)
		}
	}
}

// hold keeps a topic, or everything, from sending until a time.
func (q *sendQueue) hold(e *entry, until time.Time, all bool) {
	if all && until.After(q.until) {
		q.until = until
	}
	if until.After(e.topic.until) {
		e.topic.until = until
	}
	e.topic.width = 1
}

// flows lets a topic without refusals send more at a time.
func (q *sendQueue) flows(t *sendTopic) { t.width = min(2*t.width, maxRequests) }

// tooLarge notes that a batch of that many events was refused for its size.
func (q *sendQueue) tooLarge(t *sendTopic, size int) { t.most = max(1, min(t.most, size/2)) }

// remove forgets an event that has its result, and lets the next one of its key go.
func (q *sendQueue) remove(e *entry) {
	t := e.topic
	switch e.state {
	case queued:
		t.ready.Remove(e.at)
	case behind:
		e.ofKey.behind.Remove(e.at)
	}
	if e.ofKey != nil && e.state != behind {
		t.goOn(e.ofKey)
	}
	e.state, e.at = removed, nil
	delete(q.entries, e)
	t.left--
	q.forget(t)
	if len(q.entries) == 0 {
		q.solo = false
	}
}

// goOn lets the next event of a key go, once all that were on their way with the one that was
// removed have their results.
func (t *sendTopic) goOn(l *keyQueue) {
	if l.out--; l.out > 0 {
		return
	}
	first := l.behind.Front()
	if first == nil {
		delete(t.keys, l.key)
		return
	}
	next := l.behind.Remove(first).(*entry)
	l.out = 1
	next.state, next.at = queued, t.ready.PushBack(next)
}

// ended counts a request that was answered or not sent.
func (q *sendQueue) ended(t *sendTopic) {
	t.requests--
	q.requests--
	q.forget(t)
}

// forget drops a topic of which nothing is left.
func (q *sendQueue) forget(t *sendTopic) {
	if t.left > 0 || t.requests > 0 || q.topics[t.name] != t {
		return
	}
	delete(q.topics, t.name)
	q.turns = slices.DeleteFunc(q.turns, func(other *sendTopic) bool { return other == t })
}

// flushed returns a channel that is closed once the callbacks of all that is there now have
// returned.
func (q *sendQueue) flushed() <-chan struct{} {
	f := flush{number: q.number, left: q.untold, done: make(chan struct{})}
	if f.left == 0 {
		close(f.done)
	} else {
		q.flushes = append(q.flushes, f)
	}
	return f.done
}

// told notes that the callback of an event has returned.
func (q *sendQueue) told(number uint64) {
	if number == 0 {
		return
	}
	q.untold--
	for i := range q.flushes {
		if number <= q.flushes[i].number {
			q.flushes[i].left--
		}
	}
	q.flushes = slices.DeleteFunc(q.flushes, func(f flush) bool {
		if f.left == 0 {
			close(f.done)
		}
		return f.left == 0
	})
}

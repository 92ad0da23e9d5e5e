// Package signals carries signals between the sidecars of a store.
package signals

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/core"
)

// signalSpacing is the time between two signals of a sidecar. The next signal has all news since
// the last one.
const signalSpacing = 20 * time.Millisecond

// signalRetry is the longest wait between two tries while the store is away.
const signalRetry = 2 * time.Second

// Signals sends and follows the signals of a store.
type Signals struct {
	store  *core.Store
	unsent signalQueue
}

// New makes Signals.
func New(s *core.Store) *Signals {
	return &Signals{store: s, unsent: signalQueue{id: uuid.NewString()}}
}

// Send implements eventlog.Signals.
func (x *Signals) Send(s eventlog.Signal) {
	for _, shard := range x.unsent.put(s) {
		x.store.Spawn(func() { x.sendPending(shard) }) // once the log is closed, no more signals are sent
	}
}

// sendPending sends until nothing is left to send into a collection, or the log is closed. Only one
// sendPending runs at a time for each collection.
func (x *Signals) sendPending(shard int) {
	q := &x.unsent
	var retry core.Backoff
	for {
		if !x.store.Clock.Sleep(x.store.Lasting(), signalSpacing-x.store.Clock.Since(q.shards[shard].sent)) {
			return
		}
		d, found := q.pop(shard)
		if !found {
			return
		}
		err := x.sendSignal(shard, d)
		q.shards[shard].sent = x.store.Clock.Now()
		if err == nil {
			retry = core.Backoff{}
			continue
		}
		q.putBack(shard, d)
		if retry.Sleep(x.store.Lasting(), x.store.Clock, signalRetry) != nil {
			return
		}
	}
}

// sendSignal writes one signal.
func (x *Signals) sendSignal(shard int, d *signalDoc) error {
	ctx, end, err := x.store.Begin(x.store.Lasting())
	if err != nil {
		return err
	}
	defer end()
	return x.writeSignal(ctx, shard, d)
}

func (x *Signals) writeSignal(ctx context.Context, shard int, d *signalDoc) error {
	_, err := collection(x.store, shard).InsertOne(ctx, d)
	return err
}

// lastSignalTimeout bounds the wait for the last signals when the log is closed.
const lastSignalTimeout = time.Second

// SendLast sends the waiting signals when the log is closed; often they say that this sidecar has
// left. Without them the other sidecars would learn that only from their next look, much later if
// leases are long. Nothing else sends signals by then.
func (x *Signals) SendLast() {
	ctx, cancel := x.store.Clock.WithTimeout(context.Background(), lastSignalTimeout)
	defer cancel()
	for shard := range core.SignalShards {
		if d, found := x.unsent.pop(shard); found && x.writeSignal(ctx, shard, d) != nil {
			return // sidecars that miss it find the changes with their next look
		}
	}
}

// signalQueue holds signals to be sent.
type signalQueue struct {
	id     string // of this process as a sender of signals
	mu     sync.Mutex
	shards [core.SignalShards]struct {
		sending bool
		waiting signalSet
		sent    time.Time // of the one that sends
	}
}

// put adds to the waiting signals, and returns the collections for which the caller has to start
// sendPending.
func (q *signalQueue) put(s eventlog.Signal) (start []int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.add(s)
	for shard := range q.shards {
		if sh := &q.shards[shard]; !sh.sending && !sh.waiting.empty() {
			sh.sending = true
			start = append(start, shard)
		}
	}
	return start
}

// add adds to the waiting signals; mu is held.
func (q *signalQueue) add(s eventlog.Signal) {
	about := func(topic string) *signalSet { return &q.shards[shardOf(slotOf(topic))].waiting }
	for _, h := range s.Appended {
		if h.Topic != "" {
			about(h.Topic).addHint(h)
			continue
		}
		for slot := range int32(signalSlots) {
			q.shards[shardOf(slot)].waiting.overflow(slot)
		}
	}
	for _, g := range s.Moved {
		about(g.Topic).addMoved(g)
	}
	for _, topic := range s.Nodes {
		about(topic).addNodes(topic)
	}
	for _, topic := range s.Erased {
		about(topic).addErased(topic)
	}
}

// pop removes and returns all signals that wait for a collection. If none waits, the sending ends.
func (q *signalQueue) pop(shard int) (*signalDoc, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	sh := &q.shards[shard]
	if sh.waiting.empty() {
		sh.sending = false
		return nil, false
	}
	d := sh.waiting.doc()
	d.ID, d.Node = bson.NewObjectID(), q.id
	sh.waiting = signalSet{}
	return d, true
}

// putBack keeps a signal that could not be sent.
func (q *signalQueue) putBack(shard int, d *signalDoc) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.add(d.signal())
	if d.All {
		q.shards[shard].waiting.overflow(d.Slots...)
	}
}

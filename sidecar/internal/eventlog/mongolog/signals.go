package mongolog

import (
	"context"
	"hash/fnv"
	"slices"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// Signals are selected by their topics. The hash of a topic gives its slot, one of signalSlots, and
// the slot gives the collection of its signals, one of signalShards. A follower has a cursor on
// each collection of its topics, and the server returns only signals about their slots:
//
//   - One more collection costs a sidecar that reads many topics one more cursor, and a connection
//     that waits at the server. It also saves the server work: an insert wakes fewer cursors in
//     vain.
//   - With more slots, fewer sidecars receive signals about topics that they do not read. A
//     cursor's filter does not grow beyond a collection's slots, however many topics there are.
const (
	signalShards = 8
	signalSlots  = 1024
)

// slotOf is a topic's slot.
func slotOf(topic string) int32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(topic))
	return int32(h.Sum32() % signalSlots)
}

// shardOf is the collection of a slot.
func shardOf(slot int32) int { return int(slot % signalShards) }

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

// spawn runs f in a goroutine that Close waits for; it reports false when the log is closed.
func (l *Log) spawn(f func()) bool {
	if !l.join() {
		return false
	}
	go func() {
		defer l.calls.Done()
		f()
	}()
	return true
}

// join registers work that Close waits for; its end is l.calls.Done. It reports false when the log
// is closed.
func (l *Log) join() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.calls.Add(1)
	}
	return !l.closed
}

// Follow implements eventlog.Signals.
func (l *Log) Follow(ctx context.Context, wanted eventlog.Topics, heard func(s eventlog.Signal, missed []string)) error {
	if !l.join() {
		return errClosed
	}
	defer l.calls.Done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(l.ctx, cancel)()
	f := &following{log: l, node: l.unsent.id, wanted: wanted, heard: heard}
	f.run(ctx)
	if l.ctx.Err() != nil {
		return errClosed
	}
	return nil
}

// followSpacing is the wait after a change of topics before followers change. Subscriptions to many
// topics arrive one after the other.
const followSpacing = 100 * time.Millisecond

// following is one Follow.
type following struct {
	log    *Log
	node   string // this log's own
	wanted eventlog.Topics

	mu    sync.Mutex // held while heard runs
	heard func(s eventlog.Signal, missed []string)
}

// run keeps a follower for each collection with signals of wanted topics, until ctx ends. A
// follower that follows unwanted topics too continues so for tailAwait, since readers often come
// back.
func (f *following) run(ctx context.Context) {
	var followers [signalShards]*follower
	defer func() {
		for _, r := range followers {
			r.stop()
		}
	}()
	clock := f.log.opts.Clock
	for ctx.Err() == nil {
		topics, changed := f.wanted()
		begun, wait := false, time.Hour
		for shard, slots := range f.slots(topics) {
			r := followers[shard]
			left := r.left(slots)
			if left <= 0 {
				r.stop()
				followers[shard] = f.start(ctx, shard, slots)
				begun = true
			}
			wait = min(wait, max(left, followSpacing))
		}
		if !begun || clock.Sleep(ctx, followSpacing) {
			clock.SleepUnless(ctx, wait, changed)
		}
	}
}

// retry repeats do until it succeeds or ctx ends.
func (f *following) retry(ctx context.Context, do func(ctx context.Context, progress func()) error) error {
	var wait backoff
	for {
		err := do(ctx, func() { wait = backoff{} })
		if err == nil || ctx.Err() != nil {
			return ctx.Err()
		}
		f.log.opts.Logger.Debug("following the signals of other sidecars failed", "error", err)
		if wait.sleep(ctx, f.log.opts.Clock, signalRetry) != nil {
			return ctx.Err()
		}
	}
}

// slots are the slots of those topics by collection, each once, ascending.
func (f *following) slots(topics []string) (by [signalShards][]int32) {
	for _, topic := range topics {
		slot := slotOf(topic)
		shard := shardOf(slot)
		by[shard] = append(by[shard], slot)
	}
	for shard := range by {
		slices.Sort(by[shard])
		by[shard] = slices.Compact(by[shard])
	}
	return by
}

// missed are the wanted topics of these slots.
func (f *following) missed(slots []int32) []string {
	topics, _ := f.wanted()
	return slices.DeleteFunc(topics, func(topic string) bool {
		_, found := slices.BinarySearch(slots, slotOf(topic))
		return !found
	})
}

// follower follows some slots of one collection.
type follower struct {
	*following
	shard  int
	slots  []int32
	spare  time.Time // since when it also follows unwanted slots; zero: it does not
	cancel context.CancelFunc
	ended  chan struct{}
}

// start begins a follower; nil if there is nothing to follow.
func (f *following) start(ctx context.Context, shard int, slots []int32) *follower {
	if len(slots) == 0 {
		return nil
	}
	r := &follower{following: f, shard: shard, slots: slots, ended: make(chan struct{})}
	ctx, r.cancel = context.WithCancel(ctx)
	go func() {
		defer close(r.ended)
		_ = f.retry(ctx, r.tail)
	}()
	return r
}

func (f *follower) stop() {
	if f != nil {
		f.cancel()
		<-f.ended
	}
}

// left is how long the follower may continue if these slots are wanted.
func (f *follower) left(wanted []int32) time.Duration {
	const forever = time.Hour
	switch {
	case f == nil && len(wanted) == 0:
		return forever
	case f == nil || slices.ContainsFunc(wanted, func(slot int32) bool { return !f.has(slot) }):
		return 0
	case len(wanted) == len(f.slots):
		f.spare = time.Time{}
		return forever
	case f.spare.IsZero():
		f.spare = f.log.opts.Clock.Now()
	}
	return tailAwait - f.log.opts.Clock.Since(f.spare)
}

func (f *follower) has(slot int32) bool {
	_, found := slices.BinarySearch(f.slots, slot)
	return found
}

// hear passes a signal on, unless it is this log's own or concerns none of the followed slots.
// missed says that some signals before it may be lost.
func (f *follower) hear(d *signalDoc, missed bool) {
	if d.Node == f.node || !missed && !slices.ContainsFunc(d.Slots, f.has) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var topics []string
	switch {
	case missed:
		topics = f.missed(f.slots)
	case d.All:
		topics = f.missed(d.Slots)
	}
	f.heard(d.signal(), topics)
}

// open says that the follower has begun, and that earlier signals are lost.
func (f *follower) open() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.heard(eventlog.Signal{}, f.missed(f.slots))
}

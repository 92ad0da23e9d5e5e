package mongolog

import (
	"context"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/internal/clock"
)

// A head is the highest seq of a partition. To insert at head+1 is right as
// long as the unique index refuses whoever is late, and it does while the
// events above an outdated head are still in the store. So
//
//   - no document of an event is deleted before it has been a stub for
//     Options.StaleHead, and before heads has a document at or above its seq;
//   - a head counts for half of that time only;
//   - after an insert its head is looked at again (appending.stands), for the
//     case that this process was paused in between.

// head is what a sidecar knows of a partition's head.
type head struct {
	seq uint64
	// since: no event above seq was stored before this.
	since moment
	// generation of the topology in which it was seen.
	generation uint64
}

// moment is a point in time by both clocks: the monotonic one stands still
// while a machine sleeps, and the other may be set back.
type moment struct{ mono, wall time.Time }

func now(c clock.Clock) moment {
	t := c.Now()
	return moment{mono: t, wall: t.Round(0)}
}

// age is how long ago it was, by whichever clock says more.
func (m moment) age(c clock.Clock) time.Duration {
	t := c.Now()
	return max(t.Sub(m.mono), t.Round(0).Sub(m.wall))
}

// fresh reports whether it is too early for any event to be deleted that was
// stored after the moment.
func (l *Log) fresh(m moment) bool { return m.age(l.opts.Clock) < l.opts.StaleHead/2 }

// knownHead is the cached head of a partition.
type knownHead struct {
	mu    sync.Mutex
	known bool
	head  head
}

// get returns the head if there is one to go by.
func (k *knownHead) get(l *Log, c concern) (head, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	ok := k.known && l.fresh(k.head.since) && (c.survives || !c.blind && k.head.generation == l.topology.generation.Load())
	return k.head, ok
}

// confirm remembers a head that was acknowledged or read. Whoever has seen
// more has the better one; of the same, the later.
func (k *knownHead) confirm(h head) {
	k.mu.Lock()
	defer k.mu.Unlock()
	outdated := k.head.generation != h.generation
	if !k.known || outdated || h.seq > k.head.seq || h.seq == k.head.seq && h.since.mono.After(k.head.since.mono) {
		k.known, k.head = true, h
	}
}

// raise puts a known head up to seq, which is in the store. It makes it no
// younger: what is above seq is above the old head, too.
func (k *knownHead) raise(seq uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.known && seq > k.head.seq {
		k.head.seq = seq
	}
}

func (k *knownHead) forget() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.known = false
}

// heardHead takes note of a head that another sidecar told of.
func (l *Log) heardHead(topic string, partition int, seq uint64) {
	t := l.catalog.cached(topic)
	if t == nil || partition < 0 || partition >= len(t.partitions) {
		return
	}
	if l.opts.WriteConcern != nil && l.opts.WriteConcern(topic) != concernMajority {
		return // it may be gone again
	}
	t.partitions[partition].head.raise(seq)
}

// currentHead is the cached head, or else the one in the store.
func (l *Log) currentHead(ctx context.Context, c concern, t *topic, p int) (head, error) {
	known := &t.partitions[p].head
	if h, ok := known.get(l, c); ok {
		return h, nil
	}
	return l.lookAtHead(ctx, c, t, p)
}

// lookAtHead reads a partition's head and remembers it. While there is a head to
// go by, nothing above it can have been deleted, so that heads need not be read:
// this is what an append does that came too late.
func (l *Log) lookAtHead(ctx context.Context, c concern, t *topic, p int) (head, error) {
	known := &t.partitions[p].head
	h := head{since: now(l.opts.Clock), generation: l.topology.generation.Load()}
	var err error
	if h.seq, err = l.highestSeq(ctx, c.events, t.Name, p); err != nil {
		return head{}, err
	}
	if before, ok := known.get(l, c); !ok || h.seq < before.seq {
		deleted, err := l.highestSeq(ctx, c.heads, t.Name, p)
		if err != nil {
			return head{}, err
		}
		h.seq = max(h.seq, deleted)
	}
	known.confirm(h)
	return h, nil
}

// storedHead is the highest seq in events, stubs included, or in heads. heads
// is read last: what vanishes from events is there before it does.
func (l *Log) storedHead(ctx context.Context, c concern, topic string, p int) (uint64, error) {
	inEvents, err := l.highestSeq(ctx, c.events, topic, p)
	if err != nil {
		return 0, err
	}
	inHeads, err := l.highestSeq(ctx, c.heads, topic, p)
	return max(inEvents, inHeads), err
}

// highestSeq is the highest seq of a partition in a collection, or 0.
func (l *Log) highestSeq(ctx context.Context, c *mongo.Collection, topic string, p int) (uint64, error) {
	return findSeq(ctx, l, c, inPartition(topic, p), -1)
}

// findSeq is the lowest (order 1) or highest (-1) seq that the filter selects,
// or 0.
func findSeq(ctx context.Context, l *Log, c *mongo.Collection, filter bson.D, order int) (uint64, error) {
	o := options.Find().SetSort(bson.D{{Key: "seq", Value: order}}).SetLimit(1).
		SetProjection(bson.D{{Key: "_id", Value: 0}, {Key: "seq", Value: 1}})
	found, err := findAll[struct {
		Seq int64 `bson:"seq"`
	}](ctx, l, c, filter, o)
	if err != nil || len(found) == 0 {
		return 0, err
	}
	return uint64(found[0].Seq), nil
}

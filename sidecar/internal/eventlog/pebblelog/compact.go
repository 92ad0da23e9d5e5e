package pebblelog

import (
	"bytes"
	"context"

	"github.com/cockroachdb/pebble/v2"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// Compact implements eventlog.Compactor. As with Sweep, its commits are not
// synced: a crash brings back the last ones that were removed, and never a
// superseded event without the one that superseded it, whose removal was
// committed later.
func (l *Log) Compact(ctx context.Context, name string, p int, from uint64, c eventlog.Compaction) (next uint64, removed int, err error) {
	if err := l.enter(ctx); err != nil {
		return from, 0, err
	}
	defer l.leave()
	t, err := l.catalog.find(name)
	if err != nil {
		return from, 0, err
	}
	part, err := l.partition(t, p)
	if err != nil {
		return from, 0, err
	}
	if err := t.sweeping.Lock(ctx); err != nil {
		return from, 0, err
	}
	defer t.sweeping.Unlock()
	x := compaction{
		sweep: sweep{log: l, topic: t, keep: c.Retention, now: c.Now},
		rules: c, partition: p, from: from, head: part.head.Load(),
	}
	if from = max(from, part.floor.Load()+1); from > x.head {
		return x.from, 0, nil
	}
	return x.run(ctx, from)
}

// compaction is one call of Compact. It finds the events as of its start: no other goroutine
// removes any while it has the topic's turn.
type compaction struct {
	sweep
	rules      eventlog.Compaction
	partition  int
	from, head uint64
	keys       *pebble.Iterator // the events of each key, in log order
}

// run looks at events from a seq on. Those to be removed go in commits of a
// bounded size, in seq order.
func (x *compaction) run(ctx context.Context, from uint64) (next uint64, removed int, err error) {
	next = x.from
	keys := topicPrefix(nil, kindKeySeq, x.topic.id)
	if x.keys, err = x.log.db.NewIter(&pebble.IterOptions{LowerBound: keys, UpperBound: after(keys)}); err != nil {
		return next, 0, failed(err)
	}
	defer x.keys.Close()
	it, err := x.log.db.NewIter(&pebble.IterOptions{
		LowerBound: eventKey(nil, x.topic.id, x.partition, from),
		UpperBound: eventKey(nil, x.topic.id, x.partition, x.head+1),
	})
	if err != nil {
		return next, 0, failed(err)
	}
	defer it.Close()
	looked := 0
	for it.First(); it.Valid() && looked < x.rules.Limit; {
		b := x.log.db.NewBatch()
		n, last := 0, next
		for ; it.Valid() && looked < x.rules.Limit && n < sweepBatch; it.Next() {
			looked++
			gone, err := x.look(ctx, b, it, looked)
			if err != nil {
				b.Close()
				return next, removed, err
			}
			if gone {
				n++
			}
			last = seqOf(it.Key()) + 1
		}
		if n == 0 {
			b.Close()
		} else if err := x.log.commits.applyUnsynced(ctx, b); err != nil {
			return next, removed, err
		}
		next, removed = last, removed+n
	}
	return next, removed, failed(it.Error())
}

// look decides on the event that the iterator is at, and removes it if it has
// to go.
func (x *compaction) look(ctx context.Context, b *pebble.Batch, it *pebble.Iterator, looked int) (gone bool, err error) {
	if looked%checkEvery == 0 && ctx.Err() != nil {
		return false, ctx.Err()
	}
	value, err := it.ValueAndErr()
	if err != nil {
		return false, failed(err)
	}
	r, err := decodeRecord(x.topic.name, x.partition, seqOf(it.Key()), value)
	if err != nil {
		return false, failed(err)
	}
	if gone, err = x.superfluous(r); gone {
		_ = b.Delete(it.Key(), nil)
		x.forget(b, r)
	}
	return gone, err
}

// superfluous says whether the event goes. A tombstone stays while there are
// events of its key below the place where this call began, since they would be
// the key's latest without it. The partition's newest event stays, since after
// a restart it tells the head.
func (x *compaction) superfluous(r *eventlog.Record) (bool, error) {
	if r.Key == "" || r.Seq >= x.head {
		return false, nil
	}
	later, err := x.ofKey(r.Key, r.Seq+1)
	if err != nil || later != 0 && later <= x.head {
		return err == nil, err
	}
	if !r.Tombstone() || r.AcceptedAt >= x.rules.TombstonesBefore {
		return false, nil
	}
	// Any others of the key, from this call's start on, it has removed.
	first, err := x.ofKey(r.Key, 0)
	return first >= x.from, err
}

// ofKey is the seq of the partition's first event of a key from a seq on; 0 if
// there is none.
func (x *compaction) ofKey(key string, from uint64) (uint64, error) {
	start := keySeqKey(nil, x.topic.id, key, x.partition, from)
	if x.keys.SeekGE(start) && bytes.HasPrefix(x.keys.Key(), start[:len(start)-8]) {
		return seqOf(x.keys.Key()), nil
	}
	return 0, failed(x.keys.Error())
}

package pebblelog

import (
	"bytes"
	"context"

	"github.com/cockroachdb/pebble/v2"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// Compact implements eventlog.Compactor. As with Sweep, its commit is not synced: a crash may bring
// back removed events. It never brings back a superseded event without the event that superseded
// it, since the removal of the latter was committed no earlier.
func (l *Log) Compact(ctx context.Context, name string, p int, from uint64, c eventlog.Compaction) (next uint64, removed int, err error) {
	t, leave, err := l.enterSweep(ctx, name)
	if err != nil {
		return from, 0, err
	}
	defer leave()
	part, err := l.partition(t, p)
	if err != nil {
		return from, 0, err
	}
	keys := topicPrefix(nil, kindKeySeq, t.id)
	x := compaction{topic: t.id, rules: c, partition: p, from: from, head: part.head.Load()}
	if x.keys, err = l.db.NewIter(&pebble.IterOptions{LowerBound: keys, UpperBound: after(keys)}); err != nil {
		return from, 0, failed(err)
	}
	defer x.keys.Close()
	s := sweep{log: l, topic: t, keep: c.Retention, now: c.Now}
	b := l.db.NewBatch()
	next = from
	looked := 0
	for r, err := range l.records(ctx, t, p, max(from, part.floor.Load()+1), x.head) {
		var gone bool
		if err == nil {
			gone, err = x.superfluous(r.Record)
		}
		if err != nil {
			return from, 0, err
		}
		if gone {
			err = s.clear(r)
		}
		if err != nil {
			return from, 0, err
		}
		if gone {
			s.forget(b, r)
			removed++
		}
		next = r.Seq + 1
		if looked++; looked == c.Limit {
			break
		}
	}
	if removed > 0 {
		s.cleared(b)
		if err := l.commits.applyUnsynced(ctx, b); err != nil {
			return from, 0, err
		}
	}
	return next, removed, s.tidy(ctx)
}

// compaction is one call of Compact. It finds the events as of its start: no other goroutine
// removes any meanwhile.
type compaction struct {
	topic      uint32
	rules      eventlog.Compaction
	partition  int
	from, head uint64
	keys       *pebble.Iterator // the events of each key, in log order
}

// superfluous reports whether the event is to be removed. A tombstone stays while its key has
// events below the seq where this call began, since one of them would become the key's latest. The
// partition's newest event stays, since the head is read from it after a restart.
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
	// This call has removed all other events of the key from its start on.
	first, err := x.ofKey(r.Key, 0)
	return first >= x.from, err
}

// ofKey is the seq of the partition's first event of a key at or above a seq; 0 if there is none.
func (x *compaction) ofKey(key string, from uint64) (uint64, error) {
	start := keySeqKey(nil, x.topic, key, x.partition, from)
	if x.keys.SeekGE(start) && bytes.HasPrefix(x.keys.Key(), start[:len(start)-8]) {
		return seqOf(x.keys.Key()), nil
	}
	return 0, failed(x.keys.Error())
}

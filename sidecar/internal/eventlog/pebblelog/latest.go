package pebblelog

import (
	"bytes"
	"context"

	"github.com/cockroachdb/pebble/v2"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// Latest implements eventlog.Reader. It iterates over the keys in descending order, since the
// latest event of a key is its last entry. One seek skips a key's earlier events and their
// tombstones.
func (l *Log) Latest(ctx context.Context, name string, q eventlog.LatestQuery, b eventlog.Bounds) ([]*eventlog.Record, error) {
	t, err := l.enterTopic(ctx, name)
	if err != nil {
		return nil, err
	}
	defer l.leave()
	return unlessDropped(func() ([]*eventlog.Record, error) { return l.latest(ctx, t, q, b) })
}

func (l *Log) latest(ctx context.Context, t *topic, q eventlog.LatestQuery, b eventlog.Bounds) ([]*eventlog.Record, error) {
	o := &pebble.IterOptions{LowerBound: keyPrefix(nil, kindKeySeq, t.id, q.From), UpperBound: after(topicPrefix(nil, kindKeySeq, t.id))}
	if q.Below != "" {
		o.UpperBound = keyPrefix(nil, kindKeySeq, t.id, q.Below)
	}
	it, err := l.db.NewIter(o)
	if err != nil {
		return nil, failed(err)
	}
	defer it.Close()
	// Before the iterator was opened, compaction removed events only for later events that were
	// already durable. The heads that are read now include these.
	heads, err := l.heads(t)
	if err != nil {
		return nil, err
	}
	for p := range heads {
		if q.UpTo != nil {
			heads[p] = min(heads[p], q.UpTo[p])
		}
	}
	events := fetcher{view: l.view(), topic: t, index: it, cursors: make([]*cursor, len(heads))}
	defer events.close()
	page := newPage(b)
	var key, seek []byte // the current key, as the index has it
	var latest location
	addLatest := func() error {
		if latest.seq == 0 {
			return nil
		}
		r, err := events.fetch(latest)
		if err == nil {
			page.add(r)
		}
		return failed(err)
	}
	const place = 2 + 8 // partition and seq
	for seen, valid := 0, it.Last(); valid; seen++ {
		if seen%checkEvery == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		entry := it.Key()
		if prefix := entry[:len(entry)-place]; !bytes.Equal(prefix, key) {
			if err := addLatest(); err != nil {
				return nil, err
			}
			if page.full() {
				return page.events, nil
			}
			key, latest = append(key[:0], prefix...), location{}
		}
		at := locationAt(entry[len(entry)-place:])
		below := uint64(0) // the next partition that has the key, or the next key
		if at.seq > heads[at.partition] {
			below = heads[at.partition] + 1
		} else if at.seq > latest.seq {
			latest = at
		}
		seek = appendPlace(append(seek[:0], key...), at.partition, below)
		valid = it.SeekLT(seek)
	}
	if err := it.Error(); err != nil {
		return nil, failed(err)
	}
	return page.events, addLatest()
}

package pebblelog

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"

	"github.com/cockroachdb/pebble/v2"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/pebblelog/journal"
)

// Findings is what Verify has found.
type Findings struct {
	Segments, Events int
	// Damage has a sentence for each thing that is not as it was written, and Unused for each of which nothing is there
	// any more if the rest is whole.
	Damage, Unused []string
	// Lost are the events that cannot be read.
	Lost []Lost
}

// Lost are events of one partition that cannot be read.
type Lost struct {
	Topic       string
	Partition   int
	First, Last uint64 // seqs
	Events      int
}

// Verify opens a folder that no sidecar runs on, and reads all of it. With drop it removes the events that cannot be
// read, so that the reads of the rest go past them. An error says that the log does not open.
func Verify(ctx context.Context, o Options, drop bool) (Findings, error) {
	l, err := Open(o)
	if err != nil {
		return Findings{}, err
	}
	f, err := l.verify(ctx, drop)
	return f, errors.Join(err, l.Close())
}

func (l *Log) verify(ctx context.Context, drop bool) (f Findings, err error) {
	bases, end := l.journal.Closed()
	for i, base := range bases {
		next := end
		if i+1 < len(bases) {
			next = bases[i+1]
		}
		size, err := l.segmentSize(base, next)
		if err != nil || size == segmentDropped {
			continue
		}
		f.Segments++
		err = l.journal.Frames(base, base+size, func(journal.Frame, []byte) error { return ctx.Err() })
		if err != nil {
			f.Unused = append(f.Unused, err.Error())
		}
	}
	for e, err := range entries(ctx, l.db, &pebble.IterOptions{}) {
		if err != nil {
			f.Damage = append(f.Damage, fmt.Sprintf("the index behind %q: %v", e.key, err))
		}
	}
	for _, t := range l.catalog.byID() {
		for p := range t.partitions {
			if err := l.verifyPartition(ctx, t, p, drop, &f); err != nil {
				return f, err
			}
		}
	}
	return f, nil
}

// verifyPartition reads the runs of a partition.
func (l *Log) verifyPartition(ctx context.Context, t *topic, p int, drop bool, f *Findings) error {
	part, err := l.partition(t, p)
	if err != nil {
		f.Damage = append(f.Damage, err.Error())
		return nil
	}
	c, err := l.view().open(t, p, nil)
	if err != nil {
		return err
	}
	defer c.close()
	var bad []run // with the events in live that cannot be read
	floor := part.floor.Load()
	for valid := c.it.First(); valid; valid = c.it.Next() {
		if err := ctx.Err(); err != nil {
			return err
		}
		c.err = nil
		c.load()
		unread := c.run
		if c.err == nil {
			for c.i = range c.records {
				if _, err := c.event(); err == nil {
					unread.live &^= 1 << (c.seq() - c.run.first)
				} else {
					f.Damage = append(f.Damage, err.Error())
				}
			}
		} else {
			f.Damage = append(f.Damage, c.err.Error())
		}
		for seq := unread.first; seq <= min(floor, unread.last()); seq++ {
			unread.live &^= 1 << (seq - unread.first)
		}
		f.Events += bits.OnesCount64(c.run.live) - bits.OnesCount64(unread.live)
		if unread.live != 0 {
			bad = append(bad, unread)
		}
	}
	for i := range bad {
		first, last := bad[i].bounds()
		f.Lost = append(f.Lost, Lost{Topic: t.name, Partition: p, First: first, Last: last, Events: bits.OnesCount64(bad[i].live)})
	}
	if !drop || len(bad) == 0 {
		return nil
	}
	return l.dropUnread(ctx, t, p, bad)
}

// bounds are the first and the last seq that is there.
func (r *run) bounds() (first, last uint64) {
	return r.first + uint64(bits.TrailingZeros64(r.live)), r.first + uint64(63-bits.LeadingZeros64(r.live))
}

// dropUnread removes the events that live of some runs says, and the entries that lead to them: their ids and keys
// are found by the places that the entries name.
func (l *Log) dropUnread(ctx context.Context, t *topic, p int, bad []run) error {
	gone := func(at location) bool {
		for i := range bad {
			if r := &bad[i]; at.partition == p && r.first <= at.seq && at.seq <= r.last() && r.has(at.seq) {
				return true
			}
		}
		return false
	}
	b := l.db.NewBatch()
	for _, kind := range []byte{kindID, kindTime, kindKeyTime, kindKeySeq} {
		prefix := topicPrefix(nil, kind, t.id)
		for e, err := range entries(ctx, l.db, &pebble.IterOptions{LowerBound: prefix, UpperBound: after(prefix)}) {
			if err != nil {
				return err
			}
			at, err := placeOf(kind, e)
			if err != nil {
				return err
			}
			if gone(at) {
				_ = b.Delete(e.key, nil)
			}
		}
	}
	for i := range bad {
		value, found, err := l.get(bad[i].key(nil))
		if err != nil || !found {
			return err
		}
		now, err := decodeRun(t.id, p, bad[i].key(nil), value)
		if err != nil {
			return failed(err)
		}
		if now.live &^= bad[i].live; now.live == 0 {
			_ = b.Delete(now.key(nil), nil)
		} else {
			_ = b.Set(now.key(nil), now.value(nil), nil)
		}
	}
	_ = b.Set(givenKey(t.id, p), binary.AppendUvarint(nil, t.partitions[p].last), nil)
	return l.commitSynced(ctx, b)
}

// placeOf is where the event of an entry is; the zero value if it is not in the log.
func placeOf(kind byte, e entry) (location, error) {
	switch kind {
	case kindKeySeq:
		return locationAt(e.key[len(e.key)-10:]), nil
	case kindID:
		id, err := decodeIDEntry(e.value)
		if err != nil || !id.inLog() {
			return location{}, err
		}
		return id.location, nil
	}
	return decodeLocation(e.value)
}

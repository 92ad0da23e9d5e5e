package pebblelog

import (
	"bytes"
	"cmp"
	"context"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// Where single events are removed, what leads to events out of order is tidied after them. Otherwise a start by time would
// look at what is not there any more, or read through what has no place in its order.

// tidy tidies after the events that the sweep has removed from their runs.
func (s *sweep) tidy(ctx context.Context) error {
	slices.SortFunc(s.removed, func(a, b stored) int { return cmp.Or(cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Seq, b.Seq)) })
	for len(s.removed) > 0 {
		p := s.removed[0].Partition
		n := 0
		for n < len(s.removed) && s.removed[n].Partition == p {
			n++
		}
		if err := s.tidyPartition(ctx, p, s.removed[:n]); err != nil {
			return err
		}
		s.removed = s.removed[n:]
	}
	return nil
}

// tidyPartition is tidy for events of one partition, by seq.
func (s *sweep) tidyPartition(ctx context.Context, p int, removed []stored) error {
	l, t := s.log, s.topic
	if strays, err := l.hasStrays(t, p); err != nil || !strays {
		return err
	}
	part, err := l.partition(t, p)
	if err != nil {
		return err
	}
	// No append may change meanwhile what is looked at.
	if err := part.turn.Lock(ctx); err != nil {
		return err
	}
	defer part.turn.Unlock()
	thinned := uint64(0)
	for _, r := range removed {
		if r.outOfOrder {
			err = l.lower(ctx, t, nodeOf(t.id, p, 0, r.Seq), appendPoint(nil, r.TS, r.ID))
		} else if r.Seq >= thinned {
			thinned, err = l.thin(ctx, t, part, r)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// hasStrays says that a partition has events out of order, or had some.
func (l *Log) hasStrays(t *topic, p int) (bool, error) {
	prefix := nodePrefix(t.id, p)
	it, err := l.db.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: after(prefix)})
	if err != nil {
		return false, failed(err)
	}
	defer it.Close()
	return it.First(), failed(it.Error())
}

// lower lowers a node of level 0, and those above it, if they have the (ts, id) of an event that was removed.
func (l *Log) lower(ctx context.Context, t *topic, n node, removed []byte) error {
	b := l.db.NewBatch()
	var highest []byte // of the last node; nil: it goes
	for child := n; n.level < levels; child, n = n, n.parent() {
		was, _, err := l.get(n.key())
		if err != nil {
			return err
		}
		if !bytes.Equal(was, removed) {
			break
		}
		if n.level == 0 {
			highest, err = l.highestOf(t, n)
		} else {
			highest, err = l.highestBelow(ctx, n, child, highest)
		}
		if err != nil {
			return err
		}
		if highest == nil {
			_ = b.Delete(n.key(), nil)
		} else {
			_ = b.Set(n.key(), highest, nil)
		}
	}
	if b.Empty() {
		return nil
	}
	return l.commits.applyUnsynced(ctx, b)
}

// highestOf is what a node of level 0 has to have; nil: nothing. What is damaged counts no more.
func (l *Log) highestOf(t *topic, n node) (highest []byte, err error) {
	c, err := l.view().open(t, n.partition, nil)
	if err != nil {
		return nil, failed(err)
	}
	defer c.close()
	first, last := n.seqs()
	c.limit = last
	var at eventlog.Point
	var damage error
	for r := range c.intact(first, &damage) {
		if r.Seq > last {
			break
		}
		if r.outOfOrder && (highest == nil || r.point().Compare(at) > 0) {
			at = r.point()
			highest = appendPoint(nil, at.TS, at.ID)
		}
	}
	return highest, failed(c.it.Error())
}

// highestBelow is what a node above level 0 has to have; is is what one child of it will have.
func (l *Log) highestBelow(ctx context.Context, n, child node, is []byte) (highest []byte, err error) {
	first, last := n.seqs()
	from, to := nodeOf(n.topic, n.partition, child.level, first), nodeOf(n.topic, n.partition, child.level, last)
	highest = is
	changed := child.key()
	for e, err := range entries(ctx, l.db, &pebble.IterOptions{LowerBound: from.key(), UpperBound: after(to.key())}) {
		if err != nil {
			return nil, err
		}
		if bytes.Compare(e.value, highest) > 0 && !bytes.Equal(e.key, changed) {
			highest = bytes.Clone(e.value)
		}
	}
	return highest, nil
}

// thin removes the entry of the time index that leads to an event that was removed, if it leads to events out of order
// alone. It returns the first seq that the entry does not lead to.
func (l *Log) thin(ctx context.Context, t *topic, part *partition, removed stored) (upTo uint64, err error) {
	prefix := orderPrefix(nil, t.id, removed.Partition)
	times, err := l.db.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: after(prefix)})
	if err != nil {
		return 0, failed(err)
	}
	defer times.Close()
	at := removed.point()
	if !times.SeekLT(append(appendPoint(prefix, at.TS, at.ID), 0)) {
		return 0, failed(times.Error())
	}
	d := decoder{rest: times.Value()}
	from := d.uvarint()
	upTo = from + orderEvery
	c, err := l.view().open(t, removed.Partition, times)
	if err != nil {
		return 0, failed(err)
	}
	defer c.close()
	c.limit = upTo - 1
	var damage error
	strays := false
	for r := range c.intact(from, &damage) {
		if r.Seq >= upTo {
			break
		}
		if !r.outOfOrder {
			return upTo, nil
		}
		strays = true
	}
	if !strays || damage != nil || c.it.Error() != nil {
		return upTo, failed(c.it.Error())
	}
	b := l.db.NewBatch()
	_ = b.Delete(times.Key(), nil)
	if !times.Next() { // the next event in order has no entry to follow
		part.order.since = orderEvery
	}
	return upTo, l.commits.applyUnsynced(ctx, b)
}

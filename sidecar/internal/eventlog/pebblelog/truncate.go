package pebblelog

import "context"

// Truncate removes the events of a partition up to and including a seq, and does not remember their
// ids: a caller that uses the log as a queue has stored the events elsewhere. Seqs continue as
// before. When Truncate returns nil, the removal survives a power cut; a crash before that may
// bring all of the events back.
//
// An id that is appended at the same time is either a duplicate or stored again.
func (l *Log) Truncate(ctx context.Context, name string, p int, upTo uint64) error {
	t, leave, err := l.enterSweep(ctx, name)
	if err != nil {
		return err
	}
	defer leave()
	part, err := l.partition(t, p)
	if err != nil {
		return err
	}
	floor := part.floor.Load()
	if upTo = min(upTo, part.head.Load()); upTo <= floor {
		return nil
	}
	b := l.db.NewBatch()
	for r, err := range l.records(ctx, t, p, floor+1, upTo) {
		if err != nil {
			b.Close()
			return err
		}
		_ = b.Delete(idKey(nil, t.id, r.ID), nil)
		unindex(b, t.id, r)
	}
	if err := l.raiseFloor(b, t, p, upTo); err != nil {
		return err
	}
	x, err := l.commits.apply(ctx, &change{entries: b}, nil)
	if err != nil {
		return err
	}
	part.floor.Store(upTo)
	l.reclaim.wake.Set()
	return l.commits.wait(ctx, x)
}

package group

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// fakeRedrives are the redrives of a fakeLog, and its dead letter topics as far as redrives go.
type fakeRedrives struct {
	redrives map[string]eventlog.Redrive // by letter
	letters  map[string]*eventlog.Record // by id; nil: it was removed
	endErr   error
	ending   chan struct{} // if set, removals wait until it is closed
	onList   func()        // if set, is called while a list is on its way
}

// keepDead keeps a dead letter, unless its id is taken.
func (l *fakeLog) keepDead(rec *eventlog.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.letters == nil {
		l.letters = map[string]*eventlog.Record{}
	}
	if _, taken := l.letters[rec.ID]; !taken {
		l.letters[rec.ID] = rec
	}
}

func (l *fakeLog) AddDeadLetterTopic(context.Context, string, string) error { return nil }

func (l *fakeLog) DeadLetterTopics(_ context.Context, topic string) ([]string, error) {
	return []string{topic + wire.DeadLetterSuffix}, nil
}

func (l *fakeLog) NamedDeadLetterTopics(context.Context) ([]string, error) { return nil, nil }

func (l *fakeLog) AddRedrives(_ context.Context, _ string, rs []eventlog.Redrive) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.redrives == nil {
		l.redrives = map[string]eventlog.Redrive{}
	}
	for _, r := range rs {
		l.redrives[r.Letter] = r
	}
	return nil
}

func (l *fakeLog) ListRedrives(_ context.Context, topic, group string, partition, limit int) (rs []eventlog.Redrive, err error) {
	var onList func()
	l.locked(func() { onList = l.onList })
	if onList != nil {
		defer onList()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.readErr != nil {
		return nil, l.readErr
	}
	for _, r := range l.redrives {
		if r.Topic == topic && r.Group == group && (partition < 0 || r.Partition == partition) {
			rs = append(rs, r)
		}
	}
	slices.SortFunc(rs, func(a, b eventlog.Redrive) int {
		return cmp.Or(cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Seq, b.Seq), strings.Compare(a.Letter, b.Letter))
	})
	return rs[:min(limit, len(rs))], nil
}

func (l *fakeLog) HasRedrives(_ context.Context, _ string, rs []eventlog.Redrive) (has []bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range rs {
		_, is := l.redrives[r.Letter]
		has = append(has, is)
	}
	return has, nil
}

func (l *fakeLog) EndRedrives(_ context.Context, _ string, rs []eventlog.Redrive) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.endErr != nil {
		return l.endErr
	}
	for _, r := range rs {
		delete(l.redrives, r.Letter)
	}
	return nil
}

func (l *fakeLog) Remove(_ context.Context, _ string, ids []string, _ eventlog.Retention, _ int64) (removed int, err error) {
	var ending chan struct{}
	l.locked(func() { ending = l.ending })
	if ending != nil {
		<-ending
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.endErr != nil {
		return 0, l.endErr
	}
	for _, id := range ids {
		if l.letters[id] != nil {
			l.letters[id] = nil
			removed++
		}
	}
	return removed, nil
}

func (l *fakeLog) LookupEach(ctx context.Context, topic string, ids []string) (recs []*eventlog.Record, err error) {
	for _, id := range ids {
		var rec *eventlog.Record
		if strings.HasSuffix(topic, wire.DeadLetterSuffix) {
			l.locked(func() { rec = l.letters[id] })
		} else {
			rec, _ = l.Lookup(ctx, topic, id)
		}
		recs = append(recs, rec)
	}
	return recs, nil
}

// dead are the dead letters that are there, by the id of the event.
func (l *fakeLog) dead() map[string][]eventlog.Dead {
	all := map[string][]eventlog.Dead{}
	l.locked(func() {
		for _, rec := range l.letters {
			if rec != nil {
				d, _ := eventlog.ReadDead(rec)
				all[d.Event.ID] = append(all[d.Event.ID], d)
			}
		}
	})
	return all
}

func (l *mortalLog) alive() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead {
		return errStore
	}
	return nil
}

func (l *mortalLog) EndRedrives(ctx context.Context, topic string, rs []eventlog.Redrive) error {
	if err := l.alive(); err != nil {
		return err
	}
	return l.fakeLog.EndRedrives(ctx, topic, rs)
}

func (l *mortalLog) Remove(ctx context.Context, topic string, ids []string, r eventlog.Retention, now int64) (int, error) {
	if err := l.alive(); err != nil {
		return 0, err
	}
	return l.fakeLog.Remove(ctx, topic, ids, r, now)
}

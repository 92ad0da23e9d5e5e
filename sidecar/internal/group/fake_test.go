package group

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/tail"
)

// fakeLog is an event log in memory whose saves and reads can be made to fail and to wait. Parts of
// a log that groups do not need are nil.
type fakeLog struct {
	eventlog.Reader
	tails *tail.Tails

	fakeRedrives
	mu       sync.Mutex
	topics   map[string][][]*eventlog.Record // partitions
	firsts   map[string]uint64               // of partition 0, where retention removed events
	epochs   map[eventlog.GroupPartition]eventlog.Epoch
	marks    map[markID]int64
	saves    int
	reads    int
	syncs    int
	syncErr  error
	syncGate chan struct{} // if set, each Sync takes one from it first
	saveErr  error
	readErr  error
	onTake   func()        // if set, is called with mu held before epochs are taken
	saveGate chan struct{} // saves take a value before they begin
	readGate chan struct{}
}

type markID struct{ topic, group, id string }

var errStore = errors.Join(errors.New("disk on fire"), eventlog.ErrUnavailable)

func newFakeLog() *fakeLog {
	return &fakeLog{
		tails:  tail.New(tail.DefaultBounds()),
		topics: make(map[string][][]*eventlog.Record),
		firsts: make(map[string]uint64),
		epochs: make(map[eventlog.GroupPartition]eventlog.Epoch),
		marks:  make(map[markID]int64),
	}
}

// locked changes or reads something of the log.
func (l *fakeLog) locked(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
}

// append stores events and announces them.
func (l *fakeLog) append(topic string, recs ...*eventlog.Record) {
	for _, rec := range recs {
		l.store(topic, rec)
		l.tails.Appended(topic, rec.Partition, []*eventlog.Record{rec})
	}
}

// store stores an event. An id may be there already, as after the end of its deduplication window.
func (l *fakeLog) store(topic string, rec *eventlog.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	parts := l.topics[topic]
	rec.Topic, rec.AcceptedAt = topic, time.Now().UnixMilli()
	rec.Partition = eventlog.PartitionOf(rec.Key, rec.ID, len(parts))
	rec.Seq = uint64(len(parts[rec.Partition]) + 1)
	parts[rec.Partition] = append(parts[rec.Partition], rec)
}

func (l *fakeLog) EnsureTopic(_ context.Context, name string, partitions int) (eventlog.Topic, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.topics[name] == nil {
		l.topics[name] = make([][]*eventlog.Record, partitions)
	}
	return eventlog.Topic{Name: name, Partitions: len(l.topics[name])}, nil
}

func (l *fakeLog) ForgetGroup(_ context.Context, topic, group string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.marks, func(m markID, _ int64) bool { return m.topic == topic && m.group == group })
	return nil
}

func (l *fakeLog) Topics(context.Context) (ts []eventlog.Topic, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, parts := range l.topics {
		ts = append(ts, eventlog.Topic{Name: name, Partitions: len(parts)})
	}
	return ts, nil
}

func (l *fakeLog) LookupTopic(_ context.Context, name string) (eventlog.Topic, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.topics[name] == nil {
		return eventlog.Topic{}, eventlog.ErrNotFound
	}
	return eventlog.Topic{Name: name, Partitions: len(l.topics[name])}, nil
}

func (l *fakeLog) Extents(_ context.Context, topic string) ([]eventlog.Extent, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var xs []eventlog.Extent
	for i, recs := range l.topics[topic] {
		x := eventlog.Extent{First: 1, Head: uint64(len(recs))}
		if i == 0 {
			x.First = max(1, l.firsts[topic])
			x.Removed = x.First - 1
		}
		xs = append(xs, x)
	}
	return xs, nil
}

func (l *fakeLog) Read(_ context.Context, topic string, p int, from uint64, b eventlog.Bounds) ([]*eventlog.Record, error) {
	l.mu.Lock()
	gate := l.readGate
	l.mu.Unlock()
	if gate != nil {
		<-gate
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reads++
	if l.readErr != nil {
		return nil, l.readErr
	}
	if p == 0 {
		from = max(from, l.firsts[topic])
	}
	recs := l.topics[topic][p]
	if from > uint64(len(recs)) {
		return nil, nil
	}
	recs = recs[from-1:]
	n, size := 0, 0
	for n < len(recs) && n < b.Events && (n == 0 || b.Bytes == 0 || size < b.Bytes) {
		size += recs[n].Size()
		n++
	}
	return slices.Clone(recs[:n]), nil
}

func (l *fakeLog) Lookup(_ context.Context, topic, id string) (*eventlog.Record, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, recs := range l.topics[topic] {
		for _, rec := range recs {
			if rec.ID == id {
				return rec, nil
			}
		}
	}
	return nil, eventlog.ErrNotFound
}

func (l *fakeLog) Seek(_ context.Context, topic string, p eventlog.Position) ([]uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var starts []uint64
	for _, recs := range l.topics[topic] {
		at := 0
		switch p.From {
		case wire.FromLatest:
			at = len(recs)
		case wire.FromTS:
			for at < len(recs) && recs[at].TS < p.TS {
				at++
			}
		case wire.FromAfterID:
			for at < len(recs) && (eventlog.Point{TS: recs[at].TS, ID: recs[at].ID}).Compare(p.After) <= 0 {
				at++
			}
		}
		starts = append(starts, uint64(at+1))
	}
	return starts, nil
}

func (l *fakeLog) GroupsOf(ctx context.Context, topics []string) (map[string][]string, error) {
	of := map[string][]string{}
	for _, topic := range topics {
		of[topic], _ = l.ListGroups(ctx, topic)
	}
	return of, nil
}

func (l *fakeLog) ListGroups(_ context.Context, topic string) ([]string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	names := map[string]bool{}
	for at := range l.epochs {
		if at.Topic == topic {
			names[at.Group] = true
		}
	}
	return slices.Sorted(maps.Keys(names)), nil
}

func (l *fakeLog) LatestEpochs(_ context.Context, topic, group string) ([]eventlog.Epoch, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var es []eventlog.Epoch
	for at, e := range l.epochs {
		if at.Topic == topic && at.Group == group {
			es = append(es, e)
		}
	}
	return es, nil
}

func (l *fakeLog) AllEpochs(context.Context) ([]eventlog.Epoch, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(slices.Collect(maps.Values(l.epochs)), func(e eventlog.Epoch) bool { return e.Deleted }), nil
}

func (l *fakeLog) Backlog(ctx context.Context, known []eventlog.Hint) (extents []eventlog.Extent, err error) {
	for _, k := range known {
		of, _ := l.Extents(ctx, k.Topic)
		extents = append(extents, of[k.Partition])
	}
	return extents, nil
}

func (l *fakeLog) TakeEpochs(_ context.Context, epochs []eventlog.Epoch) []error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.onTake != nil {
		l.onTake()
	}
	errs := make([]error, len(epochs))
	for i, e := range epochs {
		if e.Number <= l.epochs[e.GroupPartition].Number {
			errs[i] = eventlog.ErrEpochTaken
			continue
		}
		if before := l.epochs[e.GroupPartition]; e.Inherit && before.Number > 0 {
			e.Progress = before.Progress
		}
		if e.Kept {
			e.Released = l.epochs[e.GroupPartition].Released
		}
		e.Inherit, e.Kept = false, false
		l.epochs[e.GroupPartition] = e
	}
	return errs
}

func (l *fakeLog) SaveEpochs(_ context.Context, epochs []eventlog.Epoch, marks []eventlog.Mark) error {
	l.mu.Lock()
	gate := l.saveGate
	l.mu.Unlock()
	if gate != nil {
		<-gate
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.saves++
	if l.saveErr != nil {
		return l.saveErr
	}
	for _, e := range epochs {
		if e.Number < l.epochs[e.GroupPartition].Number {
			return eventlog.ErrFenced
		}
	}
	for _, m := range marks {
		l.marks[markID{m.Topic, m.Group, m.ID}] = m.ExpiresAt
	}
	for _, e := range epochs {
		l.epochs[e.GroupPartition] = e
	}
	return nil
}

func (l *fakeLog) Sync(context.Context) error {
	l.mu.Lock()
	gate := l.syncGate
	l.mu.Unlock()
	if gate != nil {
		<-gate
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.syncs++
	return l.syncErr
}

func (l *fakeLog) Marked(_ context.Context, topic, group string, ids []string, now int64) ([]bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	marked := make([]bool, len(ids))
	for i, id := range ids {
		marked[i] = l.marks[markID{topic, group, id}] > now
	}
	return marked, nil
}

// mortalLog is the log as one process sees it. After the death of the process its calls do not
// reach the log.
type mortalLog struct {
	*fakeLog
	mu   sync.Mutex
	dead bool
}

func (l *mortalLog) kill() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dead = true
}

func (l *mortalLog) SaveEpochs(ctx context.Context, epochs []eventlog.Epoch, marks []eventlog.Mark) error {
	l.mu.Lock()
	dead := l.dead
	l.mu.Unlock()
	if dead {
		return errStore
	}
	return l.fakeLog.SaveEpochs(ctx, epochs, marks)
}

func (l *mortalLog) Sync(ctx context.Context) error {
	l.mu.Lock()
	dead := l.dead
	l.mu.Unlock()
	if dead {
		return errStore
	}
	return l.fakeLog.Sync(ctx)
}

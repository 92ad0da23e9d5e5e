package spool_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// weather is how the shared store is doing.
type weather int

const (
	up          weather = iota
	down                // every call fails at once
	hanging             // every call fails after the store's timeout
	losing              // appends are stored and then fail
	halfLosing          // appends store their first half and then fail
	pingingOnly         // as hanging, but the ping succeeds
)

// timeout is how long a call of the fake takes to fail when it hangs.
const timeout = 5 * time.Second

var errDown = fmt.Errorf("the fake is down: %w", eventlog.ErrUnavailable)

// fakeLog is a shared log in memory, which keeps the promises of package eventlog.
type fakeLog struct {
	before func() // every read, if set
	during func() // every append that is answered, before it is, if set

	mu      sync.Mutex
	weather weather
	latency time.Duration // of every call
	topics  map[string]*fakeTopic
	calls   int    // appends
	unmet   string // a topic whose write concern is not met: appends are stored and refused
	id      string // its name, once a ping has succeeded
	reached bool
	refused string // ids that end so are refused for good
	marks   map[string]int64
	erased  []string // ids
}

type fakeTopic struct {
	partitions [][]*eventlog.Record
	ids        map[string]*eventlog.Record
}

func newFakeLog() *fakeLog { return &fakeLog{id: "one", topics: map[string]*fakeTopic{}} }

func (f *fakeLog) set(w weather) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.weather = w
}

func (f *fakeLog) setUnmet(topic string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unmet = topic
}

func (f *fakeLog) slow(latency time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.latency = latency
}

func (f *fakeLog) appends() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls
}

// create makes a topic, as another sidecar would.
func (f *fakeLog) create(name string, partitions int) *fakeTopic {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.createLocked(name, partitions)
}

func (f *fakeLog) createLocked(name string, partitions int) *fakeTopic {
	t := f.topics[name]
	if t == nil {
		t = &fakeTopic{partitions: make([][]*eventlog.Record, partitions), ids: map[string]*eventlog.Record{}}
		f.topics[name] = t
	}
	return t
}

// meet is what every call meets: the weather at its end, or an error.
func (f *fakeLog) meet(ctx context.Context) (weather, error) {
	f.mu.Lock()
	w, wait := f.weather, f.latency
	f.mu.Unlock()
	if w == hanging || w == pingingOnly {
		wait = timeout
	}
	if wait > 0 {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return w, fmt.Errorf("%w: %w", eventlog.ErrUnavailable, ctx.Err())
		}
	}
	if w == down || w == hanging || w == pingingOnly {
		return w, errDown
	}
	return w, nil
}

func (f *fakeLog) Ping(ctx context.Context) error {
	f.mu.Lock()
	w := f.weather
	f.mu.Unlock()
	if w != pingingOnly {
		if _, err := f.meet(ctx); err != nil {
			return err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reached = true
	return nil
}

func (f *fakeLog) StoreID() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.reached {
		return ""
	}
	return f.id
}

func (f *fakeLog) EnsureTopic(ctx context.Context, name string, partitions int) (eventlog.Topic, error) {
	if _, err := f.meet(ctx); err != nil {
		return eventlog.Topic{}, err
	}
	return eventlog.Topic{Name: name, Partitions: len(f.create(name, partitions).partitions)}, nil
}

func (f *fakeLog) Append(ctx context.Context, topic string, partition int, batch []*eventlog.Record) []eventlog.Outcome {
	f.mu.Lock()
	f.calls++
	f.mu.Unlock()
	w, err := f.meet(ctx)
	if err == nil && f.during != nil {
		f.during()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	outs := make([]eventlog.Outcome, len(batch))
	known := len(batch)
	switch {
	case err != nil:
		known = 0
	case w == losing:
		known, err = 0, errDown
		f.store(topic, partition, batch, outs)
	case w == halfLosing:
		known, err = 0, errDown
		f.store(topic, partition, batch[:(len(batch)+1)/2], outs)
	case topic == f.unmet:
		known, err = 0, &eventlog.ConcernError{Topic: topic, Concern: "w:4", Cause: errors.New("not enough members")}
		f.store(topic, partition, batch, outs)
	default:
		f.store(topic, partition, batch, outs)
	}
	for i := known; i < len(batch); i++ {
		outs[i] = eventlog.Outcome{Err: err}
		batch[i].FreshID = false
	}
	return outs
}

func (f *fakeLog) store(topic string, partition int, batch []*eventlog.Record, outs []eventlog.Outcome) {
	t := f.topics[topic]
	for i, r := range batch {
		if t == nil || partition >= len(t.partitions) {
			outs[i] = eventlog.Outcome{Err: fmt.Errorf("topic %q: %w", topic, eventlog.ErrNotFound)}
			continue
		}
		if f.refused != "" && strings.HasSuffix(r.ID, f.refused) {
			outs[i] = eventlog.Outcome{Err: &eventlog.RefusedError{Cause: errors.New("a rule of the store's")}}
			continue
		}
		if was := t.ids[r.ID]; was != nil && !r.FreshID {
			if codec.SameContent(&was.Event, &r.Event) {
				outs[i] = eventlog.Outcome{Partition: was.Partition, Seq: was.Seq, TS: was.TS, Duplicate: true}
			} else {
				outs[i] = eventlog.Outcome{Err: &eventlog.ConflictError{ID: r.ID, Seq: was.Seq}}
			}
			continue
		}
		t.partitions[partition] = append(t.partitions[partition], r)
		r.Partition, r.Seq = partition, uint64(len(t.partitions[partition]))
		t.ids[r.ID] = r
		outs[i] = eventlog.Outcome{Partition: partition, Seq: r.Seq, TS: r.TS}
	}
}

// ids are the ids of a partition, in order.
func (f *fakeLog) ids(topic string, partition int) (ids []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.topics[topic]
	if t == nil {
		return nil
	}
	for _, r := range t.partitions[partition] {
		ids = append(ids, r.ID)
	}
	return ids
}

// all are the events of a topic by (ts, id).
func (f *fakeLog) all(topic string) (all []*eventlog.Record) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if t := f.topics[topic]; t != nil {
		for _, p := range t.partitions {
			all = append(all, p...)
		}
	}
	slices.SortFunc(all, func(a, b *eventlog.Record) int { return pointOf(a).Compare(pointOf(b)) })
	return all
}

func pointOf(r *eventlog.Record) eventlog.Point { return eventlog.Point{TS: r.TS, ID: r.ID} }

func (f *fakeLog) Lookup(ctx context.Context, topic, id string) (*eventlog.Record, error) {
	if f.before != nil {
		f.before()
	}
	if _, err := f.meet(ctx); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if t := f.topics[topic]; t != nil && t.ids[id] != nil {
		return t.ids[id], nil
	}
	return nil, fmt.Errorf("event %q: %w", id, eventlog.ErrNotFound)
}

// mark stores the mark of an erasure, as another sidecar does.
func (f *fakeLog) mark(e eventlog.Erasure, at int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.marks == nil {
		f.marks = map[string]int64{}
	}
	m := e.Mark(at)
	f.marks[m.Topic+"/"+m.Group+"/"+m.ID] = m.ExpiresAt
}

func (f *fakeLog) Marked(ctx context.Context, topic, group string, ids []string, now int64) ([]bool, error) {
	if _, err := f.meet(ctx); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	marked := make([]bool, len(ids))
	for i, id := range ids {
		marked[i] = f.marks[topic+"/"+group+"/"+id] > now
	}
	return marked, nil
}

func (f *fakeLog) LookupEach(ctx context.Context, topic string, ids []string) ([]*eventlog.Record, error) {
	recs := make([]*eventlog.Record, len(ids))
	for i, id := range ids {
		rec, err := f.Lookup(ctx, topic, id)
		if err != nil && !errors.Is(err, eventlog.ErrNotFound) {
			return nil, err
		}
		recs[i] = rec
	}
	return recs, nil
}

func (f *fakeLog) Erase(ctx context.Context, topic string, partition int, seqs []uint64, _ eventlog.Retention, _ int64) (removed int,
	err error) {
	if _, err := f.meet(ctx); err != nil {
		return 0, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.topics[topic]
	t.partitions[partition] = slices.DeleteFunc(t.partitions[partition], func(r *eventlog.Record) bool {
		gone := slices.Contains(seqs, r.Seq)
		if gone {
			delete(t.ids, r.ID)
			f.erased = append(f.erased, r.ID)
			removed++
		}
		return gone
	})
	return removed, nil
}

func (f *fakeLog) Cancel(context.Context, string, string) error { return eventlog.ErrNotFound }

func (f *fakeLog) Scan(ctx context.Context, topic string, q eventlog.ScanQuery, b eventlog.Bounds) ([]*eventlog.Record, error) {
	if f.before != nil {
		f.before()
	}
	if _, err := f.meet(ctx); err != nil {
		return nil, err
	}
	f.mu.Lock()
	known := f.topics[topic] != nil
	f.mu.Unlock()
	if !known {
		return nil, fmt.Errorf("topic %q: %w", topic, eventlog.ErrNotFound)
	}
	all := f.all(topic)
	if q.Descending {
		slices.Reverse(all)
	}
	var page []*eventlog.Record
	bytes := 0
	for _, r := range all {
		c := 1
		if q.After != nil {
			c = pointOf(r).Compare(*q.After)
		}
		if q.Descending && q.After != nil {
			c = -c
		}
		if c <= 0 || r.TS < q.MinTS || r.TS > q.Upper() || q.Key != nil && r.Key != *q.Key {
			continue
		}
		if len(page) > 0 && (len(page) >= b.Events || b.Bytes > 0 && bytes >= b.Bytes) {
			break
		}
		page = append(page, r)
		bytes += r.Size()
	}
	return page, nil
}

var errDisk = errors.New("the disk says no")

package mongolog

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"

	"github.com/sluice-bus/sluice/internal/mongotest"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/eventlogtest"
)

// stored appends events that must be new and returns their seqs.
func stored(t *testing.T, l *Log, topic string, batch ...*eventlog.Record) []uint64 {
	t.Helper()
	var seqs []uint64
	for i, o := range l.Append(t.Context(), topic, 0, batch) {
		if o.Err != nil || o.Duplicate {
			t.Fatalf("event %q: %+v", batch[i].ID, o)
		}
		seqs = append(seqs, o.Seq)
	}
	return seqs
}

func wantSeqs(t *testing.T, got []uint64, want ...uint64) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("seqs %v; want %v", got, want)
	}
}

func ensure(t testing.TB, l *Log, topic string, partitions int) {
	t.Helper()
	if _, err := l.EnsureTopic(t.Context(), topic, partitions); err != nil {
		t.Fatal(err)
	}
}

// vanish does what retention may do once all events of partition 0 are old:
// the head moves to heads, and the documents go.
func vanish(t *testing.T, l *Log, topic string, head uint64) {
	t.Helper()
	ctx, end, err := l.begin(context.Background())
	if err != nil {
		t.Error(err)
		return
	}
	defer end()
	doc := append(bson.D{{Key: "_id", Value: headID(topic, 0, int64(head))}, {Key: "seq", Value: int64(head)}}, inPartition(topic, 0)...)
	if _, err := l.majority(headsName).InsertOne(ctx, doc); err != nil {
		t.Error(err)
	}
	if _, err := l.majority(eventsName).DeleteMany(ctx, inPartition(topic, 0)); err != nil {
		t.Error(err)
	}
}

// rollBack removes the events above a seq without a trace, as a change of
// primary does with what no majority had.
func rollBack(t *testing.T, l *Log, topic string, above int64) {
	t.Helper()
	ctx, end, err := l.begin(context.Background())
	if err != nil {
		t.Error(err)
		return
	}
	defer end()
	filter := inPartition(topic, 0, bson.E{Key: "seq", Value: bson.D{{Key: "$gt", Value: above}}})
	if _, err := l.majority(eventsName).DeleteMany(ctx, filter); err != nil {
		t.Error(err)
	}
}

// inserts calls once, when a log is about to send its next insert of events.
type inserts struct {
	mu   sync.Mutex
	once func()
}

func (i *inserts) before(f func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.once = f
}

func (i *inserts) monitor() *event.CommandMonitor {
	return &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		if c, _ := e.Command.Lookup("insert").StringValueOK(); c != eventsName {
			return
		}
		i.mu.Lock()
		f := i.once
		i.once = nil
		i.mu.Unlock()
		if f != nil {
			f()
		}
	}}
}

func TestACachedHeadIsUsed(t *testing.T) {
	s := mongotest.Shared(t)
	finds := 0
	o := Options{URL: s.URI(s.NewDatabase(t)), Monitor: &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		if e.CommandName == "find" {
			finds++
		}
	}}}
	l := mustOpen(t, o)
	ensure(t, l, "t", 1)
	wantSeqs(t, stored(t, l, "t", eventlogtest.Events("a", 2)...), 1, 2)
	before := finds
	wantSeqs(t, stored(t, l, "t", eventlogtest.Events("b", 2)...), 3, 4)
	if finds != before {
		t.Errorf("%d queries for an append to a known head", finds-before)
	}
}

func TestAHeadThatIsTooOldIsReadAgain(t *testing.T) {
	s := mongotest.Shared(t)
	url := s.URI(s.NewDatabase(t))
	a, b := mustOpen(t, Options{URL: url}), mustOpen(t, Options{URL: url})
	ensure(t, a, "t", 1)
	wantSeqs(t, stored(t, a, "t", eventlogtest.Events("a", 3)...), 1, 2, 3)
	wantSeqs(t, stored(t, b, "t", eventlogtest.Events("b", 3)...), 4, 5, 6)
	vanish(t, b, "t", 6)
	for name, age := range map[string]func(*moment){
		"the process waited":  func(m *moment) { m.mono = m.mono.Add(-DefaultStaleHead / 2) },
		"the machine slept":   func(m *moment) { m.wall = m.wall.Add(-DefaultStaleHead / 2) },
		"the clock went back": func(m *moment) { m.mono, m.wall = m.mono.Add(-DefaultStaleHead/2), m.wall.Add(time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			k := &a.catalog.cached("t").partitions[0].head
			k.mu.Lock()
			k.head.seq = 3
			age(&k.head.since)
			k.mu.Unlock()
			want := uint64(7)
			if got := stored(t, a, "t", eventlogtest.Event("late "+name)); got[0] < want {
				t.Errorf("seq %d was given before; want %d or more", got[0], want)
			}
		})
	}
}

func TestAnInsertByAnOutdatedHeadIsTakenBack(t *testing.T) {
	s := mongotest.Shared(t)
	url := s.URI(s.NewDatabase(t))
	var hook inserts
	a := mustOpen(t, Options{URL: url, StaleHead: 2 * time.Second, Monitor: hook.monitor()})
	b := mustOpen(t, Options{URL: url})
	ensure(t, a, "t", 1)
	wantSeqs(t, stored(t, a, "t", eventlogtest.Events("a", 3)...), 1, 2, 3)
	since := a.catalog.cached("t").partitions[0].head.head.since
	hook.before(func() { // the process is paused just before it sends
		stored(t, b, "t", eventlogtest.Events("b", 3)...)
		vanish(t, b, "t", 6)
		for a.fresh(since) {
			time.Sleep(time.Millisecond)
		}
	})
	late := eventlogtest.Events("late", 2)
	wantSeqs(t, stored(t, a, "t", late...), 7, 8)
	for _, e := range late {
		if got, err := b.Lookup(t.Context(), "t", e.ID); err != nil || got.Seq != e.Seq {
			t.Errorf("event %q: %+v, %v; want seq %d", e.ID, got, err, e.Seq)
		}
	}
}

func TestHeadsBelowMajorityGoWithThePrimary(t *testing.T) {
	s := mongotest.Shared(t)
	var hook inserts
	weak := func(string) string { return "w:1" }
	a := mustOpen(t, Options{URL: s.URI(s.NewDatabase(t)), WriteConcern: weak, Monitor: hook.monitor()})
	for i, during := range []bool{false, true} {
		topic := fmt.Sprintf("t%d", i)
		ensure(t, a, topic, 1)
		wantSeqs(t, stored(t, a, topic, eventlogtest.Events("a", 3)...), 1, 2, 3)
		elect := func() {
			rollBack(t, a, topic, 1)
			a.topology.generation.Add(1)
		}
		if during {
			hook.before(elect)
		} else {
			elect()
		}
		wantSeqs(t, stored(t, a, topic, eventlogtest.Events("b", 2)...), 2, 3)
	}
}

func TestHeardHeads(t *testing.T) {
	s := mongotest.Shared(t)
	url := s.URI(s.NewDatabase(t))
	tries := 0
	a := mustOpen(t, Options{URL: url, Monitor: &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		if e.CommandName == "insert" {
			tries++
		}
	}}})
	b := mustOpen(t, Options{URL: url})
	a.heardHead("t", 0, 9) // no such topic yet
	ensure(t, b, "t", 1)   // who creates it knows its heads
	ensure(t, a, "t", 1)
	a.heardHead("t", 0, 9) // no head known yet, so there is none to raise
	a.heardHead("t", 1, 9)
	wantSeqs(t, stored(t, a, "t", eventlogtest.Event("a")), 1)
	wantSeqs(t, stored(t, b, "t", eventlogtest.Event("b")), 2)
	a.heardHead("t", 0, 2)
	a.heardHead("t", 0, 1) // late
	before := tries
	wantSeqs(t, stored(t, a, "t", eventlogtest.Event("c")), 3)
	if tries != before+1 {
		t.Errorf("%d inserts; the head was heard of, so one is enough", tries-before)
	}
}

func TestTheHeadOutlivesItsEvents(t *testing.T) {
	s := mongotest.Shared(t)
	url := s.URI(s.NewDatabase(t))
	a := mustOpen(t, Options{URL: url})
	ensure(t, a, "t", 1)
	stored(t, a, "t", eventlogtest.Events("a", 3)...)
	vanish(t, a, "t", 3)
	b := mustOpen(t, Options{URL: url})
	if got, err := b.Extents(t.Context(), "t"); err != nil || got[0] != (eventlog.Extent{First: 4, Head: 3}) {
		t.Errorf("Extents = %+v, %v", got, err)
	}
	wantSeqs(t, stored(t, b, "t", eventlogtest.Event("b")), 4)
}

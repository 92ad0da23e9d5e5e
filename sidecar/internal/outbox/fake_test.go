package outbox

import (
	"context"
	"sync"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// fakeLog is a publisher that stores each (topic, id) once, in one partition per topic.
type fakeLog struct {
	most int // of MaxEvents

	mu         sync.Mutex
	whole      func(items []wire.PublishItem) *wire.Error // refuses calls
	refuse     func(e *wire.Event) *wire.Error            // refuses events
	stored     map[string]uint64                          // seq by topic and id
	events     []wire.Event
	duplicates int
	calls      int
	changed    chan struct{} // closed when an event was stored
}

func newFakeLog() *fakeLog {
	return &fakeLog{stored: map[string]uint64{}, changed: make(chan struct{})}
}

func (f *fakeLog) MaxEvents(string) int { return f.most }

func (f *fakeLog) Publish(_ context.Context, items []wire.PublishItem, done func([]wire.ResultItem)) *wire.Error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	if f.whole != nil {
		if err := f.whole(items); err != nil {
			return err
		}
	}
	results := make([]wire.ResultItem, len(items))
	for i := range items {
		results[i] = f.publish(&items[i].Event)
	}
	done(results)
	return nil
}

func (f *fakeLog) publish(e *wire.Event) wire.ResultItem {
	if f.refuse != nil {
		if err := f.refuse(e); err != nil {
			return wire.ResultItem{Err: err}
		}
	}
	name := e.Topic + "/" + e.ID
	seq, known := f.stored[name]
	if known {
		f.duplicates++
	} else {
		f.events = append(f.events, *e)
		seq = uint64(len(f.events))
		f.stored[name] = seq
		close(f.changed)
		f.changed = make(chan struct{})
	}
	return wire.ResultItem{Receipt: wire.Receipt{ID: e.ID, TS: e.TS, Seq: seq, Duplicate: known}}
}

// set changes how the log behaves.
func (f *fakeLog) set(change func(f *fakeLog)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

// ids are the events' ids of one key of one topic, in order; of all keys with "".
func (f *fakeLog) ids(topic, key string) (ids []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range f.events {
		if e.Topic == topic && (key == "" || e.Key == key) {
			ids = append(ids, e.ID)
		}
	}
	return ids
}

func (f *fakeLog) count() (events, duplicates int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.events), f.duplicates
}

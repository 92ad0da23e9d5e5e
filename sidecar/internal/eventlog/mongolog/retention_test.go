package mongolog

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/eventlogtest"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/core"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/events"
	"github.com/sluice-bus/sluice/test/mongotest"
	"github.com/sluice-bus/sluice/test/require"
)

const hour = int64(time.Hour / time.Millisecond)

// opened returns a log on a new store, and a function that opens others on it. The store has a
// topic "t" with one partition.
func opened(t *testing.T, o Options) (l *Log, again func() *Log) {
	t.Helper()
	server := mongotest.Shared(t)
	o.URL, o.Timeout = server.URI(server.NewDatabase(t)), testTimeout
	again = func() *Log { return openRunning(t, o) }
	l = again()
	if _, err := l.EnsureTopic(t.Context(), "t", 1); err != nil {
		t.Fatal(err)
	}
	return l, again
}

// publish appends events to partition 0 of t, and returns the outcomes.
func publish(t *testing.T, l *Log, events ...*eventlog.Record) []eventlog.Outcome {
	t.Helper()
	out := l.Append(t.Context(), "t", 0, events)
	for i, o := range out {
		if o.Err != nil {
			t.Fatalf("Append of %q: %v", events[i].ID, o.Err)
		}
	}
	return out
}

func sweepOnce(t *testing.T, l *Log, r eventlog.Retention, now int64) int {
	t.Helper()
	n, more, err := l.Sweep(t.Context(), "t", r, now, 1000)
	if err != nil || more {
		t.Fatalf("Sweep = %d, %v, %v", n, more, err)
	}
	return n
}

// raw returns the documents of a collection by _id, without those whose _id is no string.
func raw(t *testing.T, l *Log, collection string) map[string]bson.M {
	t.Helper()
	docs, err := core.FindIn[bson.M](t.Context(), l.store, l.store.DB.Collection(collection), bson.D{}, options.Find())
	require.NoError(t, err)
	byID := map[string]bson.M{}
	for _, d := range docs {
		if id, ok := d["_id"].(string); ok {
			byID[id] = d
		}
	}
	return byID
}

func TestStubs(t *testing.T) {
	for _, c := range []struct {
		name   string
		window int64
		// leftMS is how far expireAt is in the future; 0: there is none.
		leftMS int64
	}{
		{"a window", 5 * hour, 3 * hour},
		{"for ever", 0, 0},
		{"for longer than dates go", 1 << 62, 100*365*24*hour - 2*hour},
		{"not needed any more", 1, hour},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, _ := opened(t, Options{SeqTaken: time.Hour})
			e := eventlogtest.Event("a", eventlogtest.Keyed("k"))
			e.Headers, e.Tags, e.CausedBy, e.SID = wire.Headers{{Name: "h", Value: "v"}}, []string{"x"}, []string{"y"}, "s"
			publish(t, l, e)
			before := time.Now()
			if n := sweepOnce(t, l, eventlog.Retention{TTLMS: hour, DedupeWindowMS: c.window}, e.AcceptedAt+2*hour); n != 1 {
				t.Fatalf("%d events went; want 1", n)
			}
			stub := raw(t, l, core.Events)["t/a"]
			left := int64(0)
			if at, ok := stub["expireAt"].(bson.DateTime); ok {
				left = at.Time().Sub(before).Milliseconds()
			}
			if left < c.leftMS || left > c.leftMS+2*events.StubDelay.Milliseconds() {
				t.Errorf("expireAt is in %d ms; want %d", left, c.leftMS)
			}
			delete(stub, "expireAt")
			want := []string{"_id", "accepted", "gone", "gone_at", "hash", "id", "partition", "seq", "topic", "ts", "writer"}
			if got := slices.Sorted(maps.Keys(stub)); !slices.Equal(got, want) {
				t.Errorf("the stub has %q; want %q", got, want)
			}
		})
	}
}

// deleteAllStubs deletes every stub, as a TTL index does in the end.
func deleteAllStubs(t *testing.T, l *Log) {
	t.Helper()
	if _, err := l.store.DB.Collection(core.Events).DeleteMany(t.Context(), bson.D{events.Stubs}); err != nil {
		t.Fatal(err)
	}
}

func TestHeadOutlivesItsEvents(t *testing.T) {
	l, again := opened(t, Options{SeqTaken: time.Nanosecond})
	keep := eventlog.Retention{TTLMS: hour, DedupeWindowMS: 10 * hour}
	head := uint64(0)
	for round := range 3 {
		events := eventlogtest.Events(string(rune('a'+round)), 5)
		for i, o := range publish(t, l, events...) {
			if head++; o.Seq != head {
				t.Fatalf("round %d: event %d has seq %d; want %d", round, i, o.Seq, head)
			}
		}
		sweepOnce(t, l, keep, events[0].AcceptedAt+hour)
		deleteAllStubs(t, l)
		other := again()
		for _, log := range []*Log{l, other} {
			e, err := log.Extents(t.Context(), "t")
			if err != nil || e[0] != (eventlog.Extent{First: head + 1, Head: head, Removed: head}) {
				t.Errorf("round %d: extent %+v, %v; the head is %d", round, e, err, head)
			}
		}
		l = other
	}
}

func TestStubsKeepTheirSeqs(t *testing.T) {
	l, _ := opened(t, Options{SeqTaken: time.Hour})
	events := eventlogtest.Events("a", 3) // accepted years ago
	publish(t, l, events...)
	keep := eventlog.Retention{TTLMS: 1, DedupeWindowMS: 1}
	if n := sweepOnce(t, l, keep, time.Now().UnixMilli()); n != 3 {
		t.Errorf("%d events went; want 3", n)
	}
	if n := sweepOnce(t, l, keep, time.Now().UnixMilli()); n != 0 {
		t.Errorf("%d more events went", n)
	}
	if docs := raw(t, l, core.Events); len(docs) != 3 {
		t.Errorf("%d documents are left; want 3", len(docs))
	}
	if out := publish(t, l, eventlogtest.Events("a", 3)...); !out[2].Duplicate {
		t.Errorf("published again: %+v; want a duplicate", out[2])
	}
}

// Sidecars that sweep, compact and append at the same time have the same effect as one.
func TestSweepsAtOnce(t *testing.T) {
	first, again := opened(t, Options{SeqTaken: time.Nanosecond})
	logs := []*Log{first, again(), again()}
	const old, young = 40, 12
	events := eventlogtest.Events("old", old, eventlogtest.Keyed("k"))
	now := events[0].AcceptedAt + 2*hour
	publish(t, first, events...)
	keep := eventlog.Retention{TTLMS: hour, DedupeWindowMS: 10 * hour}
	var working sync.WaitGroup
	for i, l := range logs {
		working.Go(func() {
			for more := true; more; {
				var err error
				if _, more, err = l.Sweep(t.Context(), "t", keep, now, 3); err != nil {
					t.Errorf("Sweep: %v", err)
				}
				if i > 0 {
					continue
				}
				if _, _, err := l.Compact(t.Context(), "t", 0, 1, eventlog.Compaction{Retention: keep, Now: now, Limit: 7}); err != nil {
					t.Errorf("Compact: %v", err)
				}
			}
		})
	}
	for i := range young {
		publish(t, logs[1], eventlogtest.Event(fmt.Sprint("young-", i), eventlogtest.Accepted(now)))
	}
	working.Wait()
	left, err := again().Read(t.Context(), "t", 0, 1, eventlog.Bounds{Events: 1000})
	if err != nil || len(left) != young || left[0].Seq != old+1 {
		t.Errorf("left are %d events, %v; want the %d young ones", len(left), err, young)
	}
	for i, o := range publish(t, first, eventlogtest.Events("old", old, eventlogtest.Keyed("k"))...) {
		if !o.Duplicate || o.Seq != uint64(i)+1 {
			t.Errorf("old event %d again: %+v", i, o)
		}
	}
}

func TestOnlyNullIsATombstone(t *testing.T) {
	l, _ := opened(t, Options{SeqTaken: time.Nanosecond})
	payloads := []string{`null`, `[null]`, `[null,1]`, `{"a":null}`, `"null"`, `0`, `false`, `""`, `[]`, `{}`}
	var events []*eventlog.Record
	for i, p := range payloads {
		events = append(events, eventlogtest.Event(fmt.Sprint(i), eventlogtest.Keyed(fmt.Sprint("k", i)), eventlogtest.Payload(p)))
	}
	binary := eventlogtest.Event("binary", eventlogtest.Keyed("b"), eventlogtest.Payload("null"))
	binary.Binary = true
	publish(t, l, append(events, binary, eventlogtest.Event("newest"))...)
	next, removed, err := l.Compact(t.Context(), "t", 0, 1, eventlog.Compaction{Now: events[0].AcceptedAt,
		TombstonesBefore: events[0].AcceptedAt + 1, Limit: 100})
	if err != nil || removed != 1 || next != uint64(len(payloads))+3 {
		t.Errorf("Compact = %d, %d, %v; want one tombstone to go", next, removed, err)
	}
	if _, err := l.Lookup(t.Context(), "t", "0"); !errors.Is(err, eventlog.ErrNotFound) {
		t.Errorf("Lookup of the tombstone: %v", err)
	}
}

package bubbletest

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/eventlogtest"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog"
	"github.com/sluice-bus/sluice/test/mongomodel"
	"github.com/sluice-bus/sluice/test/require"
)

const topics = "topics"

func ensure(t *testing.T, l *mongolog.Log) {
	t.Helper()
	if _, err := l.EnsureTopic(t.Context(), "orders", 1); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, l *mongolog.Log) {
	t.Helper()
	require.NoError(t, l.DeleteTopic(t.Context(), "orders"))
}

func appendOne(t *testing.T, l *mongolog.Log, id string) eventlog.Outcome {
	t.Helper()
	return l.Append(t.Context(), "orders", 0, eventlogtest.Events(id, 1))[0]
}

// wantIDs reads the topic from its start.
func wantIDs(t *testing.T, l *mongolog.Log, want ...string) {
	t.Helper()
	got, err := l.Read(t.Context(), "orders", 0, 1, eventlog.Bounds{Events: 100})
	scanned, failed := l.Scan(t.Context(), "orders", eventlog.ScanQuery{}, eventlog.Bounds{Events: 100})
	if err = errors.Join(err, failed); err != nil || len(got) != len(want) || len(scanned) != len(want) {
		t.Fatalf("Read has %d events, Scan %d, %v; want %q", len(got), len(scanned), err, want)
	}
	for i, r := range got {
		if r.ID != want[i] {
			t.Errorf("Read: event %d is %q, want %q", i, r.ID, want[i])
		}
	}
}

// TestALateAppendBringsNothingBack checks that an append on its way to a deleted topic stores
// nothing in the topic that is made again.
func TestALateAppendBringsNothingBack(t *testing.T) {
	for _, command := range []string{"findAndModify", "insert"} {
		t.Run(command, func(t *testing.T) {
			withLateStore(t, func(t *testing.T, s *lateStore) {
				ensure(t, s.Log)
				appendOne(t, s.Log, "a")
				s.late(t, command, events, func(ctx context.Context) error {
					return s.Append(ctx, "orders", 0, eventlogtest.Events("late", 1))[0].Err
				})
				other := open(t, s.set, mongolog.Options{})
				remove(t, other)
				ensure(t, other)
				if out := appendOne(t, other, "b"); out.Err != nil || out.Seq <= 1 {
					t.Fatalf("%+v", out)
				}
				time.Sleep(2 * lateness)
				wantIDs(t, other, "b-000")
				wantIDs(t, s.Log, "b-000")
				if out := appendOne(t, s.Log, "late"); out.Err != nil || out.Duplicate {
					t.Errorf("published again: %+v", out)
				}
				wantIDs(t, other, "b-000", "late-000")
			})
		})
	}
}

// TestADeletionIsFoundOutElsewhere: a sidecar that knows a topic goes on right after another one
// has deleted it, and after it was made again.
func TestADeletionIsFoundOutElsewhere(t *testing.T) {
	withLateStore(t, func(t *testing.T, s *lateStore) {
		ensure(t, s.Log)
		appendOne(t, s.Log, "a")
		other := open(t, s.set, mongolog.Options{})
		knows := open(t, s.set, mongolog.Options{})
		for _, l := range []*mongolog.Log{other, knows} {
			if out := appendOne(t, l, "a"); !out.Duplicate {
				t.Fatalf("%+v", out)
			}
		}
		remove(t, other)
		if out := appendOne(t, s.Log, "x"); !errors.Is(out.Err, eventlog.ErrNotFound) || errors.Is(out.Err, eventlog.ErrUnavailable) {
			t.Errorf("Append to a topic that was deleted elsewhere: %+v; want ErrNotFound", out)
		}
		if _, err := knows.Extents(t.Context(), "orders"); !errors.Is(err, eventlog.ErrNotFound) {
			t.Errorf("Extents: %v; want ErrNotFound", err)
		}
		ensure(t, s.Log)
		if out := appendOne(t, s.Log, "a"); out.Err != nil || out.Duplicate {
			t.Errorf("the id is not free again: %+v", out)
		}
		for _, l := range []*mongolog.Log{other, knows} {
			if out := appendOne(t, l, "a"); !out.Duplicate {
				t.Errorf("published again elsewhere: %+v", out)
			}
			if _, err := l.Lookup(t.Context(), "orders", "a-000"); err != nil {
				t.Error(err)
			}
			wantIDs(t, l, "a-000")
		}
	})
}

// TestABrokenOffDeletionGoesOn breaks a deletion off at each of its requests. Then the topic is not
// there, no sidecar makes it again, and another deletion finishes.
func TestABrokenOffDeletionGoesOn(t *testing.T) {
	for _, lost := range []struct{ command, collection string }{{"update", topics}, {"update", events}, {"find", events}} {
		t.Run(lost.command+" "+lost.collection, func(t *testing.T) {
			withLateStore(t, func(t *testing.T, s *lateStore) {
				ensure(t, s.Log)
				for _, id := range []string{"a", "b", "c"} {
					appendOne(t, s.Log, id)
				}
				s.late(t, lost.command, lost.collection, func(ctx context.Context) error { return s.DeleteTopic(ctx, "orders") })
				other := open(t, s.set, mongolog.Options{})
				if _, err := other.EnsureTopic(t.Context(), "orders", 1); lost.collection == events && !errors.Is(err, eventlog.ErrDeleting) {
					t.Errorf("EnsureTopic: %v; want ErrDeleting", err)
				}
				remove(t, other)
				if err := other.DeleteTopic(t.Context(), "orders"); !errors.Is(err, eventlog.ErrNotFound) {
					t.Errorf("DeleteTopic again: %v; want ErrNotFound", err)
				}
				ensure(t, other)
				appendOne(t, other, "a")
				time.Sleep(2 * lateness) // the lost request is executed now
				wantIDs(t, other, "a-000")
				wantIDs(t, s.Log, "a-000")
			})
		})
	}
}

// A sidecar that knows an earlier generation of a topic finds an event of the later one, although
// the earlier one has a stub of its id.
func TestLookupFindsWhatWasPublishedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := mongomodel.New(mongomodel.Options{Members: 1, Polling: true})
		t.Cleanup(set.Close)
		l, other := open(t, set, mongolog.Options{}), open(t, set, mongolog.Options{})
		ensure(t, l)
		appendOne(t, l, "a")
		remove(t, other)
		ensure(t, other)
		want := appendOne(t, other, "a")
		if got, err := l.Lookup(t.Context(), "orders", "a-000"); err != nil || got.Seq != want.Seq {
			t.Errorf("Lookup = %v, %v; want seq %d", got, err, want.Seq)
		}
	})
}

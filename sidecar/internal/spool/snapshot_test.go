package spool_test

import (
	"context"
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/test/require"
)

// TestSnapshotThenLogMissesNothing: a replay of the whole fleet freezes the spool first and reads
// the log later, while events move from one to the other. It misses none of them.
func TestSnapshotThenLogMissesNothing(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(rt, t)
		defer w.store.Close()
		for range rapid.IntRange(0, 3).Draw(rt, "moves before") {
			w.move()
		}
		s, err := w.Snapshot(context.Background(), "t")
		require.NoError(rt, err)
		defer s.Close()
		got := map[string]bool{}
		read := func(from func(context.Context, string, eventlog.ScanQuery, eventlog.Bounds) ([]*eventlog.Record, error), spooled bool) {
			var q eventlog.ScanQuery
			for {
				w.move()
				page, err := from(context.Background(), "t", q, eventlog.Bounds{Events: 3})
				if err != nil && !errors.Is(err, eventlog.ErrNotFound) {
					rt.Fatal(err)
				}
				if len(page) == 0 {
					return
				}
				for _, r := range page {
					if r.Spooled != spooled || spooled && (r.Seq != 0 || r.Partition != 0) {
						rt.Fatalf("event %+v", r)
					}
					got[r.ID] = true
				}
				last := pointOf(page[len(page)-1])
				q.After = &last
			}
		}
		if rapid.Bool().Draw(rt, "the log first") {
			read(w.shared.Scan, false)
			read(s.Scan, true)
		} else {
			read(s.Scan, true)
			read(w.shared.Scan, false)
		}
		for id := range w.want {
			if !got[id] {
				rt.Fatalf("%q is in neither", id)
			}
		}
	})
}

func TestSnapshotOfATopicThatNeverWaited(t *testing.T) {
	within(t, standard, func(t *testing.T, f *fixture) {
		if _, err := f.Snapshot(t.Context(), "t"); !errors.Is(err, eventlog.ErrNotFound) {
			t.Errorf("%v", err)
		}
	})
}

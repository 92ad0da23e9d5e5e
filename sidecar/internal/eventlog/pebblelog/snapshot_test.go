package pebblelog

import (
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/eventlogtest"
	"github.com/sluice-bus/sluice/test/require"
)

// TestSnapshotKeepsWhatIsRemoved reads a snapshot page by page, with a key and without, both ways,
// while its events are truncated and others come.
func TestSnapshotKeepsWhatIsRemoved(t *testing.T) {
	l := mustOpen(t, Options{Dir: "data", FS: vfs.NewMem()})
	defer func() { l.Close() }()
	if _, err := l.Snapshot(t.Context(), "t"); !errors.Is(err, eventlog.ErrNotFound) {
		t.Errorf("of a topic that is not there: %v", err)
	}
	ensure(t, l, "t", 1)
	const n = 50
	head := appendAll(t, l, eventlogtest.Events("e", n, eventlogtest.Keyed("k")))
	s, err := l.Snapshot(t.Context(), "t")
	require.NoError(t, err)
	appendAll(t, l, eventlogtest.Events("later", n, eventlogtest.Keyed("k")))
	key := "k"
	for _, q := range []eventlog.ScanQuery{{}, {Descending: true}, {Key: &key}} {
		seen := map[string]bool{}
		for {
			page, err := s.Scan(t.Context(), "t", q, eventlog.Bounds{Events: 7})
			require.NoError(t, err)
			if len(page) == 0 {
				break
			}
			for _, r := range page {
				if seen[r.ID] || r.Seq > head {
					t.Fatalf("%+v: event %q with seq %d", q, r.ID, r.Seq)
				}
				seen[r.ID] = true
			}
			last := page[len(page)-1]
			q.After = &eventlog.Point{TS: last.TS, ID: last.ID}
			require.NoError(t, l.Truncate(t.Context(), "t", 0, head))
		}
		if len(seen) != n {
			t.Errorf("%+v: %d of %d events", q, len(seen), n)
		}
	}
	if _, err := s.Scan(t.Context(), "other", eventlog.ScanQuery{}, everything); !errors.Is(err, eventlog.ErrNotFound) {
		t.Errorf("another topic: %v", err)
	}
	s.Close()
	s.Close()
	if _, err := s.Scan(t.Context(), "t", eventlog.ScanQuery{}, everything); !errors.Is(err, eventlog.ErrUnavailable) {
		t.Errorf("closed: %v", err)
	}
}

// TestCloseEndsSnapshots closes a log of which somebody still has a snapshot.
func TestCloseEndsSnapshots(t *testing.T) {
	l := mustOpen(t, Options{Dir: "data", FS: vfs.NewMem()})
	ensure(t, l, "t", 1)
	appendAll(t, l, eventlogtest.Events("e", 3))
	s, err := l.Snapshot(t.Context(), "t")
	require.NoError(t, err)
	if err := l.Close(); err != nil {
		t.Errorf("closing with a snapshot: %v", err)
	}
	if _, err := s.Scan(t.Context(), "t", eventlog.ScanQuery{}, everything); !errors.Is(err, eventlog.ErrUnavailable) {
		t.Errorf("after the log: %v", err)
	}
	s.Close()
}

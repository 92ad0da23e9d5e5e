package pebblelog

import (
	"testing"

	"github.com/cockroachdb/pebble/v2"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/test/figures"
	"github.com/sluice-bus/sluice/test/require"
)

// TestCostOfAnEvent is what the log allocates and writes for an event of about 300 bytes.
func TestCostOfAnEvent(t *testing.T) {
	for name, size := range map[string]int{"embedded log, one by one": 1, "embedded log, in batches of 100": 100} {
		const events = 5000
		var l *Log
		store := func() {
			for n := 0; n < events; n += size {
				batch := make([]*eventlog.Record, size)
				for i := range batch {
					batch[i] = benchRecord(int64(n+i), true)
				}
				for _, o := range l.Append(t.Context(), "t", 0, batch) {
					require.NoError(t, o.Err)
				}
			}
		}
		figures.Allocations(t, name, events, func() func() {
			fresh := mustOpen(t, Options{InMemory: true})
			t.Cleanup(func() { fresh.Close() })
			ensure(t, fresh, "t", 1)
			l = fresh
			return store
		})
		keys, indexed := indexOf(t, l)
		figures.Compare(t, name+": keys in the index of an event", keys/events)
		figures.Compare(t, name+": bytes in the index of an event", indexed/events)
		figures.Compare(t, name+": bytes in the journal of an event", journaled(l)/events)
	}
}

// indexOf counts the entries of the index, and their bytes.
func indexOf(t *testing.T, l *Log) (keys, bytes float64) {
	all, err := l.db.NewIter(&pebble.IterOptions{})
	require.NoError(t, err)
	for all.First(); all.Valid(); all.Next() {
		keys, bytes = keys+1, bytes+float64(len(all.Key())+len(all.Value()))
	}
	require.NoError(t, all.Close())
	return keys, bytes
}

// journaled is how many bytes the journal has.
func journaled(l *Log) (bytes float64) {
	files, _ := l.journal.Files()
	for _, f := range files {
		bytes += float64(f.Size)
	}
	return bytes
}

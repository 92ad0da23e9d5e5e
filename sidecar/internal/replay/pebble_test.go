package replay

import (
	"fmt"
	"log/slog"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/pebblelog"
	"github.com/sluice-bus/sluice/test/require"
)

// embedded is the embedded log in memory, with the events in its topic orders.
func embedded(t testing.TB, events []*eventlog.Record) eventlog.Log {
	t.Helper()
	const partitions = 4
	log, err := pebblelog.Open(pebblelog.Options{Dir: "data", FS: vfs.NewMem(), Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() {
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	})
	if _, err := log.EnsureTopic(t.Context(), "orders", partitions); err != nil {
		t.Fatal(err)
	}
	batches := make([][]*eventlog.Record, partitions)
	for _, r := range events {
		p := eventlog.PartitionOf(r.Key, r.ID, partitions)
		batches[p] = append(batches[p], r)
	}
	for p, batch := range batches {
		for part := range slices.Chunk(batch, 1000) {
			for _, o := range log.Append(t.Context(), "orders", p, part) {
				if o.Err != nil {
					t.Fatal(o.Err)
				}
			}
		}
	}
	return log
}

// TestOnTheEmbeddedLog reads a whole topic by pages and by export, both ways round and with a key,
// from the log that a sidecar has.
func TestOnTheEmbeddedLog(t *testing.T) {
	events := many(3000, 20) // ten share each ts
	for i, r := range events {
		if i%3 == 0 {
			r.Key = "k"
		}
	}
	h := newHandler(embedded(t, slices.Clone(events)))
	for _, key := range []string{"", "k"} {
		for _, order := range []string{orderAsc, orderDesc} {
			var want, got []string
			for _, r := range events {
				if key == "" || r.Key == key {
					want = append(want, r.ID)
				}
			}
			if order == orderDesc {
				slices.Reverse(want)
			}
			params := values("topic", "orders", "order", order, "limit", "37")
			export := "/export?topic=orders"
			if key != "" {
				params.Set("key", key)
				export += "&key=" + key
			}
			for {
				p := replayPage(t, h, params)
				got = append(got, p.ids()...)
				if p.Next == nil {
					break
				}
				params.Set("cursor", *p.Next)
			}
			equalIDs(t, fmt.Sprintf("replay %s, key %q", order, key), got, want)
			if order == orderAsc {
				equalIDs(t, "export, key "+key, lineIDs(t, get(h, export).Body), want)
			}
		}
	}
	if w := get(h, "/replay?topic=orders&from=afterId&afterId=none"); w.Code != 404 {
		t.Errorf("unknown afterId: %d", w.Code)
	}
	if w := get(h, "/replay?topic=other"); w.Code != 200 {
		t.Errorf("unknown topic: %d", w.Code)
	}
}

// BenchmarkExportEmbedded compares an export with a raw scan of the same log.
func BenchmarkExportEmbedded(b *testing.B) {
	const events = 100_000
	log := embedded(b, many(events, 250))
	b.Run("scan", func(b *testing.B) {
		for b.Loop() {
			var q eventlog.ScanQuery
			for {
				page, err := log.Scan(b.Context(), "orders", q, eventlog.Bounds{Events: pageEvents, Bytes: pageBytes})
				require.NoError(b, err)
				if len(page) == 0 {
					break
				}
				last := pointOf(page[len(page)-1])
				q.After = &last
			}
		}
		b.ReportMetric(float64(events*b.N)/b.Elapsed().Seconds(), "events/s")
	})
	b.Run("export", func(b *testing.B) {
		h := newHandler(log)
		r := httptest.NewRequest("GET", "/export?topic=orders", nil)
		for b.Loop() {
			h.ServeHTTP(&sink{header: r.Header.Clone()}, r)
		}
		b.ReportMetric(float64(events*b.N)/b.Elapsed().Seconds(), "events/s")
	})
}

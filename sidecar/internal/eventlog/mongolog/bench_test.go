package mongolog

import (
	"fmt"
	"sync/atomic"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/eventlogtest"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/core"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/document"
	"github.com/sluice-bus/sluice/test/mongotest"
	"github.com/sluice-bus/sluice/test/require"
)

// BenchmarkAppend compares appending through the log with ordered insertMany of the same documents
// into a collection with the same indexes, at the same write concern, and with one insertOne per
// event.
func BenchmarkAppend(b *testing.B) {
	s := mongotest.Shared(b)
	for _, size := range []int{100, 1000} {
		b.Run(fmt.Sprintf("log, batches of %d", size), func(b *testing.B) {
			l := benchLog(b, s)
			n := 0
			for b.Loop() {
				b.StopTimer()
				batch := benchEvents(&n, size)
				b.StartTimer()
				for _, o := range l.Append(b.Context(), "t", 0, batch) {
					if o.Err != nil {
						b.Fatal(o.Err)
					}
				}
			}
			perSecond(b, n)
		})
		b.Run(fmt.Sprintf("insertMany, batches of %d", size), func(b *testing.B) {
			l := benchLog(b, s)
			events := benchCollection(b, l)
			n := 0
			for b.Loop() {
				b.StopTimer()
				docs := benchDocuments(b, l, &n, size)
				b.StartTimer()
				if _, err := events.InsertMany(b.Context(), docs); err != nil {
					b.Fatal(err)
				}
			}
			perSecond(b, n)
		})
	}
	b.Run("insertOne, 64 at once", func(b *testing.B) {
		l := benchLog(b, s)
		events := benchCollection(b, l)
		n := 0
		docs := benchDocuments(b, l, &n, b.N)
		var next atomic.Int64
		b.SetParallelism(64)
		b.ResetTimer()
		b.RunParallel(func(p *testing.PB) {
			for p.Next() {
				if _, err := events.InsertOne(b.Context(), docs[next.Add(1)-1]); err != nil {
					b.Error(err)
				}
			}
		})
		perSecond(b, n)
	})
}

func perSecond(b *testing.B, events int) {
	b.ReportMetric(float64(events)/b.Elapsed().Seconds(), "events/s")
}

func benchLog(b *testing.B, s *mongotest.Server) *Log {
	b.Helper()
	l := mustOpen(b, Options{URL: s.URI(s.NewDatabase(b)), Timeout: testTimeout})
	ensure(b, l, "t", 1)
	return l
}

// benchCollection is where the log keeps its events, as the log writes them.
func benchCollection(b *testing.B, l *Log) *mongo.Collection {
	b.Helper()
	require.NoError(b, l.Ping(b.Context()))
	return l.store.Written(core.Events, core.MajorityWrites)
}

// benchEvents makes the next events, of about 300 bytes.
func benchEvents(n *int, size int) []*eventlog.Record {
	batch := make([]*eventlog.Record, size)
	for i := range batch {
		*n++
		batch[i] = eventlogtest.Event(fmt.Sprintf("0198a6a0-0000-7000-8000-%012d", *n),
			eventlogtest.Keyed(fmt.Sprintf("customer-%d", *n%100)),
			eventlogtest.Payload(`{"order":"A-1000042","amount":129.95,"currency":"EUR","items":[{"sku":"x-17","count":2},{"sku":"y4","count":1}]}`))
	}
	return batch
}

func benchDocuments(b *testing.B, l *Log, n *int, size int) []any {
	b.Helper()
	seq := *n
	docs := make([]any, 0, size)
	for _, r := range benchEvents(n, size) {
		seq++
		r.Seq = uint64(seq)
		raw, err := document.Append(nil, "t", 0, r, 1)
		require.NoError(b, err)
		docs = append(docs, bson.Raw(raw))
	}
	return docs
}

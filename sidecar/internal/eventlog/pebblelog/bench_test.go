package pebblelog

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/test/require"
)

// benchRecord is an event of about 300 bytes with a new id that rises, as a UUIDv7 does.
func benchRecord(n int64, fresh bool) *eventlog.Record {
	r := &eventlog.Record{AcceptedAt: 1_723_140_000_000 + n/1000, FreshID: fresh}
	r.ID = fmt.Sprintf("0197c0de-%012x-7000-8000", n)
	if fresh {
		r.ID = eventlog.NewTimedID(r.AcceptedAt)
	}
	r.TS = r.AcceptedAt
	r.Payload = []byte(`{"customer":"customer-17","amount":"12.50","text":"` + strings.Repeat("x", 200) + `"}`)
	return r
}

const benchPartitions = 8

func benchLog(b *testing.B) *Log {
	b.Helper()
	l := mustOpen(b, Options{Dir: b.TempDir()})
	b.Cleanup(func() { l.Close() })
	ensure(b, l, "t", benchPartitions)
	return l
}

func benchAppend(b *testing.B, size int, fresh bool) {
	l := benchLog(b)
	var n atomic.Int64
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			batch := make([]*eventlog.Record, size)
			var last int64
			for i := range batch {
				last = n.Add(1)
				batch[i] = benchRecord(last, fresh)
			}
			for _, o := range l.Append(context.Background(), "t", int(last)%benchPartitions, batch) {
				if o.Err != nil {
					b.Error(o.Err)
					return
				}
			}
		}
	})
	b.ReportMetric(float64(b.N*size)/b.Elapsed().Seconds(), "events/s")
}

func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{1, 100, 1000} {
		for _, fresh := range []bool{true, false} {
			for _, writers := range []int{1, 16, 64} {
				if size > 1 && writers > 16 {
					continue
				}
				b.Run(fmt.Sprintf("batch=%d/fresh=%v/writers=%d", size, fresh, writers), func(b *testing.B) {
					b.SetParallelism(max(1, writers/2)) // times GOMAXPROCS
					benchAppend(b, size, fresh)
				})
			}
		}
	}
}

// filled is a log with a topic of many events, compacted as it would be after a while.
func filled(b *testing.B, events int) *Log {
	l := benchLog(b)
	const size = 1000
	for n := 0; n < events; n += size {
		batch := make([]*eventlog.Record, size)
		for i := range batch {
			batch[i] = benchRecord(int64(n+i), true)
		}
		l.Append(b.Context(), "t", n/size%benchPartitions, batch)
	}
	require.NoError(b, l.db.Flush())
	return l
}

func BenchmarkRead(b *testing.B) {
	const events = 200_000
	l := filled(b, events)
	for b.Loop() {
		for p := range benchPartitions {
			for next := uint64(1); ; {
				page, err := l.Read(b.Context(), "t", p, next, eventlog.Bounds{Events: 1000})
				require.NoError(b, err)
				if len(page) == 0 {
					break
				}
				next = page[len(page)-1].Seq + 1
			}
		}
	}
	b.ReportMetric(float64(b.N*events)/b.Elapsed().Seconds(), "events/s")
}

func BenchmarkScan(b *testing.B) {
	const events = 200_000
	l := filled(b, events)
	for b.Loop() {
		q, n := eventlog.ScanQuery{}, 0
		for {
			page, err := l.Scan(b.Context(), "t", q, eventlog.Bounds{Events: 1000})
			require.NoError(b, err)
			if len(page) == 0 {
				break
			}
			n += len(page)
			last := page[len(page)-1]
			q.After = &eventlog.Point{TS: last.TS, ID: last.ID}
		}
		if n != events {
			b.Fatalf("%d events", n)
		}
	}
	b.ReportMetric(float64(b.N*events)/b.Elapsed().Seconds(), "events/s")
}

// BenchmarkSave saves one epoch of about 150 bytes at a time while others sync without rest, append
// without rest, or both.
func BenchmarkSave(b *testing.B) {
	for _, beside := range []struct{ syncs, appends bool }{{false, false}, {true, false}, {true, true}} {
		b.Run(fmt.Sprintf("syncs=%v/appends=%v", beside.syncs, beside.appends), func(b *testing.B) {
			l := benchLog(b)
			e := eventlog.Epoch{GroupPartition: eventlog.GroupPartition{Topic: "t", Group: "group"}, Number: 1,
				Owner: "0197c0de-0000-7000-8000-000000000000"}
			require.NoError(b, l.TakeEpochs(b.Context(), []eventlog.Epoch{e})[0])
			for i := range uint64(20) {
				e.Progress.Attempts = append(e.Progress.Attempts,
					eventlog.AttemptRange{SeqRange: eventlog.SeqRange{First: 3 * i, Last: 3*i + 1}, Attempts: 1})
			}
			var stop atomic.Bool
			var saved atomic.Uint64
			var work sync.WaitGroup
			syncs, appends := 0, 0
			if beside.syncs {
				work.Go(func() {
					for synced := uint64(0); !stop.Load(); {
						upTo := saved.Load()
						if upTo == synced {
							runtime.Gosched()
							continue
						}
						if err := l.Sync(context.Background()); err != nil {
							b.Error(err)
						}
						synced = upTo
						syncs++
					}
				})
			}
			if beside.appends {
				work.Go(func() {
					for ; !stop.Load(); appends++ {
						l.Append(context.Background(), "t", 0, []*eventlog.Record{benchRecord(int64(appends), true)})
					}
				})
			}
			var took []time.Duration
			for b.Loop() {
				e.Progress.Cursor++
				began := time.Now()
				require.NoError(b, l.SaveEpochs(context.Background(), []eventlog.Epoch{e}, nil))
				took = append(took, time.Since(began))
				saved.Add(1)
			}
			stop.Store(true)
			work.Wait()
			slices.Sort(took)
			for _, percent := range []int{50, 99} {
				b.ReportMetric(float64(took[len(took)*percent/100].Nanoseconds())/1000, fmt.Sprintf("p%d-µs", percent))
			}
			b.ReportMetric(float64(syncs)/b.Elapsed().Seconds(), "syncs/s")
			b.ReportMetric(float64(appends)/b.Elapsed().Seconds(), "appends/s")
		})
	}
}

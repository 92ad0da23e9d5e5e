package spool_test

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"testing"

	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/pebblelog"
	"github.com/sluice-bus/sluice/sidecar/internal/spool"
	"github.com/sluice-bus/sluice/test/require"
)

// fastLog answers at once, and keeps nothing.
type fastLog struct {
	away bool
	outs []eventlog.Outcome // of an append; nil: new ones each time
}

func (f *fastLog) EnsureTopic(_ context.Context, name string, partitions int) (eventlog.Topic, error) {
	if f.away {
		return eventlog.Topic{}, errDown
	}
	return eventlog.Topic{Name: name, Partitions: partitions}, nil
}

func (f *fastLog) Append(_ context.Context, _ string, partition int, batch []*eventlog.Record) []eventlog.Outcome {
	if f.outs != nil {
		return f.outs[:len(batch)]
	}
	outs := make([]eventlog.Outcome, len(batch))
	for i := range outs {
		outs[i] = eventlog.Outcome{Partition: partition, Seq: uint64(i + 1), TS: 1}
	}
	return outs
}

// newBench is a spool on a real disk before a log.
func newBench(b testing.TB, log *fastLog) *spool.Log {
	b.Helper()
	l, _ := newBenchOn(b, log)
	return l
}

func newBenchOn(b testing.TB, log *fastLog) (*spool.Log, spool.Config) {
	b.Helper()
	store, err := pebblelog.Open(pebblelog.Options{Dir: b.TempDir(), Logger: slog.New(slog.DiscardHandler)})
	require.NoError(b, err)
	b.Cleanup(func() { store.Close() })
	cfg := spool.Config{
		Log: log, Store: store, Logger: slog.New(slog.DiscardHandler),
		Ping:     func(context.Context) error { return nil },
		StoreID:  func() string { return "one" },
		Policies: policy.NewCurrent(snapshot(b, `[{name: "*", partitions: 8, durability: {spool_max_bytes: 0}}]`)),
		Announce: func(string, int, []*eventlog.Record) {},
	}
	l, err := spool.Open(context.Background(), cfg)
	require.NoError(b, err)
	if _, err := l.EnsureTopic(context.Background(), "t", 8); err != nil {
		b.Fatal(err)
	}
	return l, cfg
}

// batchOf makes n events of 1 KB.
func batchOf(partition, first, n int) []*eventlog.Record {
	payload := fmt.Appendf(nil, `"%01000d"`, 0)
	recs := make([]*eventlog.Record, n)
	for i := range recs {
		recs[i] = &eventlog.Record{Event: wire.Event{
			ID: fmt.Sprintf("%d-%09d", partition, first+i), TS: 1, Topic: "t", Key: fmt.Sprint(partition), Payload: payload,
		}, FreshID: true}
	}
	return recs
}

// BenchmarkDirect measures what the wrapper adds to an append that the store answers: compare the
// two.
func BenchmarkDirect(b *testing.B) {
	for _, n := range []int{1, 100} {
		log := &fastLog{outs: make([]eventlog.Outcome, n)}
		l := newBench(b, log)
		batch := batchOf(0, 0, n)
		for name, appender := range map[string]eventlog.Appender{"log": log, "spool": l} {
			b.Run(fmt.Sprintf("%s/batch=%d", name, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					appender.Append(context.Background(), "t", 0, batch)
				}
			})
		}
	}
}

// TestDirectCostsNoAllocation checks that the wrapper allocates nothing beside the log's own
// append.
func TestDirectCostsNoAllocation(t *testing.T) {
	log := &fastLog{outs: make([]eventlog.Outcome, 10)}
	l, batch := newBench(t, log), batchOf(0, 0, 10)
	if n := testing.AllocsPerRun(100, func() { l.Append(context.Background(), "t", 0, batch) }); n > 0 {
		t.Errorf("%v allocations for each batch", n)
	}
}

// BenchmarkSpooled measures how much eight publishers get into the spool, with fsync, while the
// store is away.
func BenchmarkSpooled(b *testing.B) {
	for _, n := range []int{1, 100} {
		b.Run(fmt.Sprintf("batch=%d", n), func(b *testing.B) {
			log := &fastLog{away: true}
			l := newBench(b, log)
			spoolEvents(b, l, b.N, n)
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
		})
	}
}

// spoolEvents publishes that many events to eight partitions.
func spoolEvents(b *testing.B, l *spool.Log, events, batch int) {
	var publishers sync.WaitGroup
	for partition := range 8 {
		publishers.Go(func() {
			for first := partition * batch; first < events; first += 8 * batch {
				for _, out := range l.Append(context.Background(), "t", partition, batchOf(partition, first, min(batch, events-first))) {
					if out.Err != nil || !out.Spooled {
						b.Errorf("outcome %+v", out)
					}
				}
			}
		})
	}
	publishers.Wait()
}

// BenchmarkDrain is how fast the spool empties into a log that takes no time.
func BenchmarkDrain(b *testing.B) {
	log := &fastLog{away: true}
	l := newBench(b, log)
	spoolEvents(b, l, b.N, 100)
	log.away = false
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	b.ResetTimer()
	running.Go(func() { _ = l.Run(ctx, nil) })
	for l.Stats().Events > 0 {
		runtime.Gosched()
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
	cancel()
	running.Wait()
}

// BenchmarkOpen is how fast a start counts the events that an earlier run has left.
func BenchmarkOpen(b *testing.B) {
	l, cfg := newBenchOn(b, &fastLog{away: true})
	spoolEvents(b, l, b.N, 100)
	b.ResetTimer()
	again, err := spool.Open(context.Background(), cfg)
	b.StopTimer()
	if err != nil || again.Stats().Bytes != l.Stats().Bytes {
		b.Errorf("%+v, %v; want %+v", again.Stats(), err, l.Stats())
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
}

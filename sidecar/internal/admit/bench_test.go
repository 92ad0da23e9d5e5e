package admit_test

import (
	"context"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/admit"
	"github.com/sluice-bus/sluice/sidecar/internal/tracing/tracingtest"
	"github.com/sluice-bus/sluice/sidecar/internal/writer"
	"github.com/sluice-bus/sluice/test/figures"
)

// generous are limits that are there and never reached.
const generous = `[{name: "*", connection: {rate: 1e9, burst: 1000000000}, ` +
	`publish: {rate: 1e9, burst: 1000000000, bytes_per_second: 1000000000000}}]`

// BenchmarkPublish measures the sidecar's own stages on a log that answers at once: one publish at
// a time, until its answer.
func BenchmarkPublish(b *testing.B) {
	for _, bench := range []struct {
		name   string
		events int
	}{{"single", 1}, {"batch-1000", 1000}} {
		b.Run(bench.name, func(b *testing.B) {
			f := newFixture(b, generous, &fakeLog{forget: true}, writer.DefaultBounds())
			batch := items("a", bench.events)
			answered := make(chan struct{}, 1)
			done := func([]wire.ResultItem) { answered <- struct{}{} }
			b.ReportAllocs()
			for b.Loop() {
				if err := f.Publish(b.Context(), f.conn, batch, done); err != nil {
					b.Fatal(err)
				}
				<-answered
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*bench.events), "ns/event")
		})
	}
	b.Run("pipelined", func(b *testing.B) {
		f := newFixture(b, generous, &fakeLog{forget: true}, writer.DefaultBounds())
		batch := items("a", 1)
		window := make(chan struct{}, 1000)
		done := func([]wire.ResultItem) { <-window }
		b.ReportAllocs()
		for b.Loop() {
			window <- struct{}{}
			if err := f.Publish(b.Context(), f.conn, batch, done); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkPublishTraced measures the cost of tracing a publish, by the share of traces that are
// recorded. The exporter discards the spans.
func BenchmarkPublishTraced(b *testing.B) {
	for _, bench := range []struct {
		name    string
		sampler sdktrace.Sampler // nil: off
		parent  string
	}{
		{"off", nil, sampled},
		{"parent-not-recorded", sdktrace.ParentBased(sdktrace.AlwaysSample()), unsampled},
		{"roots-1%", sdktrace.ParentBased(sdktrace.TraceIDRatioBased(0.01)), ""},
		{"roots-100%", sdktrace.ParentBased(sdktrace.AlwaysSample()), ""},
		{"parent-recorded", sdktrace.ParentBased(sdktrace.AlwaysSample()), sampled},
	} {
		b.Run(bench.name, func(b *testing.B) {
			log := &fakeLog{forget: true}
			tr := tracingtest.Discard(b, bench.sampler)
			f := newFixture(b, generous, log, writer.DefaultBounds(), func(f *fixture, cfg *admit.Config) {
				f.writer.Stop(context.Background())
				f.writer = writer.New(writer.Config{Log: log, Bounds: writer.DefaultBounds(), Tracing: tr})
				cfg.Writer, cfg.Tracing = f.writer, tr
			})
			one := item("a", "")
			if bench.parent != "" {
				one = from(bench.parent, one)
			}
			window := make(chan struct{}, 1000)
			done := func([]wire.ResultItem) { <-window }
			batch := []wire.PublishItem{one}
			b.ReportAllocs()
			for b.Loop() {
				window <- struct{}{}
				if err := f.Publish(b.Context(), f.conn, batch, done); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestCostOfAPublish is of the sidecar's own stages, on a log that answers at once.
func TestCostOfAPublish(t *testing.T) {
	for name, size := range map[string]int{"publish, one by one": 1, "publish, in batches of 100": 100} {
		const events = 10_000
		figures.Allocations(t, name, events, func() func() {
			f := newFixture(t, generous, &fakeLog{forget: true}, writer.DefaultBounds())
			batch, answered := items("a", size), make(chan struct{}, 1)
			done := func([]wire.ResultItem) { answered <- struct{}{} }
			publish := func() {
				if err := f.Publish(t.Context(), f.conn, batch, done); err != nil {
					t.Fatal(err)
				}
				<-answered
			}
			publish() // makes the topic
			return func() {
				for range events / size {
					publish()
				}
			}
		})
	}
}

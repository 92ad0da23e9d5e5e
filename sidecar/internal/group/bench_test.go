package group

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/roster"
	"github.com/sluice-bus/sluice/sidecar/internal/telemetry"
	"github.com/sluice-bus/sluice/sidecar/internal/tracing"
	"github.com/sluice-bus/sluice/sidecar/internal/tracing/tracingtest"
	"github.com/sluice-bus/sluice/test/figures"
	"github.com/sluice-bus/sluice/test/require"
)

// ackSink acks all deliveries in batches, as a fast consumer does.
type ackSink struct {
	acks chan []string
	left atomic.Int64
	done chan struct{}
}

func (s *ackSink) Room() bool { return true }

func (s *ackSink) Deliver(ds []Delivery) {
	ids := make([]string, len(ds))
	for i, d := range ds {
		ids[i] = d.Record.ID
	}
	s.acks <- ids
	if s.left.Add(-int64(len(ds))) == 0 {
		close(s.done)
	}
}

// BenchmarkConsumeAndAck is one member on a log in memory whose saves take no time. An op is an
// event.
func BenchmarkConsumeAndAck(b *testing.B) {
	for name, c := range map[string]struct {
		window, keys int
	}{
		"window100":       {100, 0},
		"window1000":      {1000, 0},
		"window1000keyed": {1000, 5000},
	} {
		b.Run(name, func(b *testing.B) {
			benchConsume(b, inWindow(c.window), nil, func(i int, rec *eventlog.Record) {
				if c.keys > 0 {
					rec.Key = fmt.Sprint("k", i%c.keys)
				}
			})
		})
	}
}

func inWindow(n int) func(*policy.Effective) {
	return func(p *policy.Effective) { p.Delivery.MaxInflight = n }
}

// BenchmarkConsumeAndAckTraced is the same with spans, which are gathered for an exporter that
// throws them away.
func BenchmarkConsumeAndAckTraced(b *testing.B) {
	always := sdktrace.ParentBased(sdktrace.AlwaysSample())
	for _, c := range []struct {
		name    string
		sampler sdktrace.Sampler // nil: off
		parent  string
	}{
		{"off", nil, recorded},
		{"not-recorded", always, notRecorded},
		{"1%", sdktrace.TraceIDRatioBased(0.01), "of many traces"},
		{"100%", always, recorded},
	} {
		b.Run(c.name, func(b *testing.B) {
			benchConsume(b, inWindow(1000), tracingtest.Discard(b, c.sampler), traced(c.parent))
		})
	}
}

// traced gives event i the parent.
func traced(parent string) func(i int, rec *eventlog.Record) {
	return func(i int, rec *eventlog.Record) {
		if parent == "of many traces" {
			rec.Headers = wire.Headers{{Name: "traceparent", Value: fmt.Sprintf("00-%032x-b7ad6b7169203331-01", uint64(i)*0x9e3779b97f4a7c15)}}
		} else {
			rec.Headers = wire.Headers{{Name: "traceparent", Value: parent}}
		}
	}
}

// benchConsume consumes b.N events, which fill completes.
func benchConsume(b *testing.B, change func(*policy.Effective), tr *tracing.Tracing, fill func(i int, rec *eventlog.Record)) {
	consume := prepareToConsume(b, b.N, change, tr, fill)
	b.ReportAllocs()
	b.ResetTimer()
	consume()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
}

// prepareToConsume stores n events, which fill completes, and subscribes a member. What it returns consumes and acks all.
func prepareToConsume(
	b testing.TB, n int, change func(*policy.Effective), tr *tracing.Tracing, fill func(i int, rec *eventlog.Record),
) (consume func()) {
	log := newFakeLog()
	eff := policy.Defaults()
	change(&eff)
	m := NewManager(Config{
		Context: context.Background(), Log: log, Tails: log.tails,
		Policy:      func(string) *policy.Effective { return &eff },
		DeadLetters: &fakeDeadLetters{}, Metrics: telemetry.Discard(), Roster: roster.Alone("node"),
		Tracing: tr, Logger: slog.New(slog.DiscardHandler), Bounds: DefaultBounds(),
	})
	b.Cleanup(func() { _ = m.Stop(context.Background()) })
	_, _ = log.EnsureTopic(b.Context(), topic, 8)
	for i := range n {
		rec := record(fmt.Sprint("e", i), "")
		fill(i, rec)
		log.append(topic, rec)
	}
	sink := &ackSink{acks: make(chan []string, eff.Delivery.MaxInflight+1), done: make(chan struct{})}
	sink.left.Store(int64(n))
	member, err := m.Subscribe(b.Context(), Subscription{
		Topic: topic, Group: "g", Sink: sink, Pacer: &fakePacer{}, Options: wire.SubscribeOptions{From: wire.FromEarliest},
	})
	require.NoError(b, err)
	return func() {
		member.Start()
		for {
			select {
			case ids := <-sink.acks:
				member.Ack(ids, func(error) {})
			case <-sink.done:
				return
			}
		}
	}
}

// TestCostOfDeliveryAndAck is of a group alone, on a log in memory.
func TestCostOfDeliveryAndAck(t *testing.T) {
	const events = 20_000
	for name, keys := range map[string]int{"delivery and ack": 0, "delivery and ack in order of 5,000 keys": 5000} {
		figures.Allocations(t, name, events, func() func() {
			return prepareToConsume(t, events, inWindow(1000), nil, func(i int, rec *eventlog.Record) {
				if keys > 0 {
					rec.Key = fmt.Sprint("k", i%keys)
				}
			})
		})
	}
}

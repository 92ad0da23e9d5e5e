package admit_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/admit"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/tracing/tracingtest"
	"github.com/sluice-bus/sluice/sidecar/internal/writer"
	"github.com/sluice-bus/sluice/test/require"
)

// traced is a fixture whose spans are recorded.
func traced(t testing.TB, log *fakeLog, sampler sdktrace.Sampler, ratio float64) (*fixture, *tracingtest.Recorder) {
	rec := tracingtest.New(t, sampler, ratio)
	f := newFixture(t, small, log, writer.DefaultBounds(), func(f *fixture, cfg *admit.Config) {
		f.writer.Stop(context.Background())
		f.writer = writer.New(writer.Config{Log: log, Bounds: writer.DefaultBounds(), Tracing: rec.Tracing})
		cfg.Writer, cfg.Tracing = f.writer, rec.Tracing
	})
	return f, rec
}

// from is an item of a publisher with a trace of its own.
func from(traceparent string, it wire.PublishItem) wire.PublishItem {
	it.Event.Headers = wire.Headers{{Name: "a", Value: "1"}, {Name: "traceparent", Value: traceparent}, {Name: "tracestate", Value: "x=y"},
		{Name: "baggage", Value: "b=c"}}
	return it
}

const (
	sampled   = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	unsampled = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
)

// wantTree compares, once the writer's last span has ended.
func (f *fixture) wantTree(t *testing.T, rec *tracingtest.Recorder, want string, attributes ...string) {
	t.Helper()
	f.writer.Stop(context.Background())
	if got := rec.Tree(attributes...); got != want {
		t.Errorf("the spans are\n%s, want\n%s", got, want)
	}
}

func TestSpansOfOnePublish(t *testing.T) {
	f, rec := traced(t, &fakeLog{}, nil, 1)
	sent := from(sampled, item("orders", "1"))
	f.publish(t, sent)
	f.wantTree(t, rec, `b7ad6b7169203331: send orders producer system=sluice type=send name=send name=orders id=1 seq=9 durability=store
  append orders internal system=sluice name=orders message_count=1 -> send orders
`, "messaging.system", "messaging.operation.type", "messaging.operation.name", "messaging.destination.name", "messaging.message.id",
		"messaging.batch.message_count", "sluice.seq", "sluice.durability", "sluice.duplicate")

	span := rec.Named("send orders")[0].SpanContext
	stored := f.log.records[0].Headers
	want := fmt.Sprintf("[{a 1} {traceparent 00-%s-%s-01} {tracestate x=y} {baggage b=c}]", span.TraceID(), span.SpanID())
	if fmt.Sprint(stored) != want {
		t.Errorf("stored with %v, want %v", stored, want)
	}
	if h, _ := sent.Event.Headers.Get("traceparent"); h != sampled {
		t.Errorf("the publisher's own headers were changed: %s", h)
	}
}

func TestSpanOfATraceThatBeginsHere(t *testing.T) {
	f, rec := traced(t, &fakeLog{}, nil, 1)
	broken := item("orders", "2")
	broken.Event.Headers = wire.Headers{{Name: "traceparent", Value: "00-1-2-01"}, {Name: "tracestate", Value: "of=that"}}
	f.publish(t, item("orders", "1"), broken)
	f.writer.Stop(t.Context())
	stored := make(map[string]bool) // in whichever order: their partitions differ
	for _, r := range f.log.records {
		stored[fmt.Sprint(r.Headers)] = true
	}
	spans := rec.Named("send orders")
	if len(spans) != 2 || len(stored) != 2 {
		t.Fatalf("%d spans, stored with %v", len(spans), stored)
	}
	for _, span := range spans {
		if span.Parent.SpanID().IsValid() {
			t.Errorf("%s has the parent %s", span.Name, span.Parent.SpanID())
		}
		if want := fmt.Sprintf("[{traceparent 00-%s-%s-01}]", span.SpanContext.TraceID(), span.SpanContext.SpanID()); !stored[want] {
			t.Errorf("stored with %v, want %s", stored, want)
		}
	}
}

func TestSpansOfABatch(t *testing.T) {
	log := &fakeLog{gate: make(chan struct{}), begun: make(chan struct{}, 2)}
	f, rec := traced(t, log, nil, 1)
	first := f.start(t.Context(), keyed("k", from(unsampled, item("orders", "0"))))
	<-log.begun // so the others wait for the next batch
	rest := f.start(t.Context(), keyed("k", from(sampled, item("orders", "1"))), keyed("k", item("orders", "conflict-2")),
		keyed("k", from(unsampled, item("orders", "3"))), keyed("k", item("orders", "duplicate-4")), keyed("k", item("orders", "spooled-5")))
	close(log.gate)
	first.ok(t)
	if got := strings.Join(words(rest.ok(t)), " "); got != "ok conflict ok duplicate ok" {
		t.Error(got)
	}
	f.wantTree(t, rec, `b7ad6b7169203331: send orders producer id=1 seq=9 durability=store
  append orders internal message_count=5 refused=1 -> send orders, send orders, send orders, send orders
send orders producer id=conflict-2 type=conflict Error: id "conflict-2" is already stored with other content at seq 7
send orders producer id=duplicate-4 seq=3 duplicate=true durability=store
send orders producer id=spooled-5 durability=spool
`, "messaging.message.id", "messaging.batch.message_count", "sluice.batch.refused", "error.type", "sluice.seq", "sluice.duplicate", "sluice.durability")
}

func keyed(key string, it wire.PublishItem) wire.PublishItem {
	it.Event.Key = key
	return it
}

func TestSpansOfRefusals(t *testing.T) {
	f, rec := traced(t, &fakeLog{}, nil, 1)
	bad := item("orders", "x")
	bad.Err = wire.Errorf(wire.BadRequest, "the key is too long")
	none := wire.PublishItem{Event: wire.Event{Topic: "_no topic"}, Err: wire.Errorf(wire.BadRequest, "no topic")}
	f.publish(t, bad, none, item("paused", "1"), item("lost", "2"), item("orders", "defect-3"))
	f.start(t.Context(), items("a", 11)...)
	f.writer.Stop(t.Context())
	if got := len(rec.Named("send a")); got != 11 {
		t.Errorf("%d spans of 11 events that were refused together", got)
	}
	f.wantTree(t, rec, `send orders producer type=bad_request Error: the key is too long
send paused producer type=topic_paused Error: topic "paused" is paused by its policy (paused: true)
send lost producer type=store_unavailable Error: the event log is unavailable, so it is not known whether the event is stored; published again under the same id it is stored once
send orders producer type=internal Error: internal error; the server's log has the detail
  append orders internal -> send orders
`+strings.Repeat("send a producer type=bad_request Error: a publish of 11 events is larger than the burst of topic a, which is 10 (publish.burst of the policy): send smaller batches\n", 11), "error.type")
}

func TestWhatIsRecorded(t *testing.T) {
	low, high := strings.Replace(sampled, "8448", "0000", 1), strings.Replace(sampled, "8448", "ffff", 1)
	ratio := func(r float64) sdktrace.Sampler { return sdktrace.ParentBased(sdktrace.TraceIDRatioBased(r)) }
	for name, c := range map[string]struct {
		sampler     sdktrace.Sampler
		ratio       float64
		traceparent string
		want        bool
	}{
		"sampled parent":                   {nil, 1, sampled, true},
		"parent that is not":               {nil, 1, unsampled, false},
		"no parent":                        {nil, 1, "", true},
		"ratio 0":                          {nil, 0, sampled, false},
		"ratio 0, no parent":               {nil, 0, "", false},
		"below the ratio":                  {nil, 0.5, low, true},
		"above the ratio":                  {nil, 0.5, high, false},
		"parent before the sampler":        {ratio(0.1), 1, high, true},
		"policy below the sampler":         {ratio(0.1), 0.5, high, false},
		"always on, parent that is not":    {sdktrace.AlwaysSample(), 1, unsampled, true},
		"always off":                       {sdktrace.NeverSample(), 1, sampled, false},
		"always off, no parent":            {sdktrace.NeverSample(), 1, "", false},
		"roots off":                        {sdktrace.ParentBased(sdktrace.NeverSample()), 1, "", false},
		"by trace, whatever the parent is": {sdktrace.TraceIDRatioBased(0.5), 1, high, false},
	} {
		t.Run(name, func(t *testing.T) {
			f, rec := traced(t, &fakeLog{}, c.sampler, c.ratio)
			sent := item("orders", "1")
			if c.traceparent != "" {
				sent = from(c.traceparent, sent)
			}
			f.publish(t, sent)
			f.writer.Stop(t.Context())
			if got := len(rec.Spans()) > 0; got != c.want {
				t.Errorf("recorded: %v, want %v", got, c.want)
			}
			kept := fmt.Sprint(f.log.records[0].Headers) == fmt.Sprint(sent.Event.Headers)
			if kept == c.want {
				t.Errorf("stored with %v", f.log.records[0].Headers)
			}
		})
	}
}

func TestSpanOfADeadLetter(t *testing.T) {
	f, rec := traced(t, &fakeLog{}, nil, 1)
	src := &eventlog.Record{Event: from(sampled, item("orders", "1")).Event}
	letter := eventlog.DeadLetter(src, eventlog.Death{Group: "g", Reason: "r", Attempts: 5, Which: "9"}, time.Now())
	done := make(chan error, 1)
	f.AppendDeadLetter(t.Context(), letter, func(err error) { done <- err })
	require.NoError(t, <-done)
	f.wantTree(t, rec, `b7ad6b7169203331: send orders.dlq producer seq=9
  append orders.dlq internal -> send orders.dlq
`, "sluice.seq")
	span := rec.Named("send orders.dlq")[0].SpanContext
	if h, _ := f.log.records[0].Headers.Get("traceparent"); !strings.Contains(h, span.SpanID().String()) {
		t.Errorf("stored with %s, not the context of its span %s", h, span.SpanID())
	}
	if h, _ := src.Headers.Get("traceparent"); h != sampled {
		t.Errorf("the event itself was changed: %s", h)
	}
}

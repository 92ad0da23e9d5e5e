package group

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/tracing/tracingtest"
)

// tracedDeadLetters appends as the sidecar does.
type tracedDeadLetters struct {
	*fakeDeadLetters
	rec *tracingtest.Recorder
}

func (d *tracedDeadLetters) AppendDeadLetter(ctx context.Context, rec *eventlog.Record, done func(error)) {
	span := d.rec.SendDeadLetter(ctx, &rec.Event)
	rec.Headers = span.Headers(rec.Headers)
	d.fakeDeadLetters.AppendDeadLetter(ctx, rec, func(err error) {
		span.Accepted(rec.ID, eventlog.Outcome{})
		done(err)
	})
}

// runTraced does as run, with spans.
func runTraced(t *testing.T, ratio float64, scenario func(t *testing.T, w *world, rec *tracingtest.Recorder)) {
	run(t, func(t *testing.T, w *world) {
		rec := tracingtest.New(t, nil, ratio)
		w.stop()
		w.start(func(c *Config) { c.Tracing, c.DeadLetters = rec.Tracing, &tracedDeadLetters{w.deadLetters, rec} })
		scenario(t, w, rec)
	})
}

const (
	recorded    = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	notRecorded = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
)

func (w *world) publishFrom(traceparent string, ids ...string) {
	for _, id := range ids {
		r := record(id, "")
		if traceparent != "" {
			r.Headers = wire.Headers{{Name: "traceparent", Value: traceparent}}
		}
		w.log.append(topic, r)
	}
	synctest.Wait()
}

func wantTree(t *testing.T, rec *tracingtest.Recorder, want string, attributes ...string) {
	t.Helper()
	if got := rec.Tree(attributes...); got != want {
		t.Errorf("the spans are\n%s, want\n%s", got, want)
	}
}

func TestSpansOfADelivery(t *testing.T) {
	runTraced(t, 1, func(t *testing.T, w *world, rec *tracingtest.Recorder) {
		w.publishFrom(recorded, "a")
		c := w.join()
		c.wants("a/1")
		if spans := rec.Spans(); len(spans) > 0 {
			t.Errorf("ended before the ack: %v", spans)
		}
		advance(time.Second)
		c.ack("a")
		c.ack("a") // is not in flight any more
		wantTree(t, rec, `b7ad6b7169203331: process orders consumer system=sluice type=process name=process name=orders id=0 name=g id=a seq=1 attempt=1 outcome=acked
  settle orders client system=sluice type=settle name=ack name=orders id=0 name=g id=a seq=1 attempt=1
`, "messaging.system", "messaging.operation.type", "messaging.operation.name", "messaging.destination.name", "messaging.destination.partition.id",
			"messaging.consumer.group.name", "messaging.message.id", "sluice.seq", "sluice.attempt", "sluice.outcome")
		if s := rec.Named("process orders")[0]; s.EndTime.Sub(s.StartTime) != time.Second {
			t.Errorf("the delivery took %v", s.EndTime.Sub(s.StartTime))
		}
	})
}

func TestSpansOfRedeliveriesAndADeadLetter(t *testing.T) {
	runTraced(t, 1, func(t *testing.T, w *world, rec *tracingtest.Recorder) {
		w.publishFrom(recorded, "a")
		c := w.join(attempts(3))
		c.wants("a/1")
		advance(time.Second)
		c.nack(time.Second, "a")
		advance(time.Second)
		c.wants("a/2")
		advance(31 * time.Second)
		c.wants("a/3")
		advance(31 * time.Second)
		wantTree(t, rec, `b7ad6b7169203331: process orders consumer attempt=1 outcome=nacked type=nacked Error: no good
  settle orders client attempt=1
b7ad6b7169203331: process orders consumer attempt=2 outcome=expired type=expired Error: ack deadline passed -> process orders
b7ad6b7169203331: process orders consumer attempt=3 outcome=dead_lettered type=dead_lettered Error: ack deadline passed -> process orders
  send orders.dlq producer
`, "sluice.attempt", "sluice.outcome", "error.type")
		if op := rec.Named("settle orders")[0].Attributes; !slices.Contains(op, semconv.MessagingOperationName("nack")) {
			t.Errorf("a nack's span says %v", op)
		}
		send := rec.Named("send orders.dlq")[0].SpanContext
		if got, _ := w.deadLetters.appended[0].Headers.Get("traceparent"); got != "00-"+send.TraceID().String()+"-"+send.SpanID().String()+"-01" {
			t.Errorf("the dead letter carries %s", got)
		}
	})
}

func TestHowDeliveriesEnd(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(w *world, c *client)
		want string
	}{
		"unsubscribe": {func(_ *world, c *client) { c.leave(Unsubscribed) }, "revoked Unset"},
		"disconnect":  {func(_ *world, c *client) { c.leave(Disconnected) }, "disconnected Error"},
		"seek":        {func(w *world, _ *client) { w.policyWindow(0); w.seekEarliest() }, "revoked Unset"},
		"stop":        {func(w *world, _ *client) { w.stop(); w.start() }, "revoked Unset"},
		"deadline":    {func(_ *world, c *client) { c.Pause(); advance(31 * time.Second) }, "expired Error"},
	} {
		t.Run(name, func(t *testing.T) {
			runTraced(t, 1, func(t *testing.T, w *world, rec *tracingtest.Recorder) {
				w.publishFrom(recorded, "a")
				m := w.join()
				m.wants("a/1")
				c.end(w, m)
				spans := rec.Named("process orders")
				if len(spans) == 0 {
					t.Fatal("the delivery's span has not ended")
				}
				for _, a := range spans[0].Attributes {
					if a.Key == "sluice.outcome" {
						if got := a.Value.String() + " " + spans[0].Status.Code.String(); got != c.want {
							t.Errorf("ended as %s, want %s", got, c.want)
						}
					}
				}
				if n := len(rec.Named("settle orders")); n > 0 {
					t.Errorf("%d spans of acks that nobody sent", n)
				}
			})
		})
	}
}

// policyWindow changes how many may be in flight.
func (w *world) policyWindow(n int) {
	w.setPolicy(func(e *policy.Effective) { e.Delivery.MaxInflight = n })
}

func TestDeliveriesThatAreNotRecorded(t *testing.T) {
	for name, c := range map[string]struct {
		traceparent string
		ratio       float64
	}{
		"publisher was not": {notRecorded, 1},
		"no context":        {"", 1},
		"ratio 0":           {recorded, 0},
		"above the ratio":   {recorded, 0.01},
	} {
		t.Run(name, func(t *testing.T) {
			runTraced(t, c.ratio, func(t *testing.T, w *world, rec *tracingtest.Recorder) {
				w.publishFrom(c.traceparent, "a", "b")
				m := w.join(attempts(1))
				m.ack("a")
				m.nack(0, "b")
				spans := rec.Spans()
				if n := len(rec.Named("send orders.dlq")); c.traceparent == "" && n == 1 {
					spans = spans[1:] // a dead letter begins a trace, as any event does
				}
				if len(spans) > 0 {
					t.Errorf("recorded: %v", spans)
				}
			})
		})
	}
}

func TestSettleThatIsNotSaved(t *testing.T) {
	runTraced(t, 1, func(t *testing.T, w *world, rec *tracingtest.Recorder) {
		w.publishFrom(recorded, "a")
		c := w.join()
		c.wants("a/1")
		w.log.locked(func() { w.log.saveErr = errors.New("broken") })
		if a := c.ack("a"); !a.failed() {
			t.Fatal("the ack was answered")
		}
		w.log.locked(func() { w.log.saveErr = nil })
		advance(time.Second)
		wantTree(t, rec, `b7ad6b7169203331: process orders consumer
  settle orders client type=store_unavailable Error: it is not known to be durable
`, "error.type")
	})
}

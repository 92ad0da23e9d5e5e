package tracing_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/internal/mongowatch"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/tracing"
	"github.com/sluice-bus/sluice/sidecar/internal/tracing/tracingtest"
)

func events(n int, traceparent string) (recs []*eventlog.Record) {
	for i := range n {
		r := &eventlog.Record{Event: wire.Event{Topic: "orders", ID: fmt.Sprint(i)}}
		if traceparent != "" {
			r.Headers = wire.Headers{{Name: "traceparent", Value: traceparent}}
		}
		recs = append(recs, r)
	}
	return recs
}

func wantTree(t *testing.T, rec *tracingtest.Recorder, want string, attributes ...string) {
	t.Helper()
	if got, want := rec.Tree(attributes...), strings.TrimPrefix(want, "\n"); got != want {
		t.Errorf("the spans are\n%s, want\n%s", got, want)
	}
}

// An append that the store does not answer, so that its events are spooled.
func TestSpansOfASpooledBatch(t *testing.T) {
	rec := tracingtest.New(t, nil, 1)
	recs := events(2, sampled)
	sends := []*tracing.Send{rec.Send(t.Context(), &recs[0].Event, time.Now()), rec.Send(t.Context(), &recs[1].Event, time.Now())}
	ctx, batch := rec.Append(t.Context(), "orders", 3, 2, 100, sends)
	rec.Commands()(ctx, mongowatch.Command{Name: "insert", Database: "d", Collection: "events", Host: "db1", Port: 27017})("network")
	rec.Commands()(ctx, mongowatch.Command{Name: "ping", Database: "admin", Host: "/run/db.sock"})("")
	spooled := []eventlog.Outcome{{Spooled: true}, {Err: eventlog.ErrUnavailable}}
	rec.Spool(ctx, "orders", recs).End(spooled)
	batch.End(spooled)
	for i, s := range sends {
		s.Accepted(recs[i].ID, spooled[0])
	}
	wantTree(t, rec, `
b7ad6b7169203331: send orders producer
  append orders internal id=3 message_count=2 bytes=100 refused=1 type=store_unavailable Error: the store did not answer for all events -> send orders, send orders
    insert events client name=mongodb name=insert name=events namespace=d address=db1 port=27017 type=network Error
    ping client name=mongodb name=ping namespace=admin address=/run/db.sock
    spool orders internal message_count=2 bytes=610 refused=1 type=store_unavailable Error: the store did not answer for all events
b7ad6b7169203331: send orders producer
`, "messaging.destination.partition.id", "messaging.batch.message_count", "sluice.batch.bytes", "sluice.batch.refused", "db.system.name",
		"db.operation.name", "db.collection.name", "db.namespace", "server.address", "server.port", "error.type")
}

func TestLinksAreBounded(t *testing.T) {
	rec := tracingtest.New(t, nil, 1)
	recs := append(events(5, unsampled), events(200, sampled)...)
	ctx, batch := rec.Drain(t.Context(), "orders", 0, recs)
	if ctx == t.Context() {
		t.Error("what the log does for the batch would not be below its span")
	}
	batch.End(nil)
	span := rec.Named("drain orders")[0]
	if len(span.Links) != 128 || !strings.Contains(fmt.Sprint(span.Attributes), "unlinked") {
		t.Errorf("%d links, and %v", len(span.Links), span.Attributes)
	}
	wantTree(t, rec, "b7ad6b7169203331: drain orders internal message_count=205 unlinked=72 -> "+
		strings.TrimSuffix(strings.Repeat("b7ad6b7169203331, ", 128), ", ")+"\n", "messaging.batch.message_count", "sluice.batch.unlinked")
}

func TestBatchesWithoutRecordedEvents(t *testing.T) {
	rec := tracingtest.New(t, nil, 1)
	if ctx, b := rec.Append(t.Context(), "orders", 0, 1, 1, nil); b != nil || ctx != t.Context() {
		t.Error("an append is recorded")
	}
	if ctx, b := rec.Drain(t.Context(), "orders", 0, append(events(2, unsampled), events(2, "")...)); b != nil || ctx != t.Context() {
		t.Error("a drain is recorded")
	}
	if b := rec.Spool(t.Context(), "orders", events(1, sampled)); b != nil {
		t.Error("a spooled batch is recorded")
	}
	_, o := rec.Outbox(t.Context(), []wire.PublishItem{{Event: events(1, unsampled)[0].Event}})
	o.End()
	if spans := rec.Spans(); len(spans) > 0 {
		t.Errorf("recorded: %v", spans)
	}
}

func TestSpansOfAnOutbox(t *testing.T) {
	rec := tracingtest.New(t, nil, 1)
	var items []wire.PublishItem
	for _, parent := range []string{unsampled, sampled, ""} {
		items = append(items, wire.PublishItem{Event: events(1, parent)[0].Event})
	}
	ctx, o := rec.Outbox(t.Context(), items)
	for i := range items {
		s := rec.Send(ctx, &items[i].Event, time.Now())
		s.Accepted("x", eventlog.Outcome{})
	}
	o.End()
	wantTree(t, rec, `
b7ad6b7169203331: outbox orders internal message_count=3 -> send orders, send orders
b7ad6b7169203331: send orders producer
send orders producer
`, "messaging.batch.message_count")
}

// Off is a nil Tracing, and what it makes.
func TestOff(t *testing.T) {
	var off *tracing.Tracing
	e := events(1, sampled)[0]
	s := off.Send(t.Context(), &e.Event, time.Now())
	if got, _ := s.Headers(e.Headers).Get("traceparent"); got != sampled {
		t.Errorf("the headers carry %s", got)
	}
	s.Accepted("", eventlog.Outcome{})
	s.Refused("", nil)
	off.SendDeadLetter(t.Context(), &e.Event).Failed("")
	_, b := off.Append(t.Context(), "orders", 0, 1, 1, nil)
	b.End(nil)
	_, b = off.Drain(t.Context(), "orders", 0, nil)
	b.End(nil)
	off.Spool(t.Context(), "orders", nil).End(nil)
	_, o := off.Outbox(t.Context(), nil)
	o.End()
	p := off.Process(e, "g", 1, nil)
	p.Settle(tracing.Acked, time.Now()).End(nil)
	p.End(tracing.Acked, "")
	if ctx := p.Within(t.Context()); ctx != t.Context() {
		t.Error("a context was made for nothing")
	}
	if off.Commands() != nil || off.Handler(nil) != nil || tracing.New(tracing.Config{}) != nil {
		t.Error("something is on")
	}
}

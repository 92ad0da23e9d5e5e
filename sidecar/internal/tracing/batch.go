package tracing

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// maxLinks bounds the links of a span; an attribute has the number of further ones.
const maxLinks = 128

// Batch is the span of one operation on several events; nil if none of them is recorded.
type Batch struct{ span trace.Span }

// Append begins the span of a batch on its way into the log. The log's own spans for it belong
// under the returned context.
func (t *Tracing) Append(ctx context.Context, topic string, partition, events, bytes int, sends []*Send) (context.Context, *Batch) {
	if t == nil || len(sends) == 0 {
		return ctx, nil
	}
	var to links
	for _, s := range sends {
		to.add(s.span.SpanContext())
	}
	return t.batch(ctx, to.first(), "append "+topic, topic, events, bytes, &to, partitionID(partition))
}

// Spool begins the span of a batch on its way into the spool, below the one of its append.
func (t *Tracing) Spool(ctx context.Context, topic string, recs []*eventlog.Record) *Batch {
	if t == nil || len(recs) == 0 || !trace.SpanFromContext(ctx).IsRecording() {
		return nil
	}
	_, b := t.batch(ctx, trace.SpanContextFromContext(ctx), "spool "+topic, topic, len(recs), sizeOf(recs), &links{})
	return b
}

// Drain begins the span of a batch on its way from the spool into the log. The log's own spans for
// it belong under the returned context.
func (t *Tracing) Drain(ctx context.Context, topic string, partition int, recs []*eventlog.Record) (context.Context, *Batch) {
	if t == nil {
		return ctx, nil
	}
	var to links
	for _, r := range recs {
		if sc := contextOf(r.Headers); sc.IsValid() {
			if _, yes := t.records(topic, sc); yes {
				to.add(sc)
			}
		}
	}
	if len(to.list) == 0 {
		return ctx, nil
	}
	return t.batch(ctx, to.first(), "drain "+topic, topic, len(recs), sizeOf(recs), &to, partitionID(partition))
}

func (t *Tracing) batch(
	ctx context.Context, parent trace.SpanContext, name, topic string, events, bytes int, to *links, more ...attribute.KeyValue,
) (context.Context, *Batch) {
	span := t.begin(parent, name,
		trace.WithSpanKind(trace.SpanKindInternal), trace.WithLinks(to.list...),
		trace.WithAttributes(append(more,
			system, semconv.MessagingDestinationName(topic),
			semconv.MessagingBatchMessageCount(events), keyBytes.Int(bytes),
		)...))
	if span == nil {
		return ctx, nil
	}
	to.tell(span)
	return trace.ContextWithSpan(ctx, span), &Batch{span}
}

// End ends the span with the outcomes of the events.
func (b *Batch) End(outs []eventlog.Outcome) {
	if b == nil {
		return
	}
	refused := 0
	for i := range outs {
		if err := outs[i].Err; err != nil {
			refused++
			if errors.Is(err, eventlog.ErrUnavailable) {
				failed(b.span, string(wire.StoreUnavailable), "the store did not answer for all events")
			}
		}
	}
	if refused > 0 {
		b.span.SetAttributes(keyRefused.Int(refused))
	}
	b.span.End()
}

// links gathers the contexts that a span is linked to.
type links struct {
	list []trace.Link
	more int // for which there was no room
}

func (l *links) add(sc trace.SpanContext) {
	if len(l.list) == maxLinks {
		l.more++
		return
	}
	l.list = append(l.list, trace.Link{SpanContext: sc})
}

func (l *links) first() trace.SpanContext { return l.list[0].SpanContext }

func (l *links) tell(span trace.Span) {
	if l.more > 0 {
		span.SetAttributes(keyUnlinked.Int(l.more))
	}
}

func sizeOf(recs []*eventlog.Record) (n int) {
	for _, r := range recs {
		n += r.Size()
	}
	return n
}

// Outbox collects the outcomes of documents of an outbox that are published in one call.
type Outbox struct {
	t     *Tracing
	topic string
	n     int
	began time.Time

	mu     sync.Mutex
	to     links
	parent trace.SpanContext // of the first send
}

type outboxKey struct{}

// Outbox begins a call, whose events are of one topic. Publishes under the returned context belong
// to it.
func (t *Tracing) Outbox(ctx context.Context, items []wire.PublishItem) (context.Context, *Outbox) {
	if t == nil || len(items) == 0 {
		return ctx, nil
	}
	o := &Outbox{t: t, topic: items[0].Event.Topic, n: len(items), began: time.Now()}
	return context.WithValue(ctx, outboxKey{}, o), o
}

func ofOutbox(ctx context.Context) *Outbox {
	o, _ := ctx.Value(outboxKey{}).(*Outbox)
	return o
}

func (o *Outbox) add(parent, sent trace.SpanContext) {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.to.list) == 0 {
		if o.parent = parent; !parent.IsValid() {
			o.parent = sent
		}
	}
	o.to.add(sent)
}

// End makes the call's span, if any of its events is recorded. The span is a sibling of the first
// event's send, and linked to all.
func (o *Outbox) End() {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.to.list) == 0 {
		return
	}
	span := o.t.begin(o.parent, "outbox "+o.topic,
		trace.WithTimestamp(o.began), trace.WithSpanKind(trace.SpanKindInternal), trace.WithLinks(o.to.list...),
		trace.WithAttributes(system, semconv.MessagingDestinationName(o.topic), semconv.MessagingBatchMessageCount(o.n)))
	if span != nil {
		o.to.tell(span)
		span.End()
	}
}

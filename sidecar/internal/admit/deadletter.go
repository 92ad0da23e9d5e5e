package admit

import (
	"context"
	"errors"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/tracing"
	"github.com/sluice-bus/sluice/sidecar/internal/writer"
)

// AppendDeadLetter appends a dead letter to its topic. Limits and pauses do not apply, since its
// event passed them. It is not counted, since no client published it. done is called once, with nil
// when the event is durable, in the log or in the spool, now or from an earlier try under the same
// id; possibly before AppendDeadLetter returns and from any goroutine. It must not block. The log
// owns the record from then on.
func (p *Publisher) AppendDeadLetter(ctx context.Context, rec *eventlog.Record, done func(error)) {
	span := p.cfg.Tracing.SendDeadLetter(ctx, &rec.Event)
	rec.Headers = span.Headers(rec.Headers)
	receiver := deadLetterReceiver{rec: rec, span: span, done: done}
	partitions, err := p.partitionsOf(ctx, rec.Topic, p.cfg.Policies.Load().Topic(rec.Topic).Partitions)
	if err == nil {
		rec.Partition = eventlog.PartitionOf(rec.Key, rec.ID, partitions)
		err = p.cfg.Writer.Enqueue(rec.Topic, rec.Partition, writer.Item{Record: rec, Receiver: receiver, Span: span})
	}
	if err != nil {
		receiver.Completed(0, eventlog.Outcome{Err: err})
	}
}

type deadLetterReceiver struct {
	rec  *eventlog.Record
	span *tracing.Send
	done func(error)
}

// Completed treats a conflict as success: the id identifies the event and the group, so only
// details of an earlier try can differ.
func (r deadLetterReceiver) Completed(_ int, out eventlog.Outcome) {
	if conflict, ok := errors.AsType[*eventlog.ConflictError](out.Err); ok {
		out = eventlog.Outcome{Partition: r.rec.Partition, Seq: conflict.Seq, Duplicate: true}
	}
	if out.Err != nil {
		r.span.Failed(r.rec.ID)
	} else {
		r.span.Accepted(r.rec.ID, out)
	}
	r.done(out.Err)
}

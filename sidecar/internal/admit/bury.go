package admit

import (
	"context"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/writer"
)

// Bury appends an event of Sluice's own, such as a dead letter, to its topic:
// past limits and pauses, since it comes of an event that passed them, and
// uncounted, since nobody published it. done is called once, with nil when the
// event is durable, in the log or in the spool, now or from an earlier try under
// the same id; possibly before Bury returns and from any goroutine. It must not block. The record is
// the log's from here on.
func (p *Publisher) Bury(ctx context.Context, rec *eventlog.Record, done func(error)) {
	if p.cfg.Interest != nil {
		p.cfg.Interest.Await(ctx, rec.Topic)
	}
	partitions, err := p.partitionsOf(ctx, rec.Topic, p.cfg.Policies.Load().Topic(rec.Topic).Partitions)
	if err == nil {
		rec.Partition = eventlog.PartitionOf(rec.Key, rec.ID, partitions)
		err = p.cfg.Writer.Enqueue(rec.Topic, rec.Partition, writer.Item{Record: rec, Receiver: buryReceiver(done)})
	}
	if err != nil {
		done(err)
	}
}

type buryReceiver func(error)

// Settled takes a conflict for success: the id says what it is a dead letter
// of, and only the circumstances of an earlier burial can differ.
func (done buryReceiver) Settled(_ int, out eventlog.Outcome) {
	if asConflict(out.Err) != nil {
		out.Err = nil
	}
	done(out.Err)
}

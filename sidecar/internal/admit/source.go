package admit

import (
	"context"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/tracing"
)

// Source publishes events that are read from another store, which any sidecar may continue: see
// source.Publisher. Only the limits of topics apply to it, and its events go into the log or are
// refused. If they could wait in this sidecar's spool, events of another sidecar would overtake
// them.
type Source struct {
	publisher  *Publisher
	connection *Connection
	spans      *tracing.Tracing
	note       func([]wire.PublishItem, []wire.ResultItem, error)
}

// NewSource makes a Source. spans makes a span of each call, and note writes its outcome to the access log; nil: none.
func (p *Publisher) NewSource(spans *tracing.Tracing, note func([]wire.PublishItem, []wire.ResultItem, error)) *Source {
	if note == nil {
		note = func([]wire.PublishItem, []wire.ResultItem, error) {}
	}
	return &Source{p, p.NewLogOnlyConnection(), spans, note}
}

// Publish implements source.Publisher.
func (s *Source) Publish(ctx context.Context, items []wire.PublishItem, done func([]wire.ResultItem)) *wire.Error {
	ctx, span := s.spans.Outbox(ctx, items)
	err := s.publisher.Publish(ctx, s.connection, items, func(results []wire.ResultItem) {
		span.End()
		s.note(items, results, nil)
		done(results)
	})
	if err != nil {
		span.End()
		s.note(items, nil, err)
	}
	return err
}

// MaxEvents is the burst of the topic: no larger call is ever admitted.
func (s *Source) MaxEvents(topic string) int {
	if limits := s.publisher.cfg.Policies.Load().Topic(topic).Publish; limits.Rate > 0 {
		return limits.Burst
	}
	return 0
}

package sidecar

import (
	"context"
	"strings"

	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/internal/secrets"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/admit"
	"github.com/sluice-bus/sluice/sidecar/internal/capture"
	"github.com/sluice-bus/sluice/sidecar/internal/outbox"
	"github.com/sluice-bus/sluice/sidecar/internal/tracing"
)

// openOutboxes makes a drainer for each outbox.
func (s *Sidecar) openOutboxes(context.Context) error {
	for _, o := range s.cfg.Outboxes {
		url, collection, _ := strings.Cut(o, "#")
		cfg := outbox.Config{
			URL: url, Collection: collection, NodeID: s.cfg.NodeID, Limits: s.cfg.limits(), Lease: s.cfg.Lease, Logger: s.cfg.Logger,
			Publisher: sourcePublisher{s.publisher, s.publisher.NewLogOnlyConnection(), s.policyOf, s.tracing},
			LogID:     s.store.id, Roster: s.store.roster,
			Observer: s.metrics.Outbox(secrets.Without(url) + "#" + collection),
		}
		d, err := outbox.New(cfg)
		if err != nil {
			return &ConfigError{Err: err}
		}
		s.outboxes = append(s.outboxes, d)
	}
	return nil
}

// unread are the topics whose signals the outboxes and captures need.
func (s *Sidecar) unread() (topics []string) {
	if len(s.cfg.Outboxes) > 0 {
		topics = append(topics, outbox.Topic)
	}
	if len(s.cfg.Captures) > 0 {
		topics = append(topics, capture.Topic)
	}
	return topics
}

// sourcePublisher publishes the events of a drainer or a capture, within the limits of the topics.
type sourcePublisher struct {
	publisher  *admit.Publisher
	connection *admit.Connection
	policy     func(topic string) *policy.Effective
	tracing    *tracing.Tracing // of outboxes; nil: there is no span of a call
}

func (p sourcePublisher) Publish(ctx context.Context, items []wire.PublishItem, done func([]wire.ResultItem)) *wire.Error {
	ctx, span := p.tracing.Outbox(ctx, items)
	err := p.publisher.Publish(ctx, p.connection, items, func(results []wire.ResultItem) {
		span.End()
		done(results)
	})
	if err != nil {
		span.End()
	}
	return err
}

// MaxEvents is the burst of the topic: no larger call is ever admitted.
func (p sourcePublisher) MaxEvents(topic string) int {
	if limits := p.policy(topic).Publish; limits.Rate > 0 {
		return limits.Burst
	}
	return 0
}

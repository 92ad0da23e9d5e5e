package sidecar

import (
	"context"
	"strings"

	"github.com/sluice-bus/sluice/internal/secrets"
	"github.com/sluice-bus/sluice/sidecar/internal/capture"
	"github.com/sluice-bus/sluice/sidecar/internal/outbox"
)

// openOutboxes makes a drainer for each outbox.
func (s *Sidecar) openOutboxes(context.Context) error {
	for _, o := range s.cfg.Outboxes {
		url, collection, _ := strings.Cut(o, "#")
		cfg := outbox.Config{
			URL: url, Collection: collection, NodeID: s.cfg.NodeID, Limits: s.cfg.limits(), Lease: s.cfg.Lease, Logger: s.cfg.Logger,
			Publisher: s.publisher.NewSource(s.tracing, s.audit.Source("outbox "+secrets.Without(url)+"#"+collection)),
			LogID:     s.store.ID, Roster: s.store.Roster(),
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
func (c Config) unread() (topics []string) {
	if len(c.Outboxes) > 0 {
		topics = append(topics, outbox.Topic)
	}
	if len(c.Captures) > 0 {
		topics = append(topics, capture.Topic)
	}
	return topics
}

// Package consume hands out events over HTTP: to requests that pull, to streams, and the latest
// event of each key.
//
// A puller is a member of a group that serves all requests that pull from the group with equal
// opts. It takes as many events from the group as the waiting requests want, and serves the
// requests in the order of their arrival. Its events stay in flight after the requests are
// answered: a lease names one delivery, so any request can settle it. A pull ends when its answer
// is full, or when the group has no more events for it now.
//
//	pull ──▶ tokens of its connection ──▶ puller ──▶ group
//	ack, nack, modack: lease ────────────────────────▶ group
//
// A stream (server-sent events) is a subscription whose events count as acked once they are
// written. The group puts events into the stream's send buffer.
package consume

import (
	"context"

	"github.com/sluice-bus/sluice/sidecar/internal/refusal"
)

// New makes Consumers.
func New(cfg Config) *Consumers {
	c := &Consumers{cfg: cfg, leases: newLeaser(cfg.NodeID)}
	c.pulls = pullers{cfg: &c.cfg, all: make(map[pullerKey]*puller)}
	c.streams = streams{live: make(map[*stream]struct{})}
	return c
}

// Subscriptions is how many there are, of streams and of pullers.
func (c *Consumers) Subscriptions() int { return c.streams.count() + c.pulls.count() }

// LeavePulls ends the unused pullers of a topic, or of one of its groups, so that they do not keep
// a group from being deleted.
func (c *Consumers) LeavePulls(topic, group string) { c.pulls.leave(topic, group) }

// RightsChanged ends the streams whose callers may not have them any more.
func (c *Consumers) RightsChanged() { c.streams.rightsChanged() }

// EndPulls refuses pulls from now on, answers the waiting ones, and gives back the events in flight.
func (c *Consumers) EndPulls() { c.pulls.end(refusal.Stopping()) }

// EndStreams ends all streams. A stream that is writing has until ctx ends to finish.
func (c *Consumers) EndStreams(ctx context.Context) { c.streams.end(ctx) }

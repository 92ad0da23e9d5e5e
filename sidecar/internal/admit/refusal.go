package admit

import (
	"context"
	"errors"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/refusal"
)

// refusal returns the contract's error for an event that was not stored, and logs the cause if that
// error hides it.
func (p *Publisher) refusal(topic string, cause error) *wire.Error {
	e := wire.AsError(refusal.OfPublish(cause))
	switch {
	case e.Code != wire.Internal:
	case errors.Is(cause, context.Canceled), errors.Is(cause, context.DeadlineExceeded):
		return refusal.Unavailable("the request ended before the event log had created the topic; the event is not stored")
	default:
		p.cfg.Logger.Error("publish failed", "topic", topic, "error", cause)
	}
	return e
}

// refuseAll counts the items of a call that is refused completely.
func (p *Publisher) refuseAll(ctx context.Context, a *admission, items []wire.PublishItem, err *wire.Error) *wire.Error {
	a.trace(ctx, items)
	for i := range items {
		a.span(i).Refused(items[i].Event.ID, err)
		p.Refused(items[i].Event.Topic, err.Code, 1)
	}
	return err
}

// Refused counts n events that were refused; a transport calls it for events that it refuses
// itself. A topic that may not exist has no label, unless a policy has its name or something was
// counted for it before: else a client could invent labels.
func (p *Publisher) Refused(topic string, code wire.Code, n int) {
	p.mu.RLock()
	_, exists := p.partitions[topic]
	p.mu.RUnlock()
	of := p.cfg.Metrics.KnownTopic
	if exists || p.cfg.Policies.Load().Names(topic) {
		of = p.cfg.Metrics.Topic
	}
	of(topic).Rejected(code, n)
}

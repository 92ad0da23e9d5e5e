package admin

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
)

// PullQuery selects the events to pull. The sidecar's default holds for each zero field, except
// Wait.
type PullQuery struct {
	Topic, Group string
	Max          int // events of one answer, 1 to 1,000 (100)
	// Wait is how long the sidecar waits for the first event, up to a minute; 0 does not wait.
	Wait time.Duration
	// Options are the options of a subscription. Pulls whose options are equal, apart from From, TS
	// and AfterID, share one subscription: their events in flight count together.
	Options wire.SubscribeOptions
}

// Pull returns events of a group, or none once q.Wait is over. Each event has a Lease, with which
// [HTTP.Ack] and [HTTP.Nack] settle it. After AckDeadlineMS without that, it is delivered again.
func (h *HTTP) Pull(ctx context.Context, q PullQuery) ([]wire.Delivery, error) {
	p := codec.Pull{Max: q.Max, WaitMS: q.Wait.Milliseconds(), Subscribe: q.Options}
	if p.Max == 0 {
		p.Max = wire.DefaultPull
	}
	answer, err := h.post(ctx, topicPath(q.Topic, "groups", q.Group, "pull"), codec.AppendPull(nil, &p))
	if err != nil {
		return nil, err
	}
	return codec.ParsePulled(answer)
}

// Ack settles pulled events, and returns once that is durable. It gives one result for each lease,
// in order: nil, or an error with the code stale_lease if the event was settled before or is to be
// delivered again.
func (h *HTTP) Ack(ctx context.Context, topic, group string, leases ...string) ([]*wire.Error, error) {
	return h.settle(ctx, topic, group, "ack", codec.Settlement{Leases: leases})
}

// Nack gives pulled events back, to be delivered again. It returns results as [HTTP.Ack] does.
func (h *HTTP) Nack(ctx context.Context, topic, group string, n wire.Nack, leases ...string) ([]*wire.Error, error) {
	return h.settle(ctx, topic, group, "nack", codec.Settlement{Leases: leases, Nack: n})
}

// Modack moves the deadlines of pulled events to extend from now. It returns results as [HTTP.Ack]
// does.
func (h *HTTP) Modack(ctx context.Context, topic, group string, extend time.Duration, leases ...string) ([]*wire.Error, error) {
	ms := extend.Milliseconds()
	return h.settle(ctx, topic, group, "modack", codec.Settlement{Leases: leases, ExtendMS: &ms})
}

func (h *HTTP) settle(ctx context.Context, topic, group, verb string, t codec.Settlement) ([]*wire.Error, error) {
	if len(t.Leases) == 0 {
		return nil, nil
	}
	answer, err := h.post(ctx, topicPath(topic, "groups", group, verb), codec.AppendSettlement(nil, &t))
	if err != nil {
		return nil, err
	}
	results, err := codec.ParseSettled(answer)
	if err == nil && len(results) != len(t.Leases) {
		err = fmt.Errorf("the sidecar gave %d results for %d leases", len(results), len(t.Leases))
	}
	return results, err
}

func (h *HTTP) post(ctx context.Context, path string, body []byte) ([]byte, error) {
	return h.body(ctx, http.MethodPost, h.AppURL, path, body, http.Header{"Content-Type": {"application/json"}})
}

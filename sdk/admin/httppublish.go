package admin

import (
	"context"
	"fmt"
	"net/http"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
)

// PublishBatch publishes events, which all go to topic, in one request, and returns one result for
// each, in order. It uses the same fields of an event as [Conn.PublishAsync]. The options, of type
// [option.Event], apply to each event.
func (h *HTTP) PublishBatch(ctx context.Context, topic string, events []wire.Event,
	opts ...func(*wire.PublishItem)) ([]wire.ResultItem, error) {
	var body []byte
	for i := range events {
		item := wire.NewPublishItem(&events[i], opts)
		body = append(codec.AppendPublishLine(body, &item), '\n')
	}
	answer, err := h.publish(ctx, topic, body, http.Header{"Content-Type": {"application/x-ndjson"}})
	if err != nil {
		return nil, err
	}
	results, err := codec.ParseResults(answer)
	if err == nil && len(results) != len(events) {
		err = fmt.Errorf("the sidecar gave %d results for a batch of %d", len(results), len(events))
	}
	return results, err
}

// Publish publishes one event with a request of its own. Tags, CausedBy and SID, for which there
// are no HTTP headers, are not sent.
func (h *HTTP) Publish(ctx context.Context, e *wire.Event, opts ...func(*wire.PublishItem)) (wire.Receipt, error) {
	item := wire.NewPublishItem(e, opts)
	e = &item.Event
	header := http.Header{"Content-Type": {"application/json"}}
	if e.Binary {
		header.Set("Content-Type", "application/octet-stream")
	}
	set := func(name, value string) {
		if value != "" {
			header.Set(name, value)
		}
	}
	set("Sluice-Id", e.ID)
	set("Sluice-Key", e.Key)
	set("Sluice-Ts", number(e.TS))
	set("Sluice-Ttl-Ms", number(max(e.TTLMS, 0)))
	set("Sluice-Deliver-At", optional(item.Later.DeliverAt))
	set("Sluice-Delay-Ms", optional(item.Later.DelayMS))
	for _, x := range e.Headers {
		if x.Name == "content-type" {
			header.Set(x.Name, x.Value)
			continue
		}
		header.Set("Sluice-Header-"+x.Name, x.Value)
	}
	answer, err := h.publish(ctx, e.Topic, e.Payload, header)
	if err != nil {
		return wire.Receipt{}, err
	}
	return codec.ParseReceipt(answer)
}

func (h *HTTP) publish(ctx context.Context, topic string, body []byte, header http.Header) ([]byte, error) {
	return h.body(ctx, http.MethodPost, h.AppURL, topicPath(topic, "events"), body, header)
}

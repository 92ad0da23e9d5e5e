package push

import (
	"bytes"
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/sidecar/internal/cloudevent"
	"github.com/sluice-bus/sluice/sidecar/internal/group"
	"github.com/sluice-bus/sluice/sidecar/internal/tracing"
)

// The headers that say which event a request brings.
const (
	headerTopic   = "sluice-topic"
	headerID      = "sluice-id"
	headerAttempt = "sluice-attempt"
)

// request brings an event to the endpoint.
func (e *Entry) request(ctx context.Context, d *group.Delivery, trace *tracing.Propagation, now time.Time) (*http.Request, error) {
	ev, h := &d.Record.Event, http.Header{"User-Agent": {"sluice"}}
	for name, values := range e.Headers {
		h[name] = values
	}
	var body []byte
	ce := cloudevent.Plain(ev)
	switch e.Format {
	case FormatEvent:
		body = codec.AppendEventJSON(nil, ev)
		h.Set("Content-Type", "application/json")
	case FormatCloudEvents:
		body = ce.Payload
		ce.SetHeaders(h)
	case FormatStructured:
		body = ce.AppendJSON(nil)
		h.Set("Content-Type", cloudevent.MediaType)
	case FormatPayload:
		body = ce.Payload
		if ce.ContentType != "" {
			h.Set("Content-Type", ce.ContentType)
		}
	}
	h.Set(headerTopic, ev.Topic)
	h.Set(headerID, url.PathEscape(ev.ID))
	h.Set(headerAttempt, strconv.Itoa(d.Attempt))
	trace.Inject(ev, h.Set)
	sign(h, e.secrets, webhookID(ev), now, body)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.URL.String(), bytes.NewReader(body))
	if err == nil {
		req.Header = h
	}
	return req, err
}

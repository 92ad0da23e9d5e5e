package ingest

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/sluice-bus/sluice/internal/httpapi"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/sidecar/internal/refusal"
	"github.com/sluice-bus/sluice/sidecar/internal/session"
)

// publishDapr publishes the body as one event, and answers without content. The name of Dapr's
// component may be anything: there is one log behind all of them.
func (h *handlers) publishDapr(caller *session.Session, w http.ResponseWriter, r *httpapi.Request) error {
	items, bad := h.readDapr(caller, w, r)
	results, err := h.publish(caller, r, items, bad)
	if err == nil && results[0].Err != nil {
		err = results[0].Err
	}
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
	}
	return err
}

// readDapr makes the event of a request.
func (h *handlers) readDapr(caller *session.Session, w http.ResponseWriter, r *httpapi.Request) ([]wire.PublishItem, *wire.Error) {
	topic := r.PathValue("topic")
	if bad := codec.CheckTopic(topic); bad != nil {
		return nil, bad
	}
	meta, bad := h.daprMetadataOf(r)
	if bad != nil {
		return nil, bad
	}
	head, bad := readHead(r.Header)
	if bad != nil {
		return nil, bad
	}
	head.defaultToText()
	content, bad := h.Bodies.Read(caller.Share(), w, r.Request, meta.kind(&head).maxBytes(h.Limits))
	if bad != nil {
		return nil, bad
	}
	it, bad := meta.item(topic, head, content, h.Limits)
	return []wire.PublishItem{it}, bad
}

// defaultToText makes a body without a type text, as Dapr does.
func (h *head) defaultToText() {
	if h.kind == jsonBody && h.contentType.text == "" {
		h.contentType, h.kind = contentType{mediaText, mediaText}, bytesBody
	}
}

// daprMetadata is the metadata that a client of Dapr sends with an event, beside the payload.
type daprMetadata struct {
	raw   bool   // a CloudEvent is treated like any other payload
	key   string // keeps the order of events
	id    string
	ttlMS int64
	attrs []wire.Header // of a CloudEvent, by name
	later wire.Later
	appID string // of the publisher; "" where it is not known
}

// metadataPrefix begins the names of query parameters with metadata.
const metadataPrefix = "metadata."

// daprMetadataOf reads the metadata in a request's query parameters.
func (h *handlers) daprMetadataOf(r *httpapi.Request) (m daprMetadata, bad *wire.Error) {
	m.appID = h.AppID
	values := r.With(metadataPrefix + "*")
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if len(values[name]) > 1 {
			return m, wire.Errorf(wire.BadRequest, "parameter %s is given %d times; give it once", refusal.Shorten(name), len(values[name]))
		}
		if bad := m.set(strings.TrimPrefix(name, metadataPrefix), values[name][0]); bad != nil {
			return m, bad
		}
	}
	return m, nil
}

// setAll reads the metadata of a call, or of an entry.
func (m *daprMetadata) setAll(entries map[string]string) *wire.Error {
	m.attrs = slices.Clip(m.attrs) // other entries append to it, too
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		if bad := m.set(name, entries[name]); bad != nil {
			return bad
		}
	}
	return nil
}

// set reads one entry of metadata. It ignores unknown entries, which are meant for other brokers.
func (m *daprMetadata) set(name, value string) *wire.Error {
	attr, isAttribute := strings.CutPrefix(name, "cloudevent.")
	switch {
	case strings.EqualFold(name, "rawPayload"):
		if value != "true" && value != "false" {
			return wire.Errorf(wire.BadRequest, "metadata.rawPayload is %q; true and false are allowed", refusal.Shorten(value))
		}
		m.raw = value == "true"
	case strings.EqualFold(name, "partitionKey"):
		m.key = value
	case strings.EqualFold(name, "ttlInSeconds"):
		var bad *wire.Error
		m.ttlMS, bad = ttlMS("metadata.ttlInSeconds", value, 1000)
		return bad
	case strings.EqualFold(name, "deliverAt"), strings.EqualFold(name, "deliverAfter"):
		return m.setLater(name, value)
	case isAttribute && attr == "id":
		m.id = value
		return codec.CheckID(value)
	case isAttribute:
		m.attrs = append(m.attrs, wire.Header{Name: attr, Value: value})
		return checkAttribute(attr, value)
	}
	return nil
}

// setLater reads the delivery time of an event, by the names that Dapr uses for it with other
// brokers.
func (m *daprMetadata) setLater(name, value string) *wire.Error {
	if strings.EqualFold(name, "deliverAt") {
		if m.later.DeliverAt = timeMS(value); m.later.DeliverAt == nil {
			return wire.Errorf(wire.BadRequest, "metadata.deliverAt is %q; a time as RFC 3339 writes it, "+
				"or in milliseconds since the epoch, is allowed",
				refusal.Shorten(value))
		}
		return nil
	}
	d, err := time.ParseDuration(value)
	if err != nil || d < 0 {
		return wire.Errorf(wire.BadRequest, "metadata.deliverAfter is %q; a duration like 1h30m is allowed", refusal.Shorten(value))
	}
	ms := d.Milliseconds()
	m.later.DelayMS = &ms
	return nil
}

// kind is the kind as which the body is read; Dapr's body is always one event.
func (m *daprMetadata) kind(h *head) kind {
	rawEvent := m.raw && (h.kind == structuredBody || h.kind == binaryBody)
	switch {
	case h.kind == linesBody, rawEvent && !h.contentType.isJSON():
		return bytesBody
	case h.kind == batchedBody, rawEvent:
		return jsonBody
	}
	return h.kind
}

// item makes the event of a body, or of an entry.
func (m *daprMetadata) item(topic string, h head, content []byte, lim wire.Limits) (wire.PublishItem, *wire.Error) {
	h.kind = m.kind(&h)
	if h.kind == jsonBody && len(content) == 0 {
		content = []byte("null") // as a CloudEvent without data
	}
	it, bad := itemOf(topic, &h, content, lim)
	if bad == nil {
		bad = m.fill(&it, h.kind, lim)
	}
	return it, bad
}

// daprType is the type of the CloudEvents that Dapr makes.
const daprType = "com.dapr.event.sent"

// fill puts the metadata into an event that came as a body of that kind.
func (m *daprMetadata) fill(it *wire.PublishItem, came kind, lim wire.Limits) *wire.Error {
	e := &it.Event
	if m.appID != "" && !m.raw && came != structuredBody && came != binaryBody { // Dapr makes a CloudEvent of it
		e.Headers = e.Headers.With(ceHeader("source"), m.appID).With(ceHeader("type"), daprType)
	}
	if m.id != "" {
		e.ID, it.CloudEvent = m.id, !m.raw
	}
	if m.key != "" {
		if e.Key != "" && e.Key != m.key {
			return wire.Errorf(wire.BadRequest, "metadata.partitionKey and the event's own key differ: an event has one key")
		}
		e.Key = m.key
	}
	if m.ttlMS != 0 {
		e.TTLMS = m.ttlMS
	}
	if m.later.Given() {
		it.Later = m.later
		if _, given := e.Headers.Get(ceHeader("time")); given {
			e.TS, it.HasTS = 0, false // it came from the CloudEvent's time
		}
	}
	for _, attr := range m.attrs {
		name := attr.Name
		if !slices.Contains(ceTrace, name) {
			name = ceHeader(name)
		}
		e.Headers = e.Headers.With(name, attr.Value)
	}
	return checkItem(it, lim)
}

// ceHeader is the name of the header that keeps a CloudEvent's attribute.
func ceHeader(attribute string) string { return strings.ToLower(cePrefix) + attribute }

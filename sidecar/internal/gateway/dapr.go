package gateway

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/sidecar/internal/refusal"
)

// The paths under which clients of Dapr publish. The name of the component may be anything: there
// is one log behind all of them.
const (
	daprPublishPath   = "/v1.0/publish/{pubsub}/{topic}"
	daprBulkPath      = "/v1.0/publish/bulk/{pubsub}/{topic}"
	daprBulkPathAlpha = "/v1.0-alpha1/publish/bulk/{pubsub}/{topic}"
)

// publishDapr publishes the body as one event, and answers without content.
func (g *Gateway) publishDapr(w http.ResponseWriter, r *http.Request) error {
	results, err := g.publish(r, func(topic string) ([]wire.PublishItem, *wire.Error) {
		meta, bad := daprMetadataOf(r.URL.RawQuery)
		if bad != nil {
			return nil, bad
		}
		kind, bad := bodyOf(r.Header)
		if bad != nil {
			return nil, bad
		}
		kind = meta.kind(kind, r.Header)
		content, bad := g.readBody(w, r, kind)
		if bad != nil {
			return nil, bad
		}
		it, bad := itemOf(topic, r.Header, kind, content, g.cfg.Limits)
		if bad == nil {
			bad = meta.fill(&it, g.cfg.Limits)
		}
		return []wire.PublishItem{it}, bad
	})
	if err == nil && results[0].Err != nil {
		err = results[0].Err
	}
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
	}
	return err
}

// daprMetadata is the metadata that a client of Dapr sends with an event, beside the payload.
type daprMetadata struct {
	raw   bool   // a CloudEvent is treated like any other payload
	key   string // keeps the order of events
	id    string
	ttlMS int64
	attrs []wire.Header // of a CloudEvent, by name
	later wire.Later
}

// metadataPrefix begins the names of query parameters with metadata.
const metadataPrefix = "metadata."

// daprMetadataOf reads the metadata in a request's query parameters.
func daprMetadataOf(query string) (m daprMetadata, bad *wire.Error) {
	values, err := url.ParseQuery(query)
	if err != nil {
		return m, wire.Errorf(wire.BadRequest, "the query is not understood: %v", err)
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		key, is := strings.CutPrefix(name, metadataPrefix)
		if !is {
			continue
		}
		if len(values[name]) > 1 {
			return m, wire.Errorf(wire.BadRequest, "parameter %s is given %d times; give it once", refusal.Shorten(name), len(values[name]))
		}
		if bad := m.set(key, values[name][0]); bad != nil {
			return m, bad
		}
	}
	return m, nil
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
		m.ttlMS, bad = ttlText("metadata.ttlInSeconds", value, 1000)
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

// kind is the kind as which the body is read; Dapr's body is always one event.
func (m *daprMetadata) kind(kind body, h http.Header) body {
	switch {
	case kind == linesBody, kind == binaryBody && m.raw && !isJSON(h.Get("Content-Type")):
		return bytesBody
	case kind == batchedBody, (kind == structuredBody || kind == binaryBody) && m.raw:
		return jsonBody
	}
	return kind
}

// fill puts the metadata into an event.
func (m *daprMetadata) fill(it *wire.PublishItem, lim wire.Limits) *wire.Error {
	e := &it.Event
	if m.id != "" {
		e.ID = m.id
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
		if _, given := e.Headers.Get(strings.ToLower(cePrefix) + "time"); given {
			e.TS, it.HasTS = 0, false // it came from the CloudEvent's time
		}
	}
	for _, attr := range m.attrs {
		name := attr.Name
		if !slices.Contains(ceTrace, name) {
			name = strings.ToLower(cePrefix) + name
		}
		e.Headers = e.Headers.With(name, attr.Value)
	}
	return checkItem(it, lim)
}

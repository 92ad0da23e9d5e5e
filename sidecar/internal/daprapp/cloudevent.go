package daprapp

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/sluice-bus/sluice/internal/daprpb"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
)

const (
	// plainType is Dapr's type of an event that was not published as a CloudEvent.
	plainType   = "com.dapr.event.sent"
	specVersion = "1.0"
	// rawContentType is the type of raw payloads.
	rawContentType = "application/octet-stream"
	// cePrefix begins the names of the headers that keep a CloudEvent's attributes.
	cePrefix = "ce-"
)

// traceHeaders are passed on, as attributes and with the request.
var traceHeaders = []string{"traceparent", "tracestate"}

// given are the attributes that do not come from headers.
var given = map[string]bool{
	"specversion": true, "id": true, "source": true, "type": true, "time": true, "datacontenttype": true,
	"data": true, "topic": true, "pubsubname": true, "partitionkey": true, "traceid": true, "traceparent": true, "tracestate": true,
}

// attribute is an attribute of a CloudEvent, or an extension.
type attribute struct{ name, value string }

// envelope is an event as the CloudEvent 1.0 that Dapr makes of it.
type envelope struct {
	id, source, kind string
	contentType      string // "": none
	others           []attribute
	payload          []byte
	binary           bool // else the payload is JSON
}

// wrap makes the envelope of an event; appID is the source of events that do not name one.
func wrap(ev *wire.Event, appID string, s *Subscription) *envelope {
	kept := func(name, otherwise string) string {
		if value, ok := ev.Headers.Get(name); ok {
			return value
		}
		return otherwise
	}
	e := &envelope{
		// A dead letter has an id of its own, and its application knows the event's.
		id:     kept(cePrefix+"id", kept(wire.HeaderDeadID, ev.ID)),
		source: kept(cePrefix+"source", appID), kind: kept(cePrefix+"type", plainType),
		contentType: kept("content-type", ""), payload: ev.Payload, binary: ev.Binary,
	}
	if s.Raw {
		e.contentType, e.binary = rawContentType, true
	} else if e.contentType == "" && !ev.Binary {
		e.contentType = "application/json"
	}
	add := func(name, value string) {
		if value != "" {
			e.others = append(e.others, attribute{name, value})
		}
	}
	add("time", kept(cePrefix+"time", time.UnixMilli(ev.TS).UTC().Format("2006-01-02T15:04:05.000Z07:00")))
	add("topic", ev.Topic)
	add("pubsubname", s.PubsubName)
	add("partitionkey", ev.Key)
	add("traceid", kept("traceparent", "")) // Dapr's own name for it
	for _, name := range traceHeaders {
		add(name, kept(name, ""))
	}
	for _, h := range ev.Headers {
		if name, ok := strings.CutPrefix(h.Name, cePrefix); ok && !given[name] && isAttribute(name) {
			e.others = append(e.others, attribute{name, h.Value})
		}
	}
	return e
}

// isAttribute reports whether a CloudEvent can have an attribute of that name.
func isAttribute(name string) bool {
	return name != "" && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789") == ""
}

// isText reports whether the data is text, which JSON holds as a string.
func (e *envelope) isText() bool {
	media, _, _ := strings.Cut(strings.ToLower(e.contentType), ";")
	media = strings.TrimSpace(media)
	return (strings.HasPrefix(media, "text/") && media != "text/json" || strings.HasSuffix(media, "xml")) && utf8.Valid(e.payload)
}

// appendJSON writes the CloudEvent in JSON.
func (e *envelope) appendJSON(dst []byte) []byte {
	add := func(name, value string) {
		dst = append(codec.AppendString(append(dst, ','), name), ':')
		dst = codec.AppendString(dst, value)
	}
	dst = append(dst, `{"specversion":"`+specVersion+`"`...)
	add("id", e.id)
	add("source", e.source)
	add("type", e.kind)
	for _, a := range e.others {
		add(a.name, a.value)
	}
	if e.contentType != "" {
		add("datacontenttype", e.contentType)
	}
	switch {
	case !e.binary:
		dst = append(append(dst, `,"data":`...), e.payload...)
	case e.isText():
		add("data", string(e.payload))
	default:
		add("data_base64", base64.StdEncoding.EncodeToString(e.payload))
	}
	return append(dst, '}')
}

// asMap is the CloudEvent for rules.
func (e *envelope) asMap() map[string]any {
	m := map[string]any{"specversion": specVersion, "id": e.id, "source": e.source, "type": e.kind, "datacontenttype": e.contentType}
	for _, a := range e.others {
		m[a.name] = a.value
	}
	switch {
	case !e.binary:
		var data any
		_ = json.Unmarshal(e.payload, &data) // which was checked when it was published; a number beyond a float's range is left out
		m["data"] = data
	case e.isText():
		m["data"] = string(e.payload)
	default:
		m["data_base64"] = base64.StdEncoding.EncodeToString(e.payload)
	}
	return m
}

// extensions are the attributes that have no field of their own over gRPC.
func (e *envelope) extensions() *structpb.Struct {
	fields := make(map[string]*structpb.Value, len(e.others))
	for _, a := range e.others {
		fields[a.name] = structpb.NewStringValue(strings.ToValidUTF8(a.value, "\uFFFD"))
	}
	return &structpb.Struct{Fields: fields}
}

// request is the CloudEvent over gRPC.
func (e *envelope) request(topic, pubsub, path string) *daprpb.TopicEventRequest {
	return &daprpb.TopicEventRequest{
		Id: e.id, Source: e.source, Type: e.kind, SpecVersion: specVersion, DataContentType: e.contentType, Data: e.payload,
		Topic: topic, PubsubName: pubsub, Path: path, Extensions: e.extensions(),
	}
}

// TopicEvent is an event as Dapr gives it to a client that has subscribed by a stream.
func TopicEvent(ev *wire.Event, appID string, s *Subscription) *daprpb.TopicEventRequest {
	return wrap(ev, appID, s).request(s.Topic, s.PubsubName, "")
}

// traceOf calls add for each header of the event's trace.
func traceOf(ev *wire.Event, add func(name, value string)) {
	for _, name := range traceHeaders {
		// A value that HTTP cannot carry would make every delivery of the event fail.
		if value, ok := ev.Headers.Get(name); ok && isHeaderText(value) {
			add(name, value)
		}
	}
}

// isHeaderText reports whether HTTP and gRPC carry a text as the value of a header.
func isHeaderText(value string) bool {
	return strings.IndexFunc(value, func(r rune) bool { return r < ' ' || r > '~' }) < 0
}

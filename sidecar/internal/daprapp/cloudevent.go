package daprapp

import (
	"encoding/base64"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
)

// Attributes of an event that was not published as a CloudEvent.
const (
	plainSource = "sluice"
	plainType   = "com.dapr.event.sent" // Dapr's own name for it
)

// cePrefix begins the names of the headers that keep a CloudEvent's attributes.
const cePrefix = "ce-"

// traceHeaders are passed on, as attributes and as headers of the request.
var traceHeaders = []string{"traceparent", "tracestate"}

// given are the attributes that do not come from headers.
var given = map[string]bool{
	"specversion": true, "id": true, "source": true, "type": true, "time": true, "datacontenttype": true,
	"data": true, "topic": true, "pubsubname": true, "partitionkey": true, "traceparent": true, "tracestate": true,
}

// appendCloudEvent writes an event as a CloudEvent 1.0 in JSON, with the attributes that it was
// published with, and Dapr's topic and pubsubname.
func appendCloudEvent(dst []byte, ev *wire.Event, pubsub string) []byte {
	attribute := func(name, value string) {
		dst = append(codec.AppendString(append(dst, ','), name), ':')
		dst = codec.AppendString(dst, value)
	}
	kept := func(name, otherwise string) string {
		if value, ok := ev.Headers.Get(cePrefix + name); ok {
			return value
		}
		return otherwise
	}
	dst = append(dst, `{"specversion":"1.0"`...)
	attribute("id", ev.ID)
	attribute("source", kept("source", plainSource))
	attribute("type", kept("type", plainType))
	attribute("time", kept("time", time.UnixMilli(ev.TS).UTC().Format("2006-01-02T15:04:05.000Z07:00")))
	attribute("topic", ev.Topic)
	attribute("pubsubname", pubsub)
	if ev.Key != "" {
		attribute("partitionkey", ev.Key)
	}
	for _, name := range traceHeaders {
		if value, ok := ev.Headers.Get(name); ok {
			attribute(name, value)
		}
	}
	for _, h := range ev.Headers {
		if name, ok := strings.CutPrefix(h.Name, cePrefix); ok && !given[name] && isAttribute(name) {
			attribute(name, h.Value)
		}
	}
	contentType, has := ev.Headers.Get("content-type")
	if !has && !ev.Binary {
		contentType, has = "application/json", true
	}
	if has {
		attribute("datacontenttype", contentType)
	}
	switch {
	case !ev.Binary:
		dst = append(append(dst, `,"data":`...), ev.Payload...)
	case isText(contentType) && utf8.Valid(ev.Payload):
		attribute("data", string(ev.Payload))
	default:
		attribute("data_base64", base64.StdEncoding.EncodeToString(ev.Payload))
	}
	return append(dst, '}')
}

// isAttribute reports whether a CloudEvent can have an attribute of that name.
func isAttribute(name string) bool {
	return name != "" && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789") == ""
}

// isText reports whether data of a type is text, which JSON holds as a string.
func isText(contentType string) bool {
	media, _, _ := strings.Cut(strings.ToLower(contentType), ";")
	media = strings.TrimSpace(media)
	return strings.HasPrefix(media, "text/") && media != "text/json" || strings.HasSuffix(media, "xml")
}

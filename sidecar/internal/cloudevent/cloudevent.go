// Package cloudevent gives events out as CloudEvents 1.0, by their JSON format and HTTP binding:
// https://github.com/cloudevents/spec. It knows the event, and nothing of who gets it.
package cloudevent

import (
	"encoding/base64"
	"encoding/json"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
)

const (
	// SpecVersion is the version of the specification.
	SpecVersion = "1.0"
	// MediaType is the type of a CloudEvent in JSON.
	MediaType = "application/cloudevents+json"
	// HeaderPrefix begins the names of the event's headers that keep attributes.
	HeaderPrefix = "ce-"
)

// trace are the event's headers that become extensions of their own names.
var trace = []string{"traceparent", "tracestate"}

// elsewhere are the attributes that do not come from headers with the prefix.
var elsewhere = append([]string{"specversion", "id", "source", "type", "time", "datacontenttype", "data", "partitionkey"}, trace...)

// Attribute is an optional attribute of a CloudEvent, or an extension.
type Attribute struct{ Name, Value string }

// Envelope is an event as a CloudEvent.
type Envelope struct {
	ID, Source, Type string
	ContentType      string // "": none
	Others           []Attribute
	Payload          []byte // nil: there is no data
	Binary           bool   // else the payload is JSON
}

// Plain is an event as a CloudEvent. One that came as no CloudEvent has its topic as type, and as source the topic's path. One that came
// as a CloudEvent has what it came with: no time and no data where it had none.
func Plain(ev *wire.Event) *Envelope {
	e := Of(ev, "/topics/"+ev.Topic, ev.Topic)
	if _, came := ev.Headers.Get(HeaderPrefix + "specversion"); !came {
		return e
	}
	if _, timed := ev.Headers.Get(HeaderPrefix + "time"); !timed {
		e.Others = slices.DeleteFunc(e.Others, func(a Attribute) bool { return a.Name == "time" })
	}
	if _, typed := ev.Headers.Get("content-type"); !typed && !ev.Binary && string(ev.Payload) == "null" {
		e.ContentType, e.Payload = "", nil
	}
	return e
}

// Form is how events are written in a format of the contract's; "" is wire.FormatEvent.
func Form(format string) codec.Form {
	if format == wire.FormatCloudEvents {
		return func(dst []byte, ev *wire.Event) []byte { return Plain(ev).AppendJSON(dst) }
	}
	return codec.AppendEventJSON
}

// Of is an event as a CloudEvent; source and kind are those of one that came as no CloudEvent. Of the extensions that are added those
// without a value are left out, also where the event has one of that name.
func Of(ev *wire.Event, source, kind string, extensions ...Attribute) *Envelope {
	kept := func(name, otherwise string) string {
		if value, ok := ev.Headers.Get(name); ok {
			return value
		}
		return otherwise
	}
	e := &Envelope{
		ID: kept(HeaderPrefix+"id", ev.ID), Source: kept(HeaderPrefix+"source", source), Type: kept(HeaderPrefix+"type", kind),
		ContentType: kept("content-type", ""), Payload: ev.Payload, Binary: ev.Binary,
	}
	if e.ContentType == "" && !ev.Binary {
		e.ContentType = "application/json"
	}
	add := func(name, value string) {
		if value != "" {
			e.Others = append(e.Others, Attribute{name, value})
		}
	}
	add("time", kept(HeaderPrefix+"time", time.UnixMilli(ev.TS).UTC().Format("2006-01-02T15:04:05.000Z07:00")))
	for _, x := range extensions {
		add(x.Name, x.Value)
	}
	add("partitionkey", ev.Key)
	for _, name := range trace {
		add(name, kept(name, ""))
	}
	for _, h := range ev.Headers {
		name, ok := strings.CutPrefix(h.Name, HeaderPrefix)
		added := slices.ContainsFunc(extensions, func(x Attribute) bool { return x.Name == name })
		if ok && !added && !slices.Contains(elsewhere, name) && isName(name) {
			e.Others = append(e.Others, Attribute{name, h.Value})
		}
	}
	return e
}

// isName reports whether an attribute can have that name.
func isName(name string) bool {
	return name != "" && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789") == ""
}

// IsText reports whether the data is text, which JSON holds as a string.
func (e *Envelope) IsText() bool {
	media, parameters, _ := mime.ParseMediaType(e.ContentType)
	switch strings.ToLower(parameters["charset"]) {
	case "", "utf-8", "us-ascii":
	default:
		return false
	}
	isText := strings.HasPrefix(media, "text/") && media != "text/json" || strings.HasSuffix(media, "xml")
	return isText && utf8.Valid(e.Payload)
}

// AppendJSON writes the CloudEvent in JSON.
func (e *Envelope) AppendJSON(dst []byte) []byte {
	add := func(name, value string) {
		dst = append(codec.AppendString(append(dst, ','), name), ':')
		dst = codec.AppendString(dst, value)
	}
	dst = append(dst, `{"specversion":"`+SpecVersion+`"`...)
	add("id", e.ID)
	add("source", e.Source)
	add("type", e.Type)
	for _, a := range e.Others {
		add(a.Name, a.Value)
	}
	if e.ContentType != "" {
		add("datacontenttype", e.ContentType)
	}
	switch {
	case e.Payload == nil:
	case !e.Binary:
		dst = append(append(dst, `,"data":`...), e.Payload...)
	case e.IsText():
		add("data", string(e.Payload))
	default:
		add("data_base64", base64.StdEncoding.EncodeToString(e.Payload))
	}
	return append(dst, '}')
}

// Map is the CloudEvent for rules.
func (e *Envelope) Map() map[string]any {
	m := map[string]any{"specversion": SpecVersion, "id": e.ID, "source": e.Source, "type": e.Type, "datacontenttype": e.ContentType}
	for _, a := range e.Others {
		m[a.Name] = a.Value
	}
	switch {
	case !e.Binary:
		var data any
		_ = json.Unmarshal(e.Payload, &data) // which was checked when it was published; a number beyond a float's range is left out
		m["data"] = data
	case e.IsText():
		m["data"] = string(e.Payload)
	default:
		m["data_base64"] = base64.StdEncoding.EncodeToString(e.Payload)
	}
	return m
}

// SetHeaders sets the headers of a request whose body is the payload.
func (e *Envelope) SetHeaders(h http.Header) {
	set := func(name, value string) { h.Set(HeaderPrefix+name, escape(value)) }
	set("specversion", SpecVersion)
	set("id", e.ID)
	set("source", e.Source)
	set("type", e.Type)
	for _, a := range e.Others {
		set(a.Name, a.Value)
	}
	if e.ContentType != "" {
		h.Set("Content-Type", e.ContentType)
	}
}

// escape percent-encodes what the HTTP binding wants encoded in a header: all but visible ASCII, and " and %.
func escape(value string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(value) {
		if c := value[i]; c > ' ' && c <= '~' && c != '"' && c != '%' {
			b.WriteByte(c)
		} else {
			b.Write([]byte{'%', hex[c>>4], hex[c&15]})
		}
	}
	return b.String()
}

package ingest

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/sidecar/internal/refusal"
)

// Publishing CloudEvents 1.0, by their HTTP binding and JSON format:
// https://github.com/cloudevents/spec. In this package an attribute is a string in its canonical
// form, in every mode.

// The media types of CloudEvents in JSON.
const (
	mediaCloudEvents = "application/cloudevents"
	mediaStructured  = "application/cloudevents+json"
	mediaBatched     = "application/cloudevents-batch+json"
)

// cePrefix begins the request headers with attributes in binary mode, in net/http's spelling. In
// lower case it begins the event's headers that keep attributes.
const cePrefix = "Ce-"

// attributes are those of one CloudEvent, by name, without datacontenttype.
type attributes map[string]string

// check returns an error that names an attribute that is missing or does not follow the
// specification.
func (a attributes) check() *wire.Error {
	for _, name := range []string{"specversion", "id", "source", "type"} {
		switch value, given := a[name]; {
		case !given:
			return wire.Errorf(wire.BadRequest, "the CloudEvent's attribute %s is missing", name)
		case value == "":
			return wire.Errorf(wire.BadRequest, "the CloudEvent's attribute %s is empty", name)
		}
	}
	if v := a["specversion"]; v != "1.0" {
		return wire.Errorf(wire.BadRequest, "the CloudEvent's attribute specversion is %q; only 1.0 is taken", refusal.Shorten(v))
	}
	if err := codec.CheckID(a["id"]); err != nil {
		return wire.Errorf(err.Code, "the CloudEvent's attribute %s", err.Msg)
	}
	for _, name := range slices.Sorted(maps.Keys(a)) {
		if err := checkAttribute(name, a[name]); err != nil {
			return err
		}
	}
	return nil
}

// checkAttribute checks the rules for every attribute.
func checkAttribute(name, value string) *wire.Error {
	switch {
	case name == "" || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789") != "":
		return wire.Errorf(wire.BadRequest, "%q cannot be a CloudEvent's attribute: names are of a-z and 0-9", refusal.Shorten(name))
	case name == "data":
		return wire.Errorf(wire.BadRequest, "a CloudEvent has no attribute data: that is its body")
	case value == "" && (name == "subject" || name == "dataschema" || name == "time"):
		return wire.Errorf(wire.BadRequest, "the CloudEvent's attribute %s is empty; leave it out", name)
	case !utf8.ValidString(value):
		return wire.Errorf(wire.BadRequest, "the CloudEvent's attribute %s is not valid UTF-8", name)
	case strings.ContainsFunc(value, unicode.IsControl):
		return wire.Errorf(wire.BadRequest, "the CloudEvent's attribute %s holds a control character", name)
	}
	return nil
}

// eventTime is the ts from an event's time; false if the time is before the epoch, or later than a
// ts may be.
func eventTime(value string) (ts int64, fits bool, err *wire.Error) {
	t, bad := time.Parse(time.RFC3339Nano, strings.ToUpper(value))
	if bad != nil {
		return 0, false, wire.Errorf(wire.BadRequest, "the CloudEvent's attribute time is %q, which is no time as RFC 3339 writes it",
			refusal.Shorten(value))
	}
	ts = t.UnixMilli()
	return ts, codec.CheckTS(ts) == nil, nil
}

// ceTrace are the extensions that go into the event's trace headers.
var ceTrace = []string{"traceparent", "tracestate"}

// The extensions that set the ttl_ms and the delivery time of the event.
const (
	ceTTL       = "ttlms"
	ceDeliverAt = "deliverat"
	ceDelay     = "delayms"
)

// fill puts the attributes into an event that already has the values of the request's own headers.
// The two must agree, with two exceptions: the ts header wins over the attribute time, and the
// trace headers win over the trace attributes.
func (a attributes) fill(it *wire.PublishItem) *wire.Error {
	if err := a.check(); err != nil {
		return err
	}
	e := &it.Event
	if e.ID != "" && e.ID != a["id"] {
		return wire.Errorf(wire.BadRequest, "the CloudEvent's attribute id and the header %s or %s differ: an event has one id",
			headerIdempotencyKey, headerID)
	}
	e.ID, it.CloudEvent = a["id"], true
	if key := a["partitionkey"]; key != "" {
		if e.Key != "" && e.Key != key {
			return wire.Errorf(wire.BadRequest, "the CloudEvent's attribute partitionkey and the header %s differ: an event has one key", headerKey)
		}
		e.Key = key
	}
	if value, given := a[ceTTL]; given {
		ttl, err := ttlMS("the CloudEvent's attribute "+ceTTL, value, 1)
		if err != nil {
			return err
		}
		if e.TTLMS != 0 && e.TTLMS != ttl {
			return wire.Errorf(wire.BadRequest, "the CloudEvent's attribute %s and the header %s differ: an event has one ttl", ceTTL, headerTTL)
		}
		e.TTLMS = ttl
	}
	if err := a.later(&it.Later); err != nil {
		return err
	}
	if value, given := a["time"]; given {
		ts, fits, err := eventTime(value)
		if err != nil {
			return err
		}
		if fits && !it.HasTS && !it.Later.Given() {
			e.TS, it.HasTS = ts, true
		}
	}
	a.addHeaders(e)
	return nil
}

// later reads the delivery time of a CloudEvent.
func (a attributes) later(l *wire.Later) *wire.Error {
	for _, of := range []struct {
		name, kind string
		read       func(string) *int64
		to         **int64
	}{
		{ceDeliverAt, "a time, in milliseconds since the epoch or as RFC 3339 writes it, is", timeMS, &l.DeliverAt},
		{ceDelay, "a whole number of milliseconds is", wholeMS, &l.DelayMS},
	} {
		value, given := a[of.name]
		if !given {
			continue
		}
		at := of.read(value)
		if at == nil {
			return wire.Errorf(wire.BadRequest, "the CloudEvent's attribute %s is %q; %s allowed", of.name, refusal.Shorten(value), of.kind)
		}
		if *of.to != nil && **of.to != *at {
			return wire.Errorf(wire.BadRequest, "the CloudEvent's attribute %s and the request's header for the same differ: "+
				"an event is due once", of.name)
		}
		*of.to = at
	}
	return nil
}

// addHeaders keeps as headers the attributes that set nothing else of the event. They replace
// headers of the same names from the request.
func (a attributes) addHeaders(e *wire.Event) {
	_, traced := e.Headers.Get(ceTrace[0])
	given := e.Headers
	added := make(wire.Headers, 0, len(a)+len(given))
	for name, value := range a {
		switch {
		case name == "id" || name == "partitionkey" || name == ceTTL || name == ceDeliverAt || name == ceDelay:
			continue
		case slices.Contains(ceTrace, name) && !traced && value != "":
		default:
			name = strings.ToLower(cePrefix) + name
		}
		given = slices.DeleteFunc(given, func(h wire.Header) bool { return h.Name == name })
		added = append(added, wire.Header{Name: name, Value: value})
	}
	e.Headers = append(added, given...)
	slices.SortFunc(e.Headers, func(a, b wire.Header) int { return strings.Compare(a.Name, b.Name) })
}

// setData puts data into an event. Data that is not JSON stays bytes, and keeps its content type.
// So does JSON of a type other than application/json, or with parameters, since the type says more than JSON. No data
// is null, or no bytes; a null that was given keeps its type, too, which tells it from no data.
func setData(it *wire.PublishItem, of contentType, json bool, data []byte, lim wire.Limits) (err *wire.Error) {
	e := &it.Event
	if of.text != "" && (!json || of.text != mediaJSON || string(bytes.TrimSpace(data)) == "null") {
		e.Headers = e.Headers.With(eventContentType, of.text)
	}
	switch {
	case !json:
		e.Payload, e.Binary = data, true
		err = codec.CheckPayloadBytes(data, lim)
	case len(data) == 0:
		e.Payload = []byte("null")
	default:
		e.Payload, err = codec.CompactPayload(data, lim)
	}
	return err
}

// checkItem checks the key and the headers, which may come from request headers and attributes.
func checkItem(it *wire.PublishItem, lim wire.Limits) (err *wire.Error) {
	if err = codec.CheckKey(it.Event.Key, lim); err == nil {
		it.Event.Headers, err = codec.PublisherHeaders(it.Event.Headers, lim)
	}
	return err
}

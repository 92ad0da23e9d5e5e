package gateway

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/sidecar/internal/refusal"
)

// The request headers that describe the event whose payload is the body.
const (
	headerIdempotencyKey = "Idempotency-Key"
	headerID             = "Sluice-Id"
	headerKey            = "Sluice-Key"
	headerTS             = "Sluice-Ts"
	headerTTL            = "Sluice-Ttl-Ms"
	headerDeliverAt      = "Sluice-Deliver-At"
	headerDelay          = "Sluice-Delay-Ms"
	headerPrefix         = "Sluice-Header-"
)

// eventContentType is the event's header that keeps the type of a payload that is not JSON.
const eventContentType = "content-type"

// traceHeaders are kept as the event's headers of the same names. traceparent has one value by its
// definition. The others are lists, and may be split over several lines.
var traceHeaders = []string{"Traceparent", "Tracestate", "Baggage"}

// body says how a request's body is read.
type body int

const (
	jsonBody  body = iota // a payload of JSON
	bytesBody             // a payload of any other kind
	linesBody             // NDJSON: an event per line

	// CloudEvents.
	binaryBody     // the data of one CloudEvent, whose attributes are headers
	structuredBody // one CloudEvent, as a JSON object
	batchedBody    // an array of such objects
)

// bodyOf finds the kind of body from the content type. A body without a type is JSON, and so is one
// with the type of forms, since that is curl's default for every body.
func bodyOf(h http.Header) (body, *wire.Error) {
	contentType, _, err := singleHeader(h, "Content-Type")
	if err != nil {
		return 0, err
	}
	if encoding := h.Get("Content-Encoding"); encoding != "" && !strings.EqualFold(encoding, "identity") {
		return 0, wire.Errorf(wire.BadRequest, "Content-Encoding %q: a body that is compressed is not understood", refusal.Shorten(encoding))
	}
	switch media := mediaOf(contentType); {
	case media == mediaStructured:
		return structuredBody, nil
	case media == mediaBatched:
		return batchedBody, nil
	case strings.HasPrefix(media, mediaCloudEvents):
		return 0, wire.Errorf(wire.BadRequest, "Content-Type %q is not understood: CloudEvents come as %s, as %s, or in ce- headers",
			refusal.Shorten(media), mediaStructured, mediaBatched)
	case firstWithPrefix(h, cePrefix) != "":
		return binaryBody, nil
	case media == "application/x-ndjson":
		return linesBody, nil
	case media == "", media == "application/json", media == "application/x-www-form-urlencoded",
		strings.HasSuffix(media, "+json"):
		return jsonBody, nil
	}
	return bytesBody, nil
}

// itemOf makes an event of a request's headers and body, within the limits; kind is not linesBody
// or batchedBody.
func itemOf(topic string, h http.Header, kind body, payload []byte, lim wire.Limits) (it wire.PublishItem, err *wire.Error) {
	switch kind {
	case binaryBody:
		return binaryItemOf(topic, h, payload, lim)
	case structuredBody:
		return structuredItemOf(topic, h, payload, lim)
	}
	if err = fillFromHeaders(&it, topic, h, kind, lim); err != nil {
		return it, err
	}
	if kind == bytesBody {
		it.Event.Payload, it.Event.Binary = payload, true
		return it, codec.CheckPayloadBytes(payload, lim)
	}
	it.Event.Payload, err = codec.CompactPayload(payload, lim)
	return it, err
}

// fillFromHeaders reads the properties of an event from the request's headers.
func fillFromHeaders(it *wire.PublishItem, topic string, h http.Header, kind body, lim wire.Limits) (err *wire.Error) {
	e := &it.Event
	e.Topic = topic
	if e.ID, err = idOf(h); err != nil {
		return err
	}
	if e.Key, _, err = singleHeader(h, headerKey); err != nil {
		return err
	}
	if err = codec.CheckKey(e.Key, lim); err != nil {
		return err
	}
	ts, given, err := singleHeader(h, headerTS)
	if err != nil {
		return err
	}
	if given {
		at := wholeMS(ts)
		if at == nil {
			return wire.Errorf(wire.BadRequest, "header %s is %q; a whole number of milliseconds from 0 to %d is allowed", headerTS, refusal.Shorten(ts), int64(wire.MaxTS))
		}
		e.TS, it.HasTS = *at, true
	}
	ttl, given, err := singleHeader(h, headerTTL)
	if given && err == nil {
		e.TTLMS, err = ttlText("header "+headerTTL, ttl, 1)
	}
	if err != nil {
		return err
	}
	if it.Later, err = laterOf(h); err != nil {
		return err
	}
	e.Headers, err = headersOf(h, kind, lim)
	return err
}

// singleHeader is the value of a header that may occur once, in UTF-8.
func singleHeader(h http.Header, name string) (value string, given bool, err *wire.Error) {
	values := h[http.CanonicalHeaderKey(name)]
	switch {
	case len(values) == 0:
		return "", false, nil
	case len(values) > 1:
		return "", true, wire.Errorf(wire.BadRequest, "header %s is given %d times; give it once", name, len(values))
	case !utf8.ValidString(values[0]):
		return "", true, wire.Errorf(wire.BadRequest, "header %s is not valid UTF-8", name)
	}
	return values[0], true, nil
}

// firstWithPrefix is the first header, by name, whose name begins with a prefix; "": there is none.
func firstWithPrefix(h http.Header, prefix string) (first string) {
	for name := range h {
		if strings.HasPrefix(name, prefix) && (first == "" || name < first) {
			first = name
		}
	}
	return first
}

// idOf is the event's id; "" if neither header is given.
func idOf(h http.Header) (string, *wire.Error) {
	var id string
	for _, name := range []string{headerIdempotencyKey, headerID} {
		value, given, err := singleHeader(h, name)
		if err != nil {
			return "", err
		}
		if !given {
			continue
		}
		if err := codec.CheckID(value); err != nil {
			return "", wire.Errorf(err.Code, "header %s: %s", name, err.Msg)
		}
		if id != "" && id != value {
			return "", wire.Errorf(wire.BadRequest, "headers %s and %s differ: an event has one id", headerIdempotencyKey, headerID)
		}
		id = value
	}
	return id, nil
}

// ttlText reads a ttl in units of so many milliseconds.
func ttlText(name, value string, unit int64) (int64, *wire.Error) {
	n, err := strconv.ParseUint(value, 10, 63)
	if err != nil || n < 1 || n > uint64(wire.MaxTTLMS/unit) {
		return 0, wire.Errorf(wire.BadRequest, "%s is %q; a whole number from 1 to %d is allowed", name, refusal.Shorten(value), wire.MaxTTLMS/unit)
	}
	return int64(n) * unit, nil
}

// headersOf are the event's headers, by name.
func headersOf(h http.Header, kind body, lim wire.Limits) (out wire.Headers, err *wire.Error) {
	add := func(name, source string) {
		var value string
		if value, _, err = singleHeader(h, source); err == nil {
			out = append(out, wire.Header{Name: strings.ToLower(name), Value: value})
		}
	}
	for source := range h {
		if name, ok := strings.CutPrefix(source, headerPrefix); ok {
			if add(name, source); err != nil {
				return nil, err
			}
		}
	}
	for i, name := range traceHeaders {
		values := h[name]
		switch {
		case len(values) > 1 && i > 0:
			out = append(out, wire.Header{Name: strings.ToLower(name), Value: strings.Join(values, ",")})
		case len(values) > 0:
			add(name, name)
		}
	}
	if kind == bytesBody {
		add(eventContentType, "Content-Type")
	}
	if err != nil {
		return nil, err
	}
	slices.SortFunc(out, func(a, b wire.Header) int { return strings.Compare(a.Name, b.Name) })
	return out, codec.CheckHeaders(out, lim)
}

package ingest

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/sluice-bus/sluice/internal/httpapi"
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

// traceHeaders are kept as the event's headers of the same names.
var traceHeaders = []string{"Traceparent", "Tracestate", "Baggage"}

// isList reports whether a trace header is a list, which may be split over several lines.
func isList(name string) bool { return name == "Tracestate" || name == "Baggage" }

// kind says how a request's body is read.
type kind int

const (
	jsonBody  kind = iota // a payload of JSON
	bytesBody             // a payload of any other kind
	linesBody             // NDJSON: an event per line

	// CloudEvents.
	binaryBody     // the data of one CloudEvent, whose attributes are headers
	structuredBody // one CloudEvent, as a JSON object
	batchedBody    // an array of such objects
)

func (k kind) isBatch() bool { return k == linesBody || k == batchedBody }

// maxBytes is how long a body of the kind may be. The JSON text of a payload may be twice as long
// as its compact form.
func (k kind) maxBytes(lim wire.Limits) int {
	const jsonSlack = 2
	switch k {
	case bytesBody:
		return lim.PayloadBytes
	case linesBody, batchedBody:
		return lim.BatchBytes
	case structuredBody:
		return jsonSlack * (lim.PayloadBytes + lim.HeaderBytes)
	}
	return jsonSlack * lim.PayloadBytes
}

// contentType is the type of a payload; media is it without parameters, in lower case.
type contentType struct{ text, media string }

const (
	mediaJSON = "application/json"
	mediaText = "text/plain"
	mediaForm = "application/x-www-form-urlencoded" // curl's default for every body
)

func parseContentType(text string) contentType {
	media, _, _ := strings.Cut(text, ";")
	return contentType{text, strings.ToLower(strings.TrimSpace(media))}
}

// isJSON reports whether data of the type is JSON. Data without a type is.
func (c contentType) isJSON() bool {
	return c.media == "" || strings.HasSuffix(c.media, "/json") || strings.HasSuffix(c.media, "+json")
}

// head has the headers of a request, and what they say of its body.
type head struct {
	http.Header
	contentType contentType
	kind        kind
}

// readHead finds the kind of body from the content type. A body without a type is JSON, and so is
// one with the type of forms.
func readHead(h http.Header) (head, *wire.Error) {
	h, bad := withDecoded(h)
	if bad != nil {
		return head{}, bad
	}
	text, _, bad := httpapi.SingleHeader(h, "Content-Type")
	if bad != nil {
		return head{}, bad
	}
	out := head{Header: h, contentType: parseContentType(text), kind: bytesBody}
	switch media := out.contentType.media; {
	case media == mediaStructured:
		out.kind = structuredBody
	case media == mediaBatched:
		out.kind = batchedBody
	case strings.HasPrefix(media, mediaCloudEvents):
		return head{}, wire.Errorf(wire.BadRequest, "Content-Type %q is not understood: CloudEvents come as %s, as %s, or in ce- headers",
			refusal.Shorten(media), mediaStructured, mediaBatched)
	case out.firstWithPrefix(cePrefix) != "":
		out.kind = binaryBody
	case media == "application/x-ndjson":
		out.kind = linesBody
	case media == "", media == mediaJSON, media == mediaForm, strings.HasSuffix(media, "+json"):
		out.kind = jsonBody
	}
	return out, nil
}

// withDecoded is a request's headers with the plain form of a key and of event's headers that are encoded: their names end in an
// asterisk, and their values are UTF-8, two apostrophes and percent-encoded text, as RFC 8187 has it.
func withDecoded(h http.Header) (http.Header, *wire.Error) {
	var out http.Header // a copy, where something is encoded
	for name, values := range h {
		plain, encoded := strings.CutSuffix(name, "*")
		if !encoded || plain != headerKey && !strings.HasPrefix(name, headerPrefix) {
			continue
		}
		if out == nil {
			out = h.Clone()
		}
		charset, rest, _ := strings.Cut(values[0], "'")
		_, text, ok := strings.Cut(rest, "'")
		value, err := url.PathUnescape(text)
		switch {
		case len(values) > 1:
			return nil, wire.Errorf(wire.BadRequest, "header %s is given %d times; give it once", name, len(values))
		case !ok || err != nil || !strings.EqualFold(charset, "UTF-8") || !utf8.ValidString(value):
			return nil, wire.Errorf(wire.BadRequest, "header %s is %q; UTF-8'' and percent-encoded UTF-8 is allowed, such as UTF-8''%%E2%%82%%AC",
				name, refusal.Shorten(values[0]))
		case h[plain] != nil && h.Get(plain) != value:
			return nil, wire.Errorf(wire.BadRequest, "headers %s and %s differ; give one of them", plain, name)
		}
		delete(out, name)
		out[plain] = []string{value}
	}
	if out == nil {
		return h, nil
	}
	return out, nil
}

// firstWithPrefix is the first header, by name, whose name begins with a prefix; "": there is none.
func (h *head) firstWithPrefix(prefix string) (first string) {
	for name := range h.Header {
		if strings.HasPrefix(name, prefix) && (first == "" || name < first) {
			first = name
		}
	}
	return first
}

// ofOneEvent is a header that describes a single event; "": there is none.
func (h *head) ofOneEvent() string {
	for _, name := range []string{headerIdempotencyKey, headerID, headerKey, headerTS, headerTTL, headerDeliverAt, headerDelay} {
		if _, given := h.Header[name]; given {
			return name
		}
	}
	return h.firstWithPrefix(headerPrefix)
}

// fill sets what the headers say of the event.
func (h *head) fill(it *wire.PublishItem, lim wire.Limits) (bad *wire.Error) {
	e := &it.Event
	if e.ID, bad = h.id(); bad != nil {
		return bad
	}
	if e.Key, _, bad = httpapi.SingleHeader(h.Header, headerKey); bad != nil {
		return bad
	}
	if bad = codec.CheckKey(e.Key, lim); bad != nil {
		return bad
	}
	ts, bad := h.wholeMS(headerTS, wire.MaxTS)
	if bad != nil {
		return bad
	}
	if ts != nil {
		e.TS, it.HasTS = *ts, true
	}
	if it.Later.DeliverAt, bad = h.wholeMS(headerDeliverAt, wire.MaxTS); bad != nil {
		return bad
	}
	if it.Later.DelayMS, bad = h.wholeMS(headerDelay, wire.MaxLaterMS); bad != nil {
		return bad
	}
	ttl, given, bad := httpapi.SingleHeader(h.Header, headerTTL)
	if given && bad == nil {
		e.TTLMS, bad = ttlMS("header "+headerTTL, ttl, 1)
	}
	if bad != nil {
		return bad
	}
	e.Headers, bad = h.eventHeaders(lim)
	return bad
}

// id is the event's id; "" if no header gives it.
func (h *head) id() (id string, bad *wire.Error) {
	for _, name := range []string{headerIdempotencyKey, headerID} {
		value, given, bad := httpapi.SingleHeader(h.Header, name)
		if bad != nil {
			return "", bad
		}
		if !given {
			continue
		}
		if bad := codec.CheckID(value); bad != nil {
			return "", wire.Errorf(bad.Code, "header %s: %s", name, bad.Msg)
		}
		if id != "" && id != value {
			return "", wire.Errorf(wire.BadRequest, "headers %s and %s differ: an event has one id", headerIdempotencyKey, headerID)
		}
		id = value
	}
	return id, nil
}

// wholeMS reads a header with milliseconds; nil if it is not given.
func (h *head) wholeMS(name string, most int64) (*int64, *wire.Error) {
	text, given, bad := httpapi.SingleHeader(h.Header, name)
	if bad != nil || !given {
		return nil, bad
	}
	ms := wholeMS(text)
	if ms == nil || *ms > most {
		return nil, wire.Errorf(wire.BadRequest, "header %s is %q; a whole number of milliseconds from 0 to %d is allowed",
			name, refusal.Shorten(text), most)
	}
	return ms, nil
}

// eventHeaders are the event's headers, by name.
func (h *head) eventHeaders(lim wire.Limits) (out wire.Headers, bad *wire.Error) {
	add := func(name, value string) { out = append(out, wire.Header{Name: strings.ToLower(name), Value: value}) }
	for source, values := range h.Header {
		name, ours := strings.CutPrefix(source, headerPrefix)
		switch {
		case !ours && (!slices.Contains(traceHeaders, source) || len(values) > 1 && !isList(source)): // two are none
		case isList(source) && len(values) > 1:
			add(name, strings.Join(values, ","))
		default:
			value, _, bad := httpapi.SingleHeader(h.Header, source)
			if bad != nil {
				return nil, bad
			}
			add(name, value)
		}
	}
	if h.kind == bytesBody {
		add(eventContentType, h.contentType.text)
	}
	slices.SortFunc(out, func(a, b wire.Header) int { return strings.Compare(a.Name, b.Name) })
	return codec.PublisherHeaders(out, lim)
}

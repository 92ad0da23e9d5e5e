package tracing

import (
	"encoding/hex"
	"slices"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/trace"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// The event's headers that carry a trace, by W3C's Trace Context.
const (
	headerParent  = "traceparent"
	headerState   = "tracestate"
	headerBaggage = "baggage"
)

// contextOf reads the context in an event's headers, except for its state; the zero value if there
// is no readable one.
func contextOf(h wire.Headers) trace.SpanContext {
	parent, ok := h.Get(headerParent)
	if !ok {
		return trace.SpanContext{}
	}
	c, ok := parseParent(parent)
	if !ok {
		return trace.SpanContext{}
	}
	return trace.NewSpanContext(c)
}

// withState adds the state in the headers. That costs time, so it is done only for a span. An
// unreadable state counts as none.
func withState(sc trace.SpanContext, h wire.Headers) trace.SpanContext {
	text, ok := h.Get(headerState)
	if !ok || !sc.SpanID().IsValid() {
		return sc
	}
	state, err := trace.ParseTraceState(text)
	if err != nil {
		return sc
	}
	return sc.WithTraceState(state)
}

// The parts of a traceparent: version, trace, span and flags, in hexadecimal digits with hyphens
// between them.
const (
	parentLength = 55
	traceAt      = 3
	spanAt       = 36
	flagsAt      = 53
)

// parseParent reads a traceparent. In versions later than 00, more may follow the flags.
func parseParent(s string) (c trace.SpanContextConfig, ok bool) {
	if len(s) < parentLength || s[traceAt-1] != '-' || s[spanAt-1] != '-' || s[flagsAt-1] != '-' {
		return c, false
	}
	version, err1 := strconv.ParseUint(s[:traceAt-1], 16, 8)
	flags, err2 := strconv.ParseUint(s[flagsAt:parentLength], 16, 8)
	var err3, err4 error
	c.TraceID, err3 = trace.TraceIDFromHex(s[traceAt : spanAt-1])
	c.SpanID, err4 = trace.SpanIDFromHex(s[spanAt : flagsAt-1])
	switch {
	case err1 != nil || err2 != nil || err3 != nil || err4 != nil || version == 0xff:
		return c, false
	case strings.ContainsAny(s[:traceAt], "ABCDEF"), strings.ContainsAny(s[flagsAt:parentLength], "ABCDEF"): // only lower case is allowed
		return c, false
	case version == 0 && (len(s) != parentLength || flags > 3):
		return c, false
	case len(s) > parentLength && s[parentLength] != '-':
		return c, false
	}
	c.TraceFlags = trace.TraceFlags(flags) & (trace.FlagsSampled | trace.FlagsRandom)
	c.Remote = true
	return c, true
}

// parentText is the traceparent of a context.
func parentText(sc trace.SpanContext) string {
	id, span := sc.TraceID(), sc.SpanID()
	b := make([]byte, 0, parentLength)
	b = append(b, "00-"...)
	b = hex.AppendEncode(b, id[:])
	b = append(b, '-')
	b = hex.AppendEncode(b, span[:])
	b = append(b, '-')
	return string(hex.AppendEncode(b, []byte{byte(sc.TraceFlags())}))
}

// isBroken reports whether a header has a trace context with a line break or a zero byte.
func isBroken(x wire.Header) bool {
	return (x.Name == headerParent || x.Name == headerState || x.Name == headerBaggage) && strings.ContainsAny(x.Value, "\r\n\x00")
}

// withoutBroken returns headers without broken contexts, and does not change the given ones.
func withoutBroken(h wire.Headers) wire.Headers {
	if !slices.ContainsFunc(h, isBroken) {
		return h
	}
	return slices.DeleteFunc(slices.Clone(h), isBroken)
}

// withContext returns headers with sc, and does not change the given ones. A tracestate stays if it
// belongs to the trace: root says that sc has begun a new one.
func withContext(h wire.Headers, sc trace.SpanContext, root bool) wire.Headers {
	out := make(wire.Headers, 0, len(h)+1)
	out = append(out, h...)
	at := slices.IndexFunc(out, func(x wire.Header) bool { return x.Name == headerParent })
	if at < 0 {
		out = append(out, wire.Header{Name: headerParent})
		at = len(out) - 1
	}
	out[at].Value = parentText(sc)
	if root {
		out = slices.DeleteFunc(out, func(x wire.Header) bool { return x.Name == headerState })
	}
	return out
}

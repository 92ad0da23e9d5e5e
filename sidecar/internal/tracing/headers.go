package tracing

import (
	"encoding/hex"
	"slices"
	"strconv"

	"go.opentelemetry.io/otel/trace"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
)

// The event's headers that carry a trace, by W3C's Trace Context, and its baggage.
const (
	headerParent = "traceparent"
	headerState  = "tracestate"

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

// The places of a traceparent's parts.
const (
	parentLength = 55
	traceAt      = 3
	spanAt       = 36
	flagsAt      = 53
)

// parseParent reads a traceparent.
func parseParent(s string) (c trace.SpanContextConfig, ok bool) {
	if !codec.IsTraceParent(s) {
		return c, false
	}
	c.TraceID, _ = trace.TraceIDFromHex(s[traceAt : spanAt-1])
	c.SpanID, _ = trace.SpanIDFromHex(s[spanAt : flagsAt-1])
	flags, _ := strconv.ParseUint(s[flagsAt:parentLength], 16, 8)
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

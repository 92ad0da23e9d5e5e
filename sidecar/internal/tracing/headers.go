package tracing

import (
	"encoding/hex"
	"slices"
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

// contextOf reads the context that an event's headers carry, except for its state;
// the zero value where there is none, or none that can be read.
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

// withState adds the state that the headers carry, which takes time that only a
// span is worth. One that cannot be read is none.
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

// The parts of a traceparent: version, trace, span and flags, in hexadecimal
// digits with hyphens between them.
const (
	parentLength = 55
	traceAt      = 3
	spanAt       = 36
	flagsAt      = 53
)

// parseParent reads a traceparent. Later versions than 00 may have more behind
// the flags.
func parseParent(s string) (c trace.SpanContextConfig, ok bool) {
	if len(s) < parentLength || s[traceAt-1] != '-' || s[spanAt-1] != '-' || s[flagsAt-1] != '-' {
		return c, false
	}
	var version, flags [1]byte
	if !unhex(version[:], s[:2]) || version[0] == 0xff || !unhex(c.TraceID[:], s[traceAt:spanAt-1]) ||
		!unhex(c.SpanID[:], s[spanAt:flagsAt-1]) || !unhex(flags[:], s[flagsAt:parentLength]) {
		return c, false
	}
	switch {
	case version[0] == 0 && (len(s) != parentLength || flags[0] > 3):
		return c, false
	case len(s) > parentLength && s[parentLength] != '-':
		return c, false
	}
	c.TraceFlags = trace.TraceFlags(flags[0]) & (trace.FlagsSampled | trace.FlagsRandom)
	c.Remote = true
	return c, c.TraceID.IsValid() && c.SpanID.IsValid()
}

// unhex decodes lower case hexadecimal digits, two for each byte of dst.
func unhex(dst []byte, s string) bool {
	for i := range dst {
		high, low := digits[s[2*i]], digits[s[2*i+1]]
		if high|low > 0xf {
			return false
		}
		dst[i] = high<<4 | low
	}
	return true
}

// digits are the values of the hexadecimal ones, and more than 15 for all other
// characters.
var digits = func() (d [256]byte) {
	for i := range d {
		d[i] = 0xff
	}
	for i, c := range []byte("0123456789abcdef") {
		d[c] = byte(i)
	}
	return d
}()

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

// isBroken reports whether a header carries a context that would end a line.
func isBroken(x wire.Header) bool {
	return (x.Name == headerParent || x.Name == headerState || x.Name == headerBaggage) && strings.ContainsAny(x.Value, "\r\n\x00")
}

// withoutBroken returns headers without contexts that are broken; those given
// are not changed.
func withoutBroken(h wire.Headers) wire.Headers {
	if !slices.ContainsFunc(h, isBroken) {
		return h
	}
	return slices.DeleteFunc(slices.Clone(h), isBroken)
}

// withContext returns headers that carry sc; those given are not changed. A
// tracestate stays as it is, where it belongs to the trace: root says that sc
// has begun one.
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

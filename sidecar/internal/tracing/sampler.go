package tracing

import (
	"context"
	"encoding/binary"
	"math/rand/v2"

	"go.opentelemetry.io/otel/trace"
)

// place orders traces by their ids: a ratio records the traces below a bound. This is the order of
// OpenTelemetry's own ratio. So if both have a ratio, the lower one counts, and every sidecar
// decides alike.
type place uint64

// places is the number of places.
const places = 1 << 63

func placeOf(id trace.TraceID) place { return place(binary.BigEndian.Uint64(id[8:]) >> 1) }

// placesOf is the bound of a ratio from 0 to 1.
func placesOf(ratio float64) place { return place(ratio * places) }

// sampler predicts the provider's sampler, so that a span that it drops need not be begun. All
// samplers that the environment can name follow the parent, or depend on the trace's id.
type sampler struct {
	sampled   follow // if the parent is recorded
	unsampled follow // if it is not
	below     place  // bound of the recorded roots, and of spans that depend on the id
}

// follow says which spans with a parent are recorded.
type follow uint8

const (
	always follow = iota
	never
	byTrace
)

// learn tries the sampler by beginning spans. It does not end them, so they are never sent.
func learn(t trace.Tracer) (s sampler) {
	recorded := func(parent trace.SpanContextConfig, at place) bool {
		parent.TraceID = idAt(at)
		_, span := t.Start(trace.ContextWithSpanContext(context.Background(), trace.NewSpanContext(parent)), "sampler")
		return span.IsRecording()
	}
	child := func(flags trace.TraceFlags) follow {
		parent := trace.SpanContextConfig{SpanID: trace.SpanID{1}, TraceFlags: flags, Remote: true}
		switch {
		case recorded(parent, places-1):
			return always
		case !recorded(parent, 0):
			return never
		}
		return byTrace
	}
	s.sampled, s.unsampled = child(trace.FlagsSampled), child(0)
	for low, high := place(0), place(places); low < high; {
		at := low + (high-low)/2
		if recorded(trace.SpanContextConfig{}, at) {
			low, s.below = at+1, at+1
		} else {
			high = at
		}
	}
	return s
}

// samples reports whether the provider's sampler would record a span below parent.
func (s sampler) samples(parent trace.SpanContext, at place) bool {
	how := byTrace
	switch {
	case !parent.SpanID().IsValid():
	case parent.IsSampled():
		how = s.sampled
	default:
		how = s.unsampled
	}
	return how == always || how == byTrace && at < s.below
}

// idAt returns a trace id at that place.
func idAt(at place) (id trace.TraceID) {
	id[0] = 1 // an id of zeros would be invalid
	binary.BigEndian.PutUint64(id[8:], uint64(at)<<1)
	return id
}

func newTraceID() (id trace.TraceID) {
	for !id.IsValid() {
		binary.NativeEndian.PutUint64(id[:8], rand.Uint64())
		binary.NativeEndian.PutUint64(id[8:], rand.Uint64())
	}
	return id
}

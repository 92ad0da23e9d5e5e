// Package tracingtest records the spans of a test in memory, and draws them.
package tracingtest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/sluice-bus/sluice/sidecar/internal/tracing"
)

// Recorder has the spans that have ended.
type Recorder struct {
	*tracing.Tracing
	memory *tracetest.InMemoryExporter
}

// New records the spans that the sampler samples; nil: it follows the parent, and records every
// root. ratio is that of all topics' policies.
func New(t testing.TB, sampler sdktrace.Sampler, ratio float64) *Recorder {
	t.Helper()
	if sampler == nil {
		sampler = sdktrace.ParentBased(sdktrace.AlwaysSample())
	}
	r := &Recorder{memory: tracetest.NewInMemoryExporter()}
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(r.memory), sdktrace.WithSampler(sampler))
	t.Cleanup(func() {
		if err := provider.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	r.Tracing = tracing.New(tracing.Config{
		Tracer: provider.Tracer("test"),
		Ratio:  func(string) float64 { return ratio },
	})
	return r
}

// Spans returns the ended spans, by their beginning.
func (r *Recorder) Spans() tracetest.SpanStubs {
	spans := r.memory.GetSpans()
	slices.SortStableFunc(spans, func(a, b tracetest.SpanStub) int { return a.StartTime.Compare(b.StartTime) })
	return spans
}

// Named returns the spans with that name.
func (r *Recorder) Named(name string) tracetest.SpanStubs {
	return slices.DeleteFunc(r.Spans(), func(s tracetest.SpanStub) bool { return s.Name != name })
}

// Tree draws the spans, one per line: the name, the kind, the requested attributes, the error, and
// the names of linked spans. Spans whose parent was not recorded here are at the left, with the
// parent's span id if there is one.
func (r *Recorder) Tree(attributes ...string) string {
	spans := r.Spans()
	known := map[trace.SpanID]string{}
	for _, s := range spans {
		known[s.SpanContext.SpanID()] = s.Name
	}
	var out strings.Builder
	var draw func(parent trace.SpanID, indent string)
	line := func(s tracetest.SpanStub, indent string) {
		fmt.Fprintf(&out, "%s%s %s%s\n", indent, s.Name, s.SpanKind, describe(s, attributes, known))
		draw(s.SpanContext.SpanID(), indent+"  ")
	}
	draw = func(parent trace.SpanID, indent string) {
		for _, s := range spans {
			if s.Parent.SpanID() == parent {
				line(s, indent)
			}
		}
	}
	for _, s := range spans {
		if _, here := known[s.Parent.SpanID()]; here {
			continue
		}
		if s.Parent.SpanID().IsValid() {
			fmt.Fprintf(&out, "%s: ", s.Parent.SpanID())
		}
		line(s, "")
	}
	return out.String()
}

func describe(s tracetest.SpanStub, attributes []string, known map[trace.SpanID]string) string {
	var out strings.Builder
	for _, name := range attributes {
		for _, a := range s.Attributes {
			if string(a.Key) == name {
				fmt.Fprintf(&out, " %s=%s", name[strings.LastIndexByte(name, '.')+1:], a.Value.String())
			}
		}
	}
	if s.Status.Description != "" {
		fmt.Fprintf(&out, " %s: %s", s.Status.Code, s.Status.Description)
	} else if s.Status.Code != 0 {
		fmt.Fprintf(&out, " %s", s.Status.Code)
	}
	for i, l := range s.Links {
		lead := ", "
		if i == 0 {
			lead = " -> "
		}
		name, ok := known[l.SpanContext.SpanID()]
		if !ok {
			name = l.SpanContext.SpanID().String()
		}
		out.WriteString(lead + name)
	}
	return out.String()
}

// Discard records spans up to the queue of an exporter that drops them, for benchmarks; a nil
// sampler turns tracing off.
func Discard(t testing.TB, sampler sdktrace.Sampler) *tracing.Tracing {
	t.Helper()
	if sampler == nil {
		return nil
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(tracetest.NewNoopExporter()), sdktrace.WithSampler(sampler))
	t.Cleanup(func() {
		if err := provider.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return tracing.New(tracing.Config{Tracer: provider.Tracer("test")})
}

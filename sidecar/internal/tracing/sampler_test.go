package tracing

import (
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"pgregory.net/rapid"
)

// All samplers that OTEL_TRACES_SAMPLER can name.
var samplers = map[string]func(ratio float64) sdktrace.Sampler{
	"always_on":                func(float64) sdktrace.Sampler { return sdktrace.AlwaysSample() },
	"always_off":               func(float64) sdktrace.Sampler { return sdktrace.NeverSample() },
	"traceidratio":             sdktrace.TraceIDRatioBased,
	"parentbased_always_on":    func(float64) sdktrace.Sampler { return sdktrace.ParentBased(sdktrace.AlwaysSample()) },
	"parentbased_always_off":   func(float64) sdktrace.Sampler { return sdktrace.ParentBased(sdktrace.NeverSample()) },
	"parentbased_traceidratio": func(r float64) sdktrace.Sampler { return sdktrace.ParentBased(sdktrace.TraceIDRatioBased(r)) },
}

// A trace is recorded if both the provider's sampler and the policy's ratio, a sampler of the same
// kind, sample it.
func TestRecordsWhatTheSamplersSample(t *testing.T) {
	for name, sampler := range samplers {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				env := sampler(rapid.Float64Range(0, 1).Draw(t, "sampler's ratio"))
				ratio := rapid.OneOf(rapid.Float64Range(0, 1), rapid.SampledFrom([]float64{0, 0.01, 1})).Draw(t, "policy's ratio")
				provider := sdktrace.NewTracerProvider(sdktrace.WithSampler(env))
				tr := New(Config{Tracer: provider.Tracer("test"), Ratio: func(string) float64 { return ratio }})

				var parent trace.SpanContext
				if rapid.Bool().Draw(t, "has a parent") {
					parent = parent.WithTraceID(idAt(place(rapid.Uint64Max(places-1).Draw(t, "trace")))).WithSpanID(trace.SpanID{1}).
						WithRemote(true).WithTraceFlags(trace.TraceFlags(rapid.IntRange(0, 1).Draw(t, "flags")))
				}
				origin, yes := tr.records("orders", parent)
				if ratio == 0 {
					if yes {
						t.Fatal("recorded with a ratio of 0")
					}
					return
				}
				if parent.IsValid() && !origin.Equal(parent) || !origin.TraceID().IsValid() {
					t.Fatalf("the origin of %v is %v", parent, origin)
				}
				ctx := trace.ContextWithSpanContext(t.Context(), origin)
				_, span := provider.Tracer("test").Start(ctx, "span")
				policy := sdktrace.TraceIDRatioBased(ratio).ShouldSample(sdktrace.SamplingParameters{ParentContext: ctx, TraceID: origin.TraceID()})
				if want := span.IsRecording() && policy.Decision == sdktrace.RecordAndSample; yes != want {
					t.Fatalf("recorded: %v, want %v (sampler: %v, policy: %v)", yes, want, span.IsRecording(), policy.Decision)
				}
				if !parent.IsValid() && yes {
					if ro := tr.begin(origin, "root").(sdktrace.ReadOnlySpan); ro.Parent().SpanID().IsValid() ||
						ro.SpanContext().TraceID() != origin.TraceID() {
						t.Fatalf("a root of %v has the parent %v and is %v", origin, ro.Parent(), ro.SpanContext())
					}
				}
			})
		})
	}
}

package tracing

import (
	"context"
	"fmt"
	"strconv"
	"testing"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
)

// FuzzContext holds the reader of headers to OpenTelemetry's own.
func FuzzContext(f *testing.F) {
	const id = "0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331"
	for _, parent := range []string{
		"00-" + id + "-01", "00-" + id + "-00", "00-" + id + "-03", "00-" + id + "-04", "00-" + id + "-01-x", "01-" + id + "-01",
		"01-" + id + "-ff-more", "01-" + id + "-01more", "ff-" + id + "-01", "00-" + id, "", "00-" + id + "-0", "00-" + id + "-0G",
		"00-00000000000000000000000000000000-b7ad6b7169203331-01", "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
		"00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
	} {
		f.Add(parent, "a=b,c=d")
	}
	f.Add("00-"+id+"-01", "not a state")
	f.Fuzz(func(t *testing.T, parent, state string) {
		known := parent
		if codec.IsTraceParent(parent) { // OpenTelemetry refuses flags that it does not know, which W3C has ignored
			flags, _ := strconv.ParseUint(parent[flagsAt:parentLength], 16, 8)
			known = fmt.Sprintf("%s%02x%s", parent[:flagsAt], flags&3, parent[parentLength:])
		}
		carrier := propagation.MapCarrier{"traceparent": known, "tracestate": state}
		want := trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), carrier))
		headers := wire.Headers{{Name: "tracestate", Value: state}, {Name: "x", Value: ""}, {Name: "traceparent", Value: parent}}
		got := withState(contextOf(headers), headers)
		if !got.Equal(want) {
			t.Fatalf("read %+v, want %+v", got, want)
		}
		if got.IsValid() {
			again, ok := parseParent(parentText(got))
			if !ok || !trace.NewSpanContext(again).Equal(got.WithTraceState(trace.TraceState{})) {
				t.Fatalf("written as %s", parentText(got))
			}
		}
	})
}

func TestHeadersAreNotChangedInPlace(t *testing.T) {
	sc := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: 1})
	text := parentText(sc)
	for _, h := range []wire.Headers{
		nil,
		{{Name: "a", Value: "1"}},
		append(make(wire.Headers, 0, 4), wire.Header{Name: "a", Value: "1"}),
		{{Name: "traceparent", Value: "old"}, {Name: "tracestate", Value: "x=y"}, {Name: "a", Value: "1"}},
	} {
		before := fmt.Sprint(h[:cap(h)])
		child, root := withContext(h, sc, false), withContext(h, sc, true)
		if after := fmt.Sprint(h[:cap(h)]); after != before {
			t.Errorf("%s became %s", before, after)
		}
		for _, out := range []wire.Headers{child, root} {
			if got, _ := out.Get("traceparent"); got != text {
				t.Errorf("%v does not carry %s", out, text)
			}
		}
		_, had := h.Get("tracestate")
		if _, has := child.Get("tracestate"); has != had {
			t.Errorf("a child's headers are %v", child)
		}
		if _, has := root.Get("tracestate"); has {
			t.Errorf("a new trace has the state of another: %v", root)
		}
	}
}

package otlptest

import (
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	logspb "go.opentelemetry.io/proto/otlp/logs/v1"
	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
)

// Attributes are values by name, each as text.
type Attributes map[string]string

// String has them in the order of their names.
func (a Attributes) String() string {
	var b strings.Builder
	for i, name := range slices.Sorted(maps.Keys(a)) {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(name + "=" + a[name])
	}
	return b.String()
}

// Ref names a span; its ids are in hexadecimal digits.
type Ref struct{ Trace, Span string }

// Span is one span.
type Span struct {
	Ref
	Parent     string // "" for a root
	Name       string
	Kind       string // internal, server, client, producer or consumer
	Service    string // the resource's service.name
	Instance   string // the resource's service.instance.id
	Start, End time.Time
	Attributes Attributes
	Links      []Ref
	Events     []string
	Failed     bool
	Message    string // of a failure
}

// Point is one value of a metric.
type Point struct {
	Metric, Unit string
	Service      string
	Instance     string
	Attributes   Attributes
	Value        float64 // of a histogram: the sum
	Count        uint64  // of a histogram
	Kind         string  // counter, gauge or histogram
}

// Record is one log record.
type Record struct {
	Service, Severity, Body string
	Attributes              Attributes
	Ref                     Ref // of the span that it was logged under, if any
}

// about takes the service and its instance out of a resource.
func about(r *resourcepb.Resource) (service, instance string) {
	a := attributes(r.GetAttributes())
	return a["service.name"], a["service.instance.id"]
}

func attributes(kvs []*commonpb.KeyValue) Attributes {
	a := make(Attributes, len(kvs))
	for _, kv := range kvs {
		a[kv.GetKey()] = text(kv.GetValue())
	}
	return a
}

func text(v *commonpb.AnyValue) string {
	switch v := v.GetValue().(type) {
	case *commonpb.AnyValue_StringValue:
		return v.StringValue
	case *commonpb.AnyValue_BoolValue:
		return fmt.Sprint(v.BoolValue)
	case *commonpb.AnyValue_IntValue:
		return fmt.Sprint(v.IntValue)
	case *commonpb.AnyValue_DoubleValue:
		return fmt.Sprint(v.DoubleValue)
	case *commonpb.AnyValue_ArrayValue:
		var parts []string
		for _, e := range v.ArrayValue.GetValues() {
			parts = append(parts, text(e))
		}
		return "[" + strings.Join(parts, " ") + "]"
	case *commonpb.AnyValue_KvlistValue:
		return "{" + attributes(v.KvlistValue.GetValues()).String() + "}"
	case *commonpb.AnyValue_BytesValue:
		return hex.EncodeToString(v.BytesValue)
	}
	return ""
}

func spansOf(all []*tracepb.ResourceSpans) (spans []Span) {
	for _, rs := range all {
		service, instance := about(rs.GetResource())
		for _, ss := range rs.GetScopeSpans() {
			for _, s := range ss.GetSpans() {
				spans = append(spans, spanOf(s, service, instance))
			}
		}
	}
	return spans
}

func spanOf(s *tracepb.Span, service, instance string) Span {
	span := Span{
		Ref:    Ref{Trace: hex.EncodeToString(s.GetTraceId()), Span: hex.EncodeToString(s.GetSpanId())},
		Parent: hex.EncodeToString(s.GetParentSpanId()),
		Name:   s.GetName(), Kind: strings.ToLower(strings.TrimPrefix(s.GetKind().String(), "SPAN_KIND_")),
		Service: service, Instance: instance,
		Start: nanos(s.GetStartTimeUnixNano()), End: nanos(s.GetEndTimeUnixNano()),
		Attributes: attributes(s.GetAttributes()),
		Failed:     s.GetStatus().GetCode() == tracepb.Status_STATUS_CODE_ERROR,
		Message:    s.GetStatus().GetMessage(),
	}
	for _, l := range s.GetLinks() {
		span.Links = append(span.Links, Ref{Trace: hex.EncodeToString(l.GetTraceId()), Span: hex.EncodeToString(l.GetSpanId())})
	}
	for _, e := range s.GetEvents() {
		span.Events = append(span.Events, e.GetName())
	}
	return span
}

func nanos(n uint64) time.Time { return time.Unix(0, int64(n)).UTC() }

func pointsOf(all []*metricspb.ResourceMetrics) (points []Point) {
	for _, rm := range all {
		service, instance := about(rm.GetResource())
		for _, sm := range rm.GetScopeMetrics() {
			for _, m := range sm.GetMetrics() {
				for _, p := range pointsIn(m) {
					p.Metric, p.Unit, p.Service, p.Instance = m.GetName(), m.GetUnit(), service, instance
					points = append(points, p)
				}
			}
		}
	}
	return points
}

func pointsIn(m *metricspb.Metric) (points []Point) {
	kind, numbers := "gauge", m.GetGauge().GetDataPoints()
	if sum := m.GetSum(); sum != nil {
		numbers = sum.GetDataPoints()
		if sum.GetIsMonotonic() {
			kind = "counter"
		}
	}
	for _, p := range numbers {
		value := p.GetAsDouble()
		if i, ok := p.GetValue().(*metricspb.NumberDataPoint_AsInt); ok {
			value = float64(i.AsInt)
		}
		points = append(points, Point{Kind: kind, Attributes: attributes(p.GetAttributes()), Value: value})
	}
	for _, p := range m.GetHistogram().GetDataPoints() {
		points = append(points, Point{Kind: "histogram", Attributes: attributes(p.GetAttributes()), Value: p.GetSum(), Count: p.GetCount()})
	}
	return points
}

// latest puts the new points in the place of the old ones that they follow.
func latest(old, points []Point) []Point {
	key := func(p Point) string {
		return strings.Join([]string{p.Service, p.Instance, p.Metric, p.Attributes.String()}, "\x00")
	}
	at := make(map[string]int, len(old))
	for i, p := range old {
		at[key(p)] = i
	}
	for _, p := range points {
		if i, ok := at[key(p)]; ok {
			old[i] = p
			continue
		}
		at[key(p)] = len(old)
		old = append(old, p)
	}
	return old
}

func recordsOf(all []*logspb.ResourceLogs) (records []Record) {
	for _, rl := range all {
		service, _ := about(rl.GetResource())
		for _, sl := range rl.GetScopeLogs() {
			for _, l := range sl.GetLogRecords() {
				records = append(records, Record{
					Service: service, Severity: l.GetSeverityText(), Body: text(l.GetBody()),
					Attributes: attributes(l.GetAttributes()),
					Ref:        Ref{Trace: hex.EncodeToString(l.GetTraceId()), Span: hex.EncodeToString(l.GetSpanId())},
				})
			}
		}
	}
	return records
}

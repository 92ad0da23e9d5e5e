// Package instrument describes the metrics of a program, so that the reference in docs/ is made of what the program exports. It makes
// instruments of OpenTelemetry, and knows nothing of what they count.
package instrument

import (
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
)

// A Metric is what the reference says of one metric.
type Metric struct {
	Name, Type, Unit, Help string
	Labels                 []string
}

// The types of metrics, as Prometheus calls them.
const (
	Counter   = "counter"
	Gauge     = "gauge"
	Histogram = "histogram"
)

// A Builder makes instruments, and keeps what they are. A name or a unit that OpenTelemetry refuses is a defect, and panics.
type Builder struct {
	meter metric.Meter
	Made  []Metric
}

// On returns a builder of instruments of a meter; nil: of one that measures nothing.
func On(meter metric.Meter) *Builder {
	if meter == nil {
		meter = noop.NewMeterProvider().Meter("")
	}
	return &Builder{meter: meter}
}

func made[T any](b *Builder, of Metric, instrument T, err error) T {
	if err != nil {
		panic(err)
	}
	b.Made = append(b.Made, of)
	return instrument
}

// Counter is counted when something happens.
func (b *Builder) Counter(name, unit, help string, labels ...string) metric.Int64Counter {
	i, err := b.meter.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(help))
	return made(b, Metric{name, Counter, unit, help, labels}, i, err)
}

// Total is a counter that is read when it is exported.
func (b *Builder) Total(name, unit, help string, labels ...string) metric.Int64ObservableCounter {
	i, err := b.meter.Int64ObservableCounter(name, metric.WithUnit(unit), metric.WithDescription(help))
	return made(b, Metric{name, Counter, unit, help, labels}, i, err)
}

// Gauge is read when it is exported.
func (b *Builder) Gauge(name, unit, help string, labels ...string) metric.Int64ObservableGauge {
	i, err := b.meter.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(help))
	return made(b, Metric{name, Gauge, unit, help, labels}, i, err)
}

// Seconds is a gauge of fractions of seconds that is read when it is exported.
func (b *Builder) Seconds(name, help string, labels ...string) metric.Float64ObservableGauge {
	i, err := b.meter.Float64ObservableGauge(name, metric.WithUnit("s"), metric.WithDescription(help))
	return made(b, Metric{name, Gauge, "s", help, labels}, i, err)
}

// Level is a gauge that is moved up and down.
func (b *Builder) Level(name, unit, help string, labels ...string) metric.Int64UpDownCounter {
	i, err := b.meter.Int64UpDownCounter(name, metric.WithUnit(unit), metric.WithDescription(help))
	return made(b, Metric{name, Gauge, unit, help, labels}, i, err)
}

// Durations is a histogram of seconds.
func (b *Builder) Durations(name, help string, bounds []float64, labels ...string) metric.Float64Histogram {
	i, err := b.meter.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(help),
		metric.WithExplicitBucketBoundaries(bounds...))
	return made(b, Metric{name, Histogram, "s", help, labels}, i, err)
}

// Sizes is a histogram of whole numbers.
func (b *Builder) Sizes(name, unit, help string, bounds []float64, labels ...string) metric.Int64Histogram {
	i, err := b.meter.Int64Histogram(name, metric.WithUnit(unit), metric.WithDescription(help),
		metric.WithExplicitBucketBoundaries(bounds...))
	return made(b, Metric{name, Histogram, unit, help, labels}, i, err)
}

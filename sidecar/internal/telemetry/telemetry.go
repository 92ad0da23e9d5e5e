// Package telemetry counts what the sidecar does, under the metric names of the contract, and
// exports the numbers: as Prometheus text on the ops listener, and to any other configured reader.
//
// Counting is cheap enough for every event: a caller counts with the handle of its topic or group
// (Metrics.Topic, Metrics.Group). What was counted goes with the topic or the group.
package telemetry

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/otlptranslator"
	"go.opentelemetry.io/otel/attribute"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/exemplar"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/resource"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/sluice-bus/sluice/internal/instrument"
)

// Config of the metrics. The zero value is usable.
type Config struct {
	// MaxTopics is how many topics get a label of their own; the others share "_other". 0 means
	// 1,000. The bound for (topic, group) pairs is four times as high.
	MaxTopics int
	// Owner is the identity that a topic was made for, "" if there is none; nil: of no topic. Beyond a quarter of MaxTopics the topics
	// of one make room for those of others.
	Owner func(topic string) string
	// Version and NodeID describe this sidecar, as does StoreKind: embedded or mongodb. To the
	// Readers About does, if it is set.
	Version, NodeID, StoreKind string
	// Readers makes the readers that also get every metric, in addition to the Prometheus text, with
	// what the producers have; nil: there are none. Shutdown closes them.
	Readers func(producers func(metricdata.Temporality) sdkmetric.Producer) []sdkmetric.Reader
	About   *resource.Resource
}

const (
	defaultMaxTopics = 1000
	groupsPerTopic   = 4 // on average; bounds the pairs together

	scope = "github.com/sluice-bus/sluice"
)

// Metrics are all metrics of one sidecar. Its methods, and those of its handles, are safe for
// concurrent use.
type Metrics struct {
	registry *prometheus.Registry
	provider *sdkmetric.MeterProvider // nil when everything is discarded
	inst     *instruments
	series   *series

	mu        sync.Mutex
	observers []func(metric.Observer)
}

// New makes the metrics of one sidecar, all of them at zero.
func New(cfg Config) (*Metrics, error) {
	series := newSeries(cmp.Or(cfg.MaxTopics, defaultMaxTopics), cfg.Owner)
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	// The contract gives the complete names of instruments: nothing is appended.
	exporter, err := otelprom.New(
		otelprom.WithRegisterer(registry),
		otelprom.WithTranslationStrategy(otlptranslator.NoTranslation),
		otelprom.WithoutScopeInfo(),
		otelprom.WithoutTargetInfo(),
		otelprom.WithProducer(series.producerFor(metricdata.CumulativeTemporality)),
	)
	if err != nil {
		return nil, fmt.Errorf("telemetry: prometheus exporter: %w", err)
	}
	about := cfg.About
	if about == nil {
		about = resource.NewSchemaless(
			semconv.ServiceName("sluice-sidecar"),
			semconv.ServiceVersion(cfg.Version),
			semconv.ServiceInstanceID(cfg.NodeID),
		)
	}
	opts := []sdkmetric.Option{
		sdkmetric.WithReader(exporter),
		sdkmetric.WithResource(about),
		// The handles bound the labels, by names from the contract. The SDK's own bound would fold
		// them into another label.
		sdkmetric.WithCardinalityLimit(0),
		// Measurements have no context, so there can be no exemplars.
		sdkmetric.WithExemplarFilter(exemplar.AlwaysOffFilter),
	}
	if cfg.Readers != nil {
		for _, r := range cfg.Readers(series.producerFor) {
			opts = append(opts, sdkmetric.WithReader(r))
		}
	}
	provider := sdkmetric.NewMeterProvider(opts...)
	m := newMetrics(provider.Meter(scope), series)
	if cfg.StoreKind != "" {
		build := newLabels(attribute.String("version", cfg.Version), attribute.String("store", cfg.StoreKind))
		m.observe(func(o metric.Observer) { o.ObserveInt64(m.inst.buildInfo, 1, build.options...) })
	}
	m.registry, m.provider = registry, provider
	return m, nil
}

// Discard makes Metrics that count nothing and show nothing, for tests.
func Discard() *Metrics {
	m := newMetrics(noop.NewMeterProvider().Meter(""), newSeries(defaultMaxTopics, nil))
	m.registry = prometheus.NewRegistry()
	return m
}

func newMetrics(meter metric.Meter, series *series) *Metrics {
	i := newInstruments(instrument.On(meter))
	m := &Metrics{inst: i, series: series}
	_, err := meter.RegisterCallback(m.observeAll,
		i.sent, i.consumed, i.published, i.duplicate, i.rejected, i.delivered, i.acked, i.nacked, i.redelivered, i.deadLettered,
		i.passedOver, i.expired, i.pushes, i.members, i.oldestUnacked, i.buildInfo, i.storeUp,
		i.inflight, i.lag, i.policyVersion, i.spoolEvents, i.spoolBytes, i.authFailures, i.bufferedBytes, i.diskFree, i.diskLowWater, i.diskShort,
		i.deadLetters, i.deadLetterAge, i.scheduled, i.paused, i.tenants, i.captureLag, i.captureStopped)
	if err != nil {
		panic(err) // a defect: the instruments are the meter's
	}
	// These exist from the start; sources that are added later count too.
	m.ObserveSpool(func() SpoolStat { return SpoolStat{} })
	m.ObserveBuffered(func() int64 { return 0 })
	m.ObserveAuthFailures(func() (refused, unseen int64) { return 0, 0 })
	i.connections.Add(context.Background(), 0)
	for _, why := range []string{ShedMemory, ShedLate} {
		m.shed(why, 0)
	}
	return m
}

// Handler answers a scrape with the Prometheus text.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		// One bad metric must not hide the others from the operator.
		ErrorHandling: promhttp.ContinueOnError,
	})
}

// Shutdown gives the Readers their last numbers and closes them. Later counts have no effect.
func (m *Metrics) Shutdown(ctx context.Context) error {
	if m.provider == nil {
		return nil
	}
	if err := m.provider.Shutdown(ctx); err != nil {
		return fmt.Errorf("telemetry: shutdown: %w", err)
	}
	return nil
}

// BatchAppended counts one batch that the log has answered.
func (m *Metrics) BatchAppended(events int, took time.Duration) {
	ctx := context.Background()
	m.inst.batchSize.Record(ctx, int64(events))
	m.inst.appendDuration.Record(ctx, took.Seconds())
}

// Why a message or a body is refused while it arrives.
const (
	ShedMemory = "memory"
	ShedLate   = "timeout"
)

// Shed counts a message or a body that was refused while it arrived.
func (m *Metrics) Shed(why string) { m.shed(why, 1) }

func (m *Metrics) shed(why string, n int64) {
	m.inst.shed.Add(context.Background(), n, metric.WithAttributes(attribute.String("reason", why)))
}

// ConnectionsRefused counts connections that a listener, which a setting names, has refused.
func (m *Metrics) ConnectionsRefused(listener string, n int) {
	m.inst.refusedConnections.Add(context.Background(), int64(n), metric.WithAttributes(attribute.String("listener", listener)))
}

// ConnectionOpened counts one more WebSocket connection.
func (m *Metrics) ConnectionOpened() { m.inst.connections.Add(context.Background(), 1) }

// ConnectionClosed counts one WebSocket connection less.
func (m *Metrics) ConnectionClosed() { m.inst.connections.Add(context.Background(), -1) }

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/otlptranslator"
	"go.opentelemetry.io/otel/attribute"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/sluice-bus/sluice/internal/instrument"
)

// metrics exports the control plane's metrics as Prometheus text and to other readers.
type metrics struct {
	registry *prometheus.Registry
	provider *sdkmetric.MeterProvider
}

// newMetrics creates the metrics. Their values are read when they are exported.
func (c *ControlPlane) newMetrics() (*metrics, error) {
	m := &metrics{registry: prometheus.NewRegistry()}
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	exporter, err := otelprom.New(
		otelprom.WithRegisterer(m.registry),
		otelprom.WithTranslationStrategy(otlptranslator.NoTranslation),
		otelprom.WithoutScopeInfo(),
		otelprom.WithoutTargetInfo(),
	)
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	opts := []sdkmetric.Option{sdkmetric.WithReader(exporter)}
	for _, r := range c.cfg.Exports.MetricReaders(nil) {
		opts = append(opts, sdkmetric.WithReader(r))
	}
	if about := c.cfg.Exports.Resource(); about != nil {
		opts = append(opts, sdkmetric.WithResource(about))
	}
	m.provider = sdkmetric.NewMeterProvider(opts...)
	meter := m.provider.Meter("github.com/sluice-bus/sluice")
	if err := c.export(instrument.On(meter), meter); err != nil {
		return nil, errors.Join(fmt.Errorf("metrics: %w", err), m.close(context.Background()))
	}
	return m, nil
}

// Metrics lists the control plane's metrics.
func Metrics() []instrument.Metric {
	b := instrument.On(nil)
	if err := new(ControlPlane).export(b, noop.NewMeterProvider().Meter("")); err != nil {
		panic(err)
	}
	return b.Made
}

// export makes the instruments, and reads them whenever they are exported.
func (c *ControlPlane) export(b *instrument.Builder, meter metric.Meter) error {
	type reading struct {
		of     metric.Int64Observable
		label  string // "": there is one value
		values func() map[string]int64
	}
	one := func(of metric.Int64Observable, value func() int) reading {
		return reading{of, "", func() map[string]int64 { return map[string]int64{"": int64(value())} }}
	}
	readings := []reading{
		one(b.Gauge("sluice_controlplane_policies", "{policy}", "Policies in force."),
			func() int { return len(c.catalog.State().Entries) }),
		one(b.Gauge("sluice_controlplane_revision", "", "Revision of the policies in force."),
			func() int { return int(c.catalog.State().Revision) }),
		one(b.Gauge("sluice_controlplane_sidecars", "{sidecar}", "Sidecars connected to any control plane of the store."),
			func() int { return c.registry.Known() }),
		one(b.Gauge("sluice_controlplane_sidecars_missing", "{sidecar}",
			"Sidecars that are gone and may have events that no other sidecar has."),
			func() int { return len(c.registry.Missing()) }),
		one(b.Gauge("sluice_controlplane_sidecars_rejecting", "{sidecar}", "Sidecars that have refused a policy and accepted none since."),
			c.rejecting),
		{b.Total("sluice_auth_failures_total", "{attempt}",
			"Wrong tokens, and tokens that were not checked because their address had sent too many wrong ones.", "outcome"),
			"outcome", func() map[string]int64 {
				refused, unseen := c.access.Failures()
				return map[string]int64{"refused": refused, "rate_limited": unseen}
			}},
		{b.Total("sluice_controlplane_sessions_refused_total", "{session}",
			"Sessions of sidecars that were refused: their credential is not for their node id, or another process uses it.", "reason"),
			"reason", func() map[string]int64 {
				return map[string]int64{"not_covered": c.uncovered.Load(), "in_use": c.registry.Refused()}
			}},
		{b.Total("sluice_controlplane_connections_evicted_total", "{connection}",
			"Connections without a request that were closed, since their listener had as many as it may.", "listener"),
			"listener", func() map[string]int64 {
				return map[string]int64{"xds-listen": c.xdsListener.Evicted(), "http-listen": c.httpListener.Evicted()}
			}},
		{b.Total("sluice_controlplane_reports_impossible_total", "{report}",
			"Reports of sidecars that they use more than a policy allows.", "reason"),
			"reason", func() map[string]int64 { return map[string]int64{"over_policy": c.quota.Impossible()} }},
		{b.Total("sluice_controlplane_topics_left_out_total", "{topic}",
			"Times that a topic, or its use by a sidecar, was not shown, since the control plane knows too many.", "reason"),
			"reason", func() map[string]int64 { return map[string]int64{"too_many": c.registry.Uncounted()} }},
		{b.Gauge("sluice_controlplane_incidents", "{incident}", "Incidents of the fleet, by kind.", "kind"),
			"kind", func() map[string]int64 { return c.health.Counts() }},
	}
	instruments := make([]metric.Observable, 0, len(readings))
	for _, r := range readings {
		instruments = append(instruments, r.of)
	}
	_, err := meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		for _, r := range readings {
			for label, value := range r.values() {
				var labels []attribute.KeyValue
				if r.label != "" {
					labels = append(labels, attribute.String(r.label, label))
				}
				o.ObserveInt64(r.of, value, metric.WithAttributes(labels...))
			}
		}
		return nil
	}, instruments...)
	return err
}

// rejecting counts the connected sidecars that refuse a policy.
func (c *ControlPlane) rejecting() int {
	n := 0
	for _, s := range c.registry.Sidecars() {
		if s.Connected && s.Rejected != nil {
			n++
		}
	}
	return n
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// close exports the last values.
func (m *metrics) close(ctx context.Context) error {
	if err := m.provider.Shutdown(ctx); err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	return nil
}

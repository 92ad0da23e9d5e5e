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
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
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
	var failed []error
	for _, g := range []struct {
		name, unit, help string
		value            func() int
	}{
		{"sluice_controlplane_policies", "{policy}", "Policies in force.", func() int { return len(c.catalog.State().Entries) }},
		{"sluice_controlplane_revision", "", "Revision of the policies in force.", func() int { return int(c.catalog.State().Revision) }},
		{"sluice_controlplane_sidecars", "{sidecar}", "Sidecars connected to any control plane of the store.", c.registry.Known},
		{"sluice_controlplane_sidecars_missing", "{sidecar}", "Sidecars that are gone and may have events that no other sidecar has.",
			func() int { return len(c.registry.Missing()) }},
		{"sluice_controlplane_sidecars_rejecting", "{sidecar}", "Sidecars that have refused a policy and accepted none since.", c.rejecting},
	} {
		_, err := meter.Int64ObservableGauge(g.name, metric.WithUnit(g.unit), metric.WithDescription(g.help),
			metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
				o.Observe(int64(g.value()))
				return nil
			}))
		failed = append(failed, err)
	}
	for _, n := range []struct {
		name, unit, help, label string
		values                  func() map[string]int64
	}{
		{"sluice_auth_failures_total", "{attempt}",
			"Wrong tokens, and tokens that were not checked because their address had sent too many wrong ones.", "outcome",
			func() map[string]int64 {
				refused, unseen := c.access.Failures()
				return map[string]int64{"refused": refused, "rate_limited": unseen}
			}},
		{"sluice_controlplane_sessions_refused_total", "{session}",
			"Sessions of sidecars that were refused: their credential is not for their node id, or another process uses it.", "reason",
			func() map[string]int64 {
				return map[string]int64{"not_covered": c.uncovered.Load(), "in_use": c.registry.Refused()}
			}},
		{"sluice_controlplane_connections_evicted_total", "{connection}",
			"Connections without a request that were closed, since their listener had as many as it may.", "listener",
			func() map[string]int64 {
				return map[string]int64{"xds-listen": c.xdsListener.Evicted(), "http-listen": c.httpListener.Evicted()}
			}},
		{"sluice_controlplane_reports_impossible_total", "{report}",
			"Reports of sidecars that they use more than a policy allows.", "reason",
			func() map[string]int64 { return map[string]int64{"over_policy": c.quota.Impossible()} }},
		{"sluice_controlplane_topics_left_out_total", "{topic}",
			"Times that a topic, or its use by a sidecar, was not shown, since the control plane knows too many.", "reason",
			func() map[string]int64 { return map[string]int64{"too_many": c.registry.Uncounted()} }},
	} {
		_, err := meter.Int64ObservableCounter(n.name, metric.WithUnit(n.unit), metric.WithDescription(n.help),
			metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
				for label, value := range n.values() {
					o.Observe(value, metric.WithAttributes(attribute.String(n.label, label)))
				}
				return nil
			}))
		failed = append(failed, err)
	}
	_, err = meter.Int64ObservableGauge("sluice_controlplane_incidents", metric.WithUnit("{incident}"),
		metric.WithDescription("Incidents of the fleet, by kind."),
		metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
			for kind, n := range c.health.Counts() {
				o.Observe(n, metric.WithAttributes(attribute.String("kind", kind)))
			}
			return nil
		}))
	failed = append(failed, err)
	if err := errors.Join(failed...); err != nil {
		return nil, errors.Join(fmt.Errorf("metrics: %w", err), m.close(context.Background()))
	}
	return m, nil
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

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/sluice-bus/sluice/internal/secrets"
)

// status is the body of GET /v1/status.
type status struct {
	Version  string      `json:"version"`
	Name     string      `json:"name"`
	Store    storeStatus `json:"store"`
	Revision int64       `json:"revision"` // of the policies in force
	Policies int         `json:"policies"`
	// Sidecars are those connected to any control plane of the store.
	Sidecars int `json:"sidecars"`
}

type storeStatus struct {
	URL   string `json:"url"`
	State string `json:"state"` // ok or away
}

// pingTimeout is how long the store may take to count as there.
const pingTimeout = time.Second

func (c *ControlPlane) status() any {
	state := c.catalog.State()
	s := status{
		Version: c.cfg.Version, Name: c.cfg.Name, Revision: state.Revision, Policies: len(state.Entries),
		Sidecars: c.registry.Known(), Store: storeStatus{URL: c.cfg.Store, State: "ok"},
	}
	if isMongoDB(c.cfg.Store) {
		s.Store.URL = secrets.Without(c.cfg.Store)
	}
	if c.ping() != nil {
		s.Store.State = "away"
	}
	return s
}

func (c *ControlPlane) ping() error {
	ctx, cancel := context.WithTimeout(context.Background(), pingTimeout)
	defer cancel()
	return c.store.Ping(ctx)
}

// ready says why policies cannot be changed, if they cannot. Sidecars get the
// policies in force either way.
func (c *ControlPlane) ready() error {
	if c.stopping.Load() {
		return errors.New("the control plane is stopping")
	}
	if c.ping() != nil {
		return errors.New("the policy store is away; policies cannot be changed")
	}
	return nil
}

// metrics are the control plane's, as Prometheus text.
type metrics struct{ registry *prometheus.Registry }

// newMetrics makes them. They are few and change with every look, so each is
// asked for when it is read.
func (c *ControlPlane) newMetrics() (*metrics, error) {
	m := &metrics{registry: prometheus.NewRegistry()}
	all := []prometheus.Collector{collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})}
	for _, g := range []struct {
		name, help string
		value      func() float64
	}{
		{"sluice_controlplane_policies", "Policies in force.", func() float64 { return float64(len(c.catalog.State().Entries)) }},
		{"sluice_controlplane_revision", "Revision of the policies in force.", func() float64 { return float64(c.catalog.State().Revision) }},
		{"sluice_controlplane_sidecars", "Sidecars connected to any control plane of the store.", func() float64 { return float64(c.registry.Known()) }},
		{"sluice_controlplane_sidecars_rejecting", "Sidecars that have refused a policy and not taken one since.", c.rejecting},
	} {
		all = append(all, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: g.name, Help: g.help}, g.value))
	}
	for _, collector := range all {
		if err := m.registry.Register(collector); err != nil {
			return nil, fmt.Errorf("metrics: %w", err)
		}
	}
	return m, nil
}

// rejecting counts the connected sidecars that have refused something.
func (c *ControlPlane) rejecting() float64 {
	n := 0
	for _, s := range c.registry.Sidecars() {
		if s.Connected && s.Rejected != nil {
			n++
		}
	}
	return float64(n)
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

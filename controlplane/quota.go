package controlplane

import (
	"github.com/sluice-bus/sluice/controlplane/internal/quota"
	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/internal/setting"
)

// newQuota makes the service that shares out fleet-wide rates, by the policies
// in force, and tells the registry what sidecars report.
func (c *ControlPlane) newQuota() *quota.Server {
	fleetWide := func(s *policy.Snapshot, topic string) (policy.Publish, bool) {
		p := s.Topic(topic).Publish
		return p, p.Scope == policy.ScopeFleet
	}
	first := c.catalog.State().Snapshot
	return quota.New(quota.Config{
		Policies: func(topic string) (policy.Publish, bool) { return fleetWide(c.catalog.State().Snapshot, topic) },
		Fresh: func(topic string) bool {
			_, before := fleetWide(first, topic)
			return !before
		},
		Usage: c.registry, Shared: setting.IsMongoDB(c.cfg.Store), Logger: c.cfg.Logger,
	})
}

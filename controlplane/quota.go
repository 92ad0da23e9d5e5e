package controlplane

import (
	"github.com/sluice-bus/sluice/controlplane/internal/quota"
	"github.com/sluice-bus/sluice/internal/policy"
)

// newQuota makes the service that shares out fleet-wide rates, by the policies
// in force, and tells the registry what sidecars report.
func (c *ControlPlane) newQuota() *quota.Server {
	return quota.New(quota.Config{
		Policies: func(topic string) (policy.Publish, bool) {
			p := c.catalog.State().Snapshot.Topic(topic).Publish
			return p, p.Scope == policy.ScopeFleet
		},
		Usage: c.registry, Shared: isMongoDB(c.cfg.Store), Logger: c.cfg.Logger,
	})
}

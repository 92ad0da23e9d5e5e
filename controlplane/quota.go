package controlplane

import (
	"context"

	"google.golang.org/grpc/codes"
	rpcstatus "google.golang.org/grpc/status"

	"github.com/sluice-bus/sluice/controlplane/internal/quota"
	"github.com/sluice-bus/sluice/internal/policy"
)

// admit checks whether the caller of a stream may use a node id.
func (c *ControlPlane) admit(ctx context.Context, nodeID string) error {
	err := c.access.Claim(ctx, nodeID)
	if err != nil {
		c.uncovered.Add(1)
	}
	return err
}

// newQuota creates the quota service, with the policies in force, and with the registry as the
// receiver of usage reports.
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
		Admit: func(ctx context.Context, nodeID, instance string) error {
			if err := c.admit(ctx, nodeID); err != nil {
				return err
			}
			if err := c.registry.Await(ctx, nodeID, instance); err != nil {
				return rpcstatus.Error(codes.AlreadyExists, err.Error())
			}
			return nil
		},
		Usage: c.registry, Shared: c.shared != nil, Logger: c.cfg.Logger,
	})
}

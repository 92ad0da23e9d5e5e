package controlplane

import (
	"context"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	rpcstatus "google.golang.org/grpc/status"

	"github.com/sluice-bus/sluice/controlplane/internal/fleet"
	"github.com/sluice-bus/sluice/controlplane/internal/quota"
	"github.com/sluice-bus/sluice/controlplane/internal/usage"
	"github.com/sluice-bus/sluice/internal/health"
	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/internal/policypb"
)

// admit checks whether the caller of a stream may use a node id and be on a store, "" while it knows none. It returns the prefix of
// its credential that covers the node id.
func (c *ControlPlane) admit(ctx context.Context, nodeID, store string) (fleet.Prefix, error) {
	pattern, nodes, err := c.access.Claim(ctx, nodeID, store)
	if err != nil {
		c.uncovered.Add(1)
	}
	return fleet.Prefix{Pattern: pattern, Nodes: nodes}, err
}

// admitSession checks whether the caller of a stream of another service than xDS is the process that has the node id,
// and may be on the store that the stream names, if it names one.
func (c *ControlPlane) admitSession(ctx context.Context, nodeID, instance string) error {
	store := strings.Join(metadata.ValueFromIncomingContext(ctx, policypb.StreamStoreID), ",")
	if _, err := c.admit(ctx, nodeID, store); err != nil {
		return err
	}
	if err := c.registry.AwaitSession(ctx, nodeID, instance); err != nil {
		return rpcstatus.Error(codes.AlreadyExists, err.Error())
	}
	return nil
}

// counted shows what sidecars report, and keeps it by day.
type counted struct {
	*fleet.Registry
	book *usage.Book
}

func (c counted) Usage(node, topic string, allowed, denied uint64, at time.Time) {
	c.Registry.Usage(node, topic, allowed, denied, at)
	c.book.Count(topic, "", allowed, 0, at) // Refuse counts all that was refused, for whichever reason
}

func (c counted) Tenant(topic, tenant string, allowed, denied uint64, at time.Time) {
	c.book.Count(topic, tenant, allowed, denied, at)
}

func (c counted) Refuse(events []health.Refused) {
	c.Registry.Refuse(events)
	now := time.Now()
	for _, e := range events {
		c.book.Refuse(e.Topic, string(e.Code), e.Events, now)
	}
}

// newQuota creates the quota service, with the policies in force.
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
		Admit: c.admitSession, Usage: counted{c.registry, c.usage}, Shared: c.shared != nil, Logger: c.cfg.Logger,
	})
}

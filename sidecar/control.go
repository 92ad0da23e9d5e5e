package sidecar

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/sluice-bus/sluice/internal/access"
	"github.com/sluice-bus/sluice/internal/listen"
	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sidecar/internal/admit"
	"github.com/sluice-bus/sluice/sidecar/internal/control"
	"github.com/sluice-bus/sluice/sidecar/internal/policyfile"
	"github.com/sluice-bus/sluice/sidecar/internal/quota"
)

// awaitControlPlane is how long a start waits for the control plane, so that its current policies
// limit the first publishes, too. A sidecar that has kept policies stops waiting once it knows that
// the control plane is away.
const awaitControlPlane = 2 * time.Second

// openPolicies puts policies in force: the last ones of the control plane, a file's, or the
// defaults.
func (s *Sidecar) openPolicies(context.Context) (err error) {
	var fallback *policy.Snapshot
	if s.cfg.Policies != "" {
		if s.file, s.policies, err = policyfile.Open(s.cfg.Policies, s.cfg.Logger); err != nil {
			return &ConfigError{Err: fmt.Errorf("policies: %w", err)}
		}
		fallback = s.policies.Load()
	} else if fallback, err = policy.NewSnapshot(nil, "default"); err != nil {
		return err
	}
	if s.cfg.ControlPlane != "" {
		s.file = nil // its changes are not followed, since the control plane sends them
		return s.openControl(fallback)
	}
	if s.file == nil {
		s.policies = policy.NewCurrent(fallback)
	}
	return nil
}

// openControl prepares the connection to the control plane.
func (s *Sidecar) openControl(fallback *policy.Snapshot) error {
	client, err := s.access.ControlPlane().Open()
	if err != nil {
		return &ConfigError{Err: fmt.Errorf("auth-config: control_plane: %w", err)}
	}
	var perRPC credentials.PerRPCCredentials
	if s.access.ControlPlane().TokenFile != "" {
		perRPC = client.PerRPCCredentials()
	}
	if s.peerKey, err = access.NewPeerKey(s.cfg.NodeID); err != nil {
		return err
	}
	s.control, err = control.Open(control.Config{
		Address: s.cfg.ControlPlane, Credentials: client.TransportCredentials(), PerRPC: perRPC,
		NodeID: s.cfg.NodeID, Instance: s.instance, Version: s.cfg.Version,
		StoreID: func() string { return s.store.id() }, Replay: s.replayAddress,
		UnmetConcerns: func() map[string]string { return s.store.unmetConcerns() },
		PeerKey:       s.peerKey.Public(), OnCredential: s.peerKey.Take,
		Dir: s.cfg.DataDir, Fallback: fallback, Logger: s.cfg.Logger,
	})
	if err != nil {
		return &ConfigError{Err: fmt.Errorf("control-plane: %w", err)}
	}
	s.policies = s.control.Policies()
	s.quota = quota.New(quota.Config{
		Conn: s.control.Conn(), NodeID: s.cfg.NodeID, Instance: s.instance, Known: s.control.KnownSidecars, Logger: s.cfg.Logger,
	})
	return nil
}

// replayAddress is where other sidecars reach the replay API.
func (s *Sidecar) replayAddress() string {
	if s.cfg.ReplayAdvertise != "" {
		return s.cfg.ReplayAdvertise
	}
	return listen.Address(s.replay)
}

// farewellTimeout bounds a stop's wait for the control plane's answer.
const farewellTimeout = 3 * time.Second

// farewell tells the control plane, at the end of an orderly stop, that replays need not ask this
// sidecar: the store has others, and the spool is empty. Without that, a replay of the fleet has to
// report this sidecar as missing.
func (s *Sidecar) farewell() {
	if s.control == nil || s.store.shared == nil || s.store.waiting().Events > 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), farewellTimeout)
	defer cancel()
	if err := s.control.AnnounceDrained(ctx); err != nil {
		s.cfg.Logger.Warn("cannot tell the control plane that this sidecar stops in order: replays of the fleet name it as missing until it is back, or forgotten", "error", err)
	}
}

// policyOf is the policy in force for a topic.
func (s *Sidecar) policyOf(topic string) *policy.Effective { return s.policies.Load().Topic(topic) }

// knowsPolicies reports whether all policies are in force, and count as confirmed.
func (s *Sidecar) knowsPolicies() bool {
	return s.control == nil || s.control.Cached() && s.control.Confirmed()
}

// shares is the control plane's part in a publish, nil without one.
func (s *Sidecar) shares() admit.Quota {
	if s.quota == nil {
		return nil
	}
	return s.quota
}

// awaitPolicies makes a start wait for the control plane, for a short time. After that the sidecar
// serves with the policies that it has.
func (s *Sidecar) awaitPolicies(ctx context.Context) {
	if s.control == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, awaitControlPlane)
	defer cancel()
	if s.control.Cached() {
		s.control.AwaitSyncedOrAway(ctx)
		return
	}
	if s.control.AwaitSynced(ctx) != nil {
		s.cfg.Logger.Warn("the control plane has not answered; serving with other policies until it does",
			"control_plane", s.cfg.ControlPlane, "policies", s.cfg.Policies)
	}
}

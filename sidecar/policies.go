package sidecar

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/sluice-bus/sluice/internal/access"
	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sidecar/internal/admit"
	"github.com/sluice-bus/sluice/sidecar/internal/control"
	"github.com/sluice-bus/sluice/sidecar/internal/policyfile"
	"github.com/sluice-bus/sluice/sidecar/internal/quota"
	"github.com/sluice-bus/sluice/sidecar/internal/topiclist"
)

// awaitControlPlane is how long a start waits for the control plane, so that its current policies
// limit the first publishes, too. A sidecar that has kept policies stops waiting once it knows that
// the control plane is away.
const awaitControlPlane = 2 * time.Second

// policies are those in force, and where they come from.
type policies struct {
	*policy.Current
	file    *policyfile.Source // nil if no policies file is followed
	control *control.Control   // nil without a control plane, as are the fields below
	quota   *quota.Client
	shares  admit.Quota // quota's
	peerKey *access.PeerKey
}

// openPolicies puts policies in force: the last ones of the control plane, a file's, or the
// defaults.
func (s *Sidecar) openPolicies(context.Context) (err error) {
	var fallback *policy.Snapshot
	if s.cfg.Policies != "" {
		if s.policies.file, s.policies.Current, err = policyfile.Open(s.cfg.Policies, s.cfg.Logger); err != nil {
			return &ConfigError{Err: fmt.Errorf("policies: %w", err)}
		}
		fallback = s.policies.Load()
	} else if fallback, err = policy.NewSnapshot(nil, "default"); err != nil {
		return err
	}
	if s.cfg.ControlPlane != "" {
		s.policies.file = nil // its changes are not followed, since the control plane sends them
		return s.openControl(fallback)
	}
	if s.policies.file == nil {
		s.policies.Current = policy.NewCurrent(fallback)
	}
	return nil
}

// openControl prepares the connection to the control plane.
func (s *Sidecar) openControl(fallback *policy.Snapshot) error {
	client, err := s.access.ControlPlane().Open()
	if err != nil {
		return &ConfigError{Err: fmt.Errorf("auth-config: control_plane: %w", err)}
	}
	p := &s.policies
	if p.peerKey, err = access.NewPeerKey(s.cfg.NodeID); err != nil {
		return err
	}
	p.control, err = control.Open(control.Config{
		Address: s.cfg.ControlPlane, Dial: client.DialOptions(),
		NodeID: s.cfg.NodeID, InstanceSecret: s.secret, Version: s.cfg.Version,
		PeerKey: p.peerKey.Public(), OnCredential: p.peerKey.Take,
		Dir: s.cfg.DataDir, Fallback: fallback, Logger: s.cfg.Logger,
	})
	if err != nil {
		return &ConfigError{Err: fmt.Errorf("control-plane: %w", err)}
	}
	s.onClose("the connection to the control plane", p.control.Close)
	p.Current = p.control.Policies()
	p.quota = quota.New(quota.Config{
		Conn: p.control.Conn(), NodeID: s.cfg.NodeID, InstanceSecret: s.secret, Known: p.control.KnownSidecars, Logger: s.cfg.Logger,
	})
	p.shares = p.quota
	return nil
}

// policyOf is the policy in force for a topic.
func (s *Sidecar) policyOf(topic string) *policy.Effective { return s.policies.Load().Topic(topic) }

// about is what the control plane hears of this sidecar.
func (s *Sidecar) about() control.About {
	return control.About{
		StoreID: s.store.ID, FolderSecret: s.store.FolderSecret(), Replay: s.replayAddress,
		UnmetConcerns: func() map[string]string { return s.store.Status().UnmetConcerns },
	}
}

// followControl brings changes of policies, and tells the control plane of this sidecar.
func (s *Sidecar) followControl() (run []func(context.Context) error) {
	p := &s.policies
	if p.file != nil {
		run = append(run, p.file.Run)
	}
	if p.control != nil {
		topics := topiclist.New(topiclist.Config{
			Conn: p.control.Conn(), NodeID: s.cfg.NodeID, InstanceSecret: s.secret, StoreID: s.store.ID, Log: s.store.Log(), Logger: s.cfg.Logger,
		})
		run = append(run, p.quota.Run, topics.Run, s.reportHealth, func(ctx context.Context) error { return p.control.Run(ctx, s.about()) })
	}
	return run
}

// known reports whether all policies are in force, and count as confirmed.
func (p *policies) known() bool {
	return p.control == nil || p.control.Cached() && p.control.Confirmed()
}

// await makes a start wait for the control plane, for a short time. After that the sidecar serves
// with the policies that it has.
func (p *policies) await(ctx context.Context, logger *slog.Logger) {
	if p.control == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, awaitControlPlane)
	defer cancel()
	if p.control.Cached() {
		p.control.AwaitSyncedOrAway(ctx)
	} else if p.control.AwaitSynced(ctx) != nil {
		logger.Warn("the control plane has not answered; serving with other policies until it does",
			"control_plane", p.control.Status().Address)
	}
}

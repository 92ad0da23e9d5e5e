package sidecar

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"

	"github.com/sluice-bus/sluice/internal/listen"
	"github.com/sluice-bus/sluice/internal/policypb"
	"github.com/sluice-bus/sluice/sidecar/internal/federation"
	"github.com/sluice-bus/sluice/sidecar/internal/ops"
	"github.com/sluice-bus/sluice/sidecar/internal/replay"
)

func isPeerAddress(text string) bool {
	if path, ok := strings.CutPrefix(text, "unix:"); ok {
		return strings.HasPrefix(path, "/")
	}
	host, port, err := net.SplitHostPort(text)
	if err != nil || host == "" {
		return false
	}
	n, err := strconv.ParseUint(port, 10, 16)
	return err == nil && n > 0
}

// openPeers prepares to ask the other sidecars, and to be asked by them.
func (s *Sidecar) openPeers(context.Context) (err error) {
	client, err := s.access.Peers().ForTLS().Open()
	if err != nil {
		return &ConfigError{Err: fmt.Errorf("auth-config: peers: %w", err)}
	}
	if !s.cfg.hasPeers() {
		return nil
	}
	fleet := federation.New(federation.Config{
		Self: s.self, Parts: s.store.Parts(), Store: s.store.History(), Peers: s.knownPeers, Unknown: s.unknownPeers,
		Client: client, Insecure: s.cfg.Insecure, Authorize: s.authorizePeer, Transport: s.tracing.Transport, Logger: s.cfg.Logger,
	})
	s.fleet = fleet
	s.onClose("connections to other sidecars", func() error { fleet.Close(); return nil })
	return nil
}

// authorizePeer adds this sidecar's token to a request to another.
func (s *Sidecar) authorizePeer(r *http.Request, node string) {
	s.access.AuthorizePeer(r, node, s.policies.peerKey)
}

// history is what the replay API needs.
func (s *Sidecar) history() replay.Config {
	return replay.Config{
		Store: s.store.History(), Parts: s.store.Parts(), Self: s.self, Fleet: s.fleet, About: s.root(),
		Access: s.access, PeerKey: s.policies.peerKey, Budget: s.budget,
		Logger: s.cfg.Logger, Audit: s.audit, StallTimeout: s.cfg.SlowClientTimeout,
	}
}

// self is this sidecar's description for the others.
func (s *Sidecar) self() replay.Peer {
	return replay.Peer{
		NodeID: s.cfg.NodeID, Instance: policypb.PublicID(s.secret), StoreID: s.store.ID(), FolderID: policypb.PublicID(s.store.FolderSecret()),
		Shared: !s.store.Roster().IsAlone(), Version: s.cfg.Version,
	}
}

// replayAddress is where other sidecars reach the replay API.
func (s *Sidecar) replayAddress() string {
	if s.cfg.ReplayAdvertise != "" {
		return s.cfg.ReplayAdvertise
	}
	return listen.Address(s.listeners.replay)
}

// knownPeers are the other sidecars that the control plane and the settings name. A sidecar that
// both name is listed twice.
func (s *Sidecar) knownPeers() []federation.Peer {
	var peers []federation.Peer
	if s.policies.control != nil {
		for _, p := range s.policies.control.Peers() {
			peers = append(peers, federation.Peer(p))
		}
	}
	for _, address := range s.cfg.Peers {
		peers = append(peers, federation.Peer{Address: address})
	}
	return peers
}

// unknownPeers names the control plane, if it has not yet answered which sidecars there are.
func (s *Sidecar) unknownPeers() string {
	if s.policies.control == nil || s.policies.control.PeersKnown() {
		return ""
	}
	return fmt.Sprintf("the control plane (%s)", s.cfg.ControlPlane)
}

// peers are the other sidecars for the status.
func (s *Sidecar) peers() (peers []ops.Peer) {
	listed := map[string]bool{s.replayAddress(): true}
	for _, p := range s.knownPeers() {
		if !listed[p.Address] {
			listed[p.Address] = true
			peers = append(peers, ops.Peer{NodeID: p.NodeID, StoreID: p.StoreID, Address: p.Address, Gone: p.Gone})
		}
	}
	return peers
}

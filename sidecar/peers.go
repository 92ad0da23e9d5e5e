package sidecar

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"

	"github.com/sluice-bus/sluice/sidecar/internal/federation"
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
	if s.cfg.hasPeers() {
		s.fleet = federation.New(federation.Config{
			Self: s.self, Parts: s.parts(), Store: s.store.source, Peers: s.knownPeers,
			Unknown: s.unknownPeers, Client: client, Insecure: s.cfg.Insecure, Authorize: s.authorizePeer, Transport: s.tracing.Transport, Logger: s.cfg.Logger,
		})
	}
	return nil
}

// authorizePeer adds this sidecar's token to a request to another.
func (s *Sidecar) authorizePeer(r *http.Request, node string) {
	s.access.AuthorizePeer(r, node, s.peerKey)
}

// history is the replay API.
func (s *Sidecar) history() http.Handler {
	cfg := replay.Config{
		Store: s.store.source, Parts: s.parts(), Self: s.self,
		Access: s.access, PeerKey: s.peerKey, Logger: s.cfg.Logger, Audit: s.audit, StallTimeout: s.cfg.SlowClientTimeout,
	}
	if s.fleet != nil {
		cfg.Fleet = s.fleet
	}
	return replay.New(cfg)
}

// self is this sidecar's description for the others.
func (s *Sidecar) self() replay.Peer {
	return replay.Peer{
		NodeID: s.cfg.NodeID, Instance: s.instance, StoreID: s.store.id(), Shared: s.store.shared != nil, Version: s.cfg.Version,
	}
}

// parts are the log and the spool of this sidecar.
func (s *Sidecar) parts() replay.Parts {
	p := replay.Parts{Log: s.store.log}
	if s.store.shared != nil {
		p.Spool, p.Waiting = s.store.shared.spool.Snapshot, s.store.shared.spool.Waiting
	}
	return p
}

// knownPeers are the other sidecars that the control plane and the settings name. A sidecar that
// both name is listed twice.
func (s *Sidecar) knownPeers() []federation.Peer {
	var peers []federation.Peer
	if s.control != nil {
		for _, p := range s.control.Peers() {
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
	if s.control == nil || s.control.PeersKnown() {
		return ""
	}
	return fmt.Sprintf("the control plane (%s)", s.cfg.ControlPlane)
}

// peer is another sidecar's replay API in the status.
type peer struct {
	NodeID  string `json:"node_id"` // "" if the settings name only an address
	StoreID string `json:"store_id"`
	Address string `json:"address"`
	Gone    bool   `json:"gone,omitempty"` // it has left, or the control plane cannot reach it
}

// peers are the other sidecars, as far as this one knows without asking them.
func (s *Sidecar) peers() []peer {
	peers := []peer{} // [] rather than null
	listed := map[string]bool{s.replayAddress(): true}
	for _, p := range s.knownPeers() {
		if !listed[p.Address] {
			listed[p.Address] = true
			peers = append(peers, peer{NodeID: p.NodeID, StoreID: p.StoreID, Address: p.Address, Gone: p.Gone})
		}
	}
	return peers
}

package xds

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-bus/sluice/controlplane/internal/fleet"
	"github.com/sluice-bus/sluice/internal/policypb"
)

// Bounds, in bytes, of what a sidecar reports of itself.
const (
	maxNodeID   = 255
	maxMetadata = 1024
	maxUnmet    = 64 << 10
)

// callbacks implements the library's callbacks: open first, closed last, and all of one stream from
// the same goroutine.
type callbacks struct{ *Server }

// stream returns the open stream of the library's number.
func (c callbacks) stream(id int64) *stream {
	s, _ := c.streams.Load(id)
	return s.(*stream)
}

// OnDeltaStreamOpen begins a stream.
func (c callbacks) OnDeltaStreamOpen(ctx context.Context, id int64, _ string) error {
	var from net.Addr
	if p, ok := peer.FromContext(ctx); ok {
		from = p.Addr
	}
	st := newStream(from, c.policies)
	st.ctx = ctx
	c.streams.Store(id, st)
	c.open.Add(1)
	return nil
}

// OnDeltaStreamClosed ends it.
func (c callbacks) OnDeltaStreamClosed(id int64, _ *core.Node) {
	s := c.stream(id)
	c.streams.Delete(id)
	c.open.Add(-1)
	if s.session != nil {
		s.session.Close()
		c.cfg.Logger.Info("a sidecar has disconnected", "node", s.nodeID, "from", s.from, "after", time.Since(s.since).Round(time.Second))
	}
	if err := c.credentials.take(s); err != nil {
		c.cfg.Logger.Error("xds: cannot remove the credential of a sidecar that has left", "node", s.nodeID, "error", err)
	}
}

// OnStreamDeltaRequest is called before the library handles a request.
func (c callbacks) OnStreamDeltaRequest(id int64, r *discovery.DeltaDiscoveryRequest) error {
	s := c.stream(id)
	if s.session == nil {
		node, err := nodeOf(r.GetNode(), s.from)
		if err != nil {
			return status.Error(codes.InvalidArgument, err.Error())
		}
		within, err := c.cfg.Admit(s.ctx, node.ID, node.StoreID)
		if err != nil {
			return err
		}
		if r.GetNode().GetMetadata().GetFields()["drained"].GetBoolValue() {
			if err := c.cfg.Registry.Taken(node); err != nil { // the other process with this node id has events
				return status.Error(codes.AlreadyExists, err.Error())
			}
			if err := c.cfg.Drained(node); err != nil {
				return status.Error(codes.Unavailable, err.Error())
			}
			c.cfg.Logger.Info("a sidecar has stopped, and left no events behind", "node", node.ID)
			return errDrained
		}
		if s.session, err = c.connect(s.ctx, node, within, s.from); err != nil {
			return err
		}
		s.nodeID, s.since = node.ID, time.Now()
		key, err := policypb.DecodeKey(r.GetNode().GetMetadata().GetFields()[policypb.PeerKey].GetStringValue())
		if err == nil {
			err = c.credentials.give(s, key)
		}
		if err != nil {
			return status.Errorf(codes.InvalidArgument, "node.metadata.%s: %v", policypb.PeerKey, err)
		}
		c.cfg.Logger.Info("a sidecar has connected", "node", node.ID, "from", s.from, "replay", node.Address, "version", node.Version,
			"store", node.StoreID)
	}
	if r.GetNode() != nil { // later requests may have a changed node
		unmet, err := unmetOf(r.GetNode())
		if err != nil {
			return status.Error(codes.InvalidArgument, err.Error())
		}
		s.session.Unmet(unmet)
		later, err := nodeOf(r.GetNode(), s.from)
		if err != nil {
			return status.Error(codes.InvalidArgument, err.Error())
		}
		if later.StoreID != "" { // it may not have known its store before
			if _, err := c.cfg.Admit(s.ctx, s.nodeID, later.StoreID); err != nil {
				return err
			}
			s.session.Located(later.StoreID)
		}
	}
	if e := r.GetErrorDetail(); e != nil {
		c.cfg.Logger.Warn("xds: a sidecar refuses a response", "node", s.nodeID, "type", r.GetTypeUrl(), "reason", e.GetMessage())
	}
	if len(r.GetResourceNamesSubscribe()) > 0 {
		c.apply()
	}
	if err := s.request(r); err != nil {
		c.cfg.Logger.Warn("xds: a sidecar's request is refused, and its stream ends", "node", s.nodeID, "from", s.from, "error", err)
		return status.Errorf(status.Code(err), "sidecar %q: %s", s.nodeID, status.Convert(err).Message())
	}
	return nil
}

// connect begins a session. The error has a gRPC status.
func (c callbacks) connect(ctx context.Context, node fleet.Node, within fleet.Prefix, from net.Addr) (*fleet.Session, error) {
	_ = c.cfg.Registry.Await(ctx, node) // Connect returns the error
	// The first request of a stream that its sidecar has given up may be handled after that of the
	// next stream: it must not replace the next stream's session.
	c.connecting.Lock()
	defer c.connecting.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, status.FromContextError(err).Err()
	}
	session, err := c.cfg.Registry.Connect(node, within)
	if taken, ok := errors.AsType[*fleet.TakenError](err); ok {
		if !taken.Again {
			c.cfg.Logger.Warn("xds: a sidecar is refused: another process has its node id", "node", node.ID, "from", from,
				"replay", node.Address, "connected_replay", taken.Address, "control_plane", taken.ControlPlane)
		}
		return nil, status.Error(codes.AlreadyExists, err.Error())
	}
	if err != nil {
		c.cfg.Logger.Warn("xds: a sidecar is refused", "node", node.ID, "from", from, "error", err)
		return nil, status.Error(codes.ResourceExhausted, err.Error())
	}
	return session, nil
}

// OnStreamDeltaResponse is called before a response is sent.
func (c callbacks) OnStreamDeltaResponse(id int64, _ *discovery.DeltaDiscoveryRequest, r *discovery.DeltaDiscoveryResponse) {
	c.stream(id).response(r)
	c.policies.mark(r)
	if c.cfg.RESTURL != nil {
		r.ControlPlane = &core.ControlPlane{Identifier: c.cfg.RESTURL()}
	}
}

// errDrained ends a stream whose first request says that the sidecar is drained: such a stream has
// no other purpose.
var errDrained = status.Error(codes.Aborted, "goodbye")

// nodeOf reads the sidecar's description of itself in its first request.
func nodeOf(n *core.Node, from net.Addr) (fleet.Node, error) {
	text := func(key string) string { return n.GetMetadata().GetFields()[key].GetStringValue() }
	node := fleet.Node{
		ID: n.GetId(), Instance: policypb.PublicID(text(policypb.InstanceSecret)), Address: text("replay"),
		StoreID: text("store_id"), FolderID: policypb.PublicID(text(policypb.FolderSecret)), Version: text("version"),
	}
	if node.ID == "" || len(node.ID) > maxNodeID {
		return node, fmt.Errorf("node.id has %d bytes; want 1 to %d", len(node.ID), maxNodeID)
	}
	for _, key := range []string{policypb.InstanceSecret, "replay", "store_id", policypb.FolderSecret, "version"} {
		if value := text(key); len(value) > maxMetadata {
			return node, fmt.Errorf("node.metadata.%s has %d bytes; want at most %d", key, len(value), maxMetadata)
		}
	}
	node.Address = reachable(node.Address, from)
	return node, nil
}

// unmetOf reads the write concerns that a sidecar's store does not meet.
func unmetOf(n *core.Node) (concerns map[string]string, _ error) {
	told := n.GetMetadata().GetFields()[policypb.UnmetConcerns].GetStructValue()
	if size := proto.Size(told); size > maxUnmet {
		return nil, fmt.Errorf("node.metadata.%s has %d bytes; want at most %d", policypb.UnmetConcerns, size, maxUnmet)
	}
	for topic, concern := range told.GetFields() {
		if concerns == nil {
			concerns = map[string]string{}
		}
		concerns[topic] = concern.GetStringValue()
	}
	return concerns, nil
}

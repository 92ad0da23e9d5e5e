package control

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-bus/sluice/controlplane/policypb"
	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sidecar/internal/xds"
)

// peersType is the type of the resources that have the replay peers.
const peersType = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"

// metadataKey is where an endpoint's metadata say which sidecar it is.
const metadataKey = "sluice"

// entry is a resource that was taken. What it says is immutable.
type entry struct {
	version string // as xDS counts
	body    []byte

	effective *policy.Effective // of a policy; nil: it is absent
	number    int64             // the policy's version
	peers     []Peer

	// These two change under Control.mu.
	live     bool // it came, or was confirmed, in this life
	outdated bool // something newer was refused
}

// decode reads a resource and checks all of it. The error says which it is.
func decode(typeURL string, r xds.Resource) (*entry, error) {
	e := &entry{version: r.Version, body: r.Body, live: true}
	var err error
	switch typeURL {
	case policypb.TopicPolicyType:
		var p policypb.TopicPolicy
		if err = proto.Unmarshal(r.Body, &p); err == nil && !p.GetAbsent() {
			e.number = p.GetVersion()
			e.effective, err = settings(p.GetSettings())
		}
		if err == nil && (p.GetName() != r.Name || !topicName(r.Name)) {
			err = fmt.Errorf("%q is not the name of its topic", p.GetName())
		}
	case policypb.GlobPolicyType:
		var p policypb.GlobPolicy
		if err = proto.Unmarshal(r.Body, &p); err == nil {
			e.number = p.GetVersion()
			e.effective, err = settings(p.GetSettings())
		}
		if err == nil && (p.GetName() != r.Name || !strings.HasSuffix(r.Name, "*") || !policy.ValidName(r.Name)) {
			err = fmt.Errorf("%q is not the name of its glob", p.GetName())
		}
	case peersType:
		var a endpointv3.ClusterLoadAssignment
		if err = proto.Unmarshal(r.Body, &a); err == nil {
			e.peers, err = peersOf(&a)
		}
	default:
		err = fmt.Errorf("unknown type %s", typeURL)
	}
	if err != nil {
		return nil, fmt.Errorf("%q: %w", r.Name, err)
	}
	return e, nil
}

// topicName tells whether a policy may be that of one topic, by its name.
func topicName(name string) bool {
	return policy.ValidName(name) && !strings.HasSuffix(name, "*")
}

func settings(s *policypb.Settings) (*policy.Effective, error) {
	if s == nil {
		return nil, errors.New("has no settings")
	}
	return s.Effective()
}

// peersOf reads the sidecars in one resource.
func peersOf(a *endpointv3.ClusterLoadAssignment) (peers []Peer, err error) {
	for _, locality := range a.GetEndpoints() {
		for i, endpoint := range locality.GetLbEndpoints() {
			p := Peer{Gone: endpoint.GetHealthStatus() == corev3.HealthStatus_UNHEALTHY}
			if p.Address, err = addressOf(endpoint.GetEndpoint().GetAddress()); err != nil {
				return nil, fmt.Errorf("endpoint %d: %w", i, err)
			}
			about := endpoint.GetMetadata().GetFilterMetadata()[metadataKey].GetFields()
			p.NodeID = about["node_id"].GetStringValue()
			p.Instance = about["instance"].GetStringValue()
			p.StoreID = about["store_id"].GetStringValue()
			if p.Instance == "" {
				return nil, fmt.Errorf("endpoint %d: has no instance", i)
			}
			peers = append(peers, p)
		}
	}
	return peers, nil
}

// addressOf writes an address as flags have it.
func addressOf(a *corev3.Address) (string, error) {
	if path := a.GetPipe().GetPath(); path != "" {
		return "unix:" + path, nil
	}
	s := a.GetSocketAddress()
	if s.GetAddress() == "" || s.GetPortValue() == 0 || s.GetPortValue() > 65535 {
		return "", errors.New("has no address")
	}
	return net.JoinHostPort(s.GetAddress(), strconv.Itoa(int(s.GetPortValue()))), nil
}

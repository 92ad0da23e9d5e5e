package control

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/internal/policypb"
	"github.com/sluice-bus/sluice/sidecar/internal/xds"
)

// peersType is the type of resources with replay peers.
const peersType = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"

// metadataKey is the key of a sidecar's identity in an endpoint's metadata.
const metadataKey = "sluice"

// entry is an accepted resource. Its content is immutable.
type entry struct {
	version string // of xDS
	body    []byte // nil: there is no cache

	policies []*policy.Resolved // of a pack, ascending by name
	peers    []Peer

	// Control.mu guards these two.
	live     bool // this process has received it, or its confirmation
	outdated bool // a newer version was refused
}

// decode reads a resource and checks all of it. The error names the resource.
func decode(typeURL string, r xds.Resource, read settingsRead, source string) (*entry, error) {
	e := &entry{version: r.Version, body: r.Body, live: source == sourceLive}
	var err error
	switch typeURL {
	case policypb.PolicyPackType:
		var p policypb.Pack
		if p, err = policypb.DecodePack(r.Body); err == nil {
			e.policies, err = policiesOf(p, read, source)
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

// policiesOf reads the policies of a pack; the error names every bad one.
func policiesOf(p policypb.Pack, read settingsRead, source string) (out []*policy.Resolved, _ error) {
	var bad []error
	list := make([]policy.Resolved, len(p.Policies))
	out = make([]*policy.Resolved, 0, len(list))
	last := ""
	for i, from := range p.Policies {
		name := from.Name
		effective, err := read.settings(p, from)
		switch {
		case !policy.ValidName(name):
			err = errors.New("is not the name of a policy")
		case name <= last:
			err = fmt.Errorf("comes after %q; want names that ascend", last)
		}
		last = name
		if err != nil {
			bad = append(bad, fmt.Errorf("%q: %w", name, err))
			continue
		}
		list[i] = policy.Resolved{Name: name, Version: from.Version, Source: source, Effective: effective}
		out = append(out, &list[i])
	}
	return out, errors.Join(bad...)
}

// settingsRead has parsed contents of policies: most policies are equal to others, and most of a
// changed pack is unchanged.
type settingsRead map[string]*policy.Effective

func (read settingsRead) settings(p policypb.Pack, of policypb.PackedPolicy) (*policy.Effective, error) {
	i := int(of.Settings)
	if i >= len(p.Settings) {
		return nil, fmt.Errorf("has settings %d of %d", i, len(p.Settings))
	}
	body := p.Settings[i]
	if e := read[string(body)]; e != nil {
		return e, nil
	}
	var s policypb.Settings
	if err := proto.Unmarshal(body, &s); err != nil {
		return nil, err
	}
	e, err := s.Effective()
	if err == nil {
		read[string(body)] = e
	}
	return e, err
}

// follow compares an entry with the older one that it replaces. It reuses the older one's unchanged
// policies, and returns the removed policies and the new ones.
func (e *entry) follow(older *entry) (remove, put []*policy.Resolved) {
	if len(older.policies) == 0 { // as for all packs of a start
		return nil, e.policies
	}
	was := make(map[string]*policy.Resolved, len(older.policies))
	for _, p := range older.policies {
		was[p.Name] = p
	}
	for i, p := range e.policies {
		old := was[p.Name]
		delete(was, p.Name)
		if old != nil && *old.Effective == *p.Effective {
			p.Effective = old.Effective
			if *old == *p {
				e.policies[i] = old
				continue
			}
		}
		put = append(put, p)
	}
	return slices.Collect(maps.Values(was)), put
}

// confirm records that the control plane has the same content as an entry of an earlier process.
func (e *entry) confirm() {
	e.live = true
	for i, p := range e.policies {
		again := *p // snapshots share p
		again.Source = sourceLive
		e.policies[i] = &again
	}
}

// peersOf reads the sidecars of a resource.
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
			p.FolderID = about["folder_id"].GetStringValue()
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

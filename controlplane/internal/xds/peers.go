package xds

import (
	"fmt"
	"hash/fnv"
	"net"
	"slices"
	"strconv"
	"strings"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/sluice-bus/sluice/controlplane/internal/fleet"
)

const (
	// peerGroups is how many resources the replay peers are spread over.
	peerGroups = 16
	// metadataKey is under which an endpoint says who it is.
	metadataKey = "sluice"
)

// peers are the connected sidecars with a replay API, as resources. Only the
// goroutine of Run changes them.
type peers struct {
	cache  *cache.LinearCache
	groups [peerGroups][]fleet.Node // as they were sent last
}

func newPeers() *peers {
	p := &peers{}
	initial := map[string]types.Resource{}
	for i := range peerGroups {
		initial[groupName(i)] = &endpoint.ClusterLoadAssignment{ClusterName: groupName(i)}
	}
	p.cache = cache.NewLinearCache(resource.EndpointType, cache.WithInitialResources(initial))
	return p
}

func groupName(i int) string { return "replay-peers/" + strconv.Itoa(i) }

// groupOf is the group of a sidecar: by its id, so that it does not change.
func groupOf(id string) int {
	h := fnv.New32a()
	h.Write([]byte(id))
	return int(h.Sum32() % peerGroups)
}

// replace sends the groups that have changed. The nodes are in the same order
// each time.
func (p *peers) replace(nodes []fleet.Node) error {
	var groups [peerGroups][]fleet.Node
	for _, n := range nodes {
		i := groupOf(n.ID)
		groups[i] = append(groups[i], n)
	}
	changed := map[string]types.Resource{}
	for i := range groups {
		if !slices.Equal(groups[i], p.groups[i]) {
			changed[groupName(i)] = assignment(groupName(i), groups[i])
		}
	}
	p.groups = groups
	return update(p.cache, changed, nil)
}

// assignment is one group as a resource. A node whose address cannot be read is
// left out: nobody could reach it.
func assignment(name string, nodes []fleet.Node) types.Resource {
	group := &endpoint.LocalityLbEndpoints{}
	for _, n := range nodes {
		address, err := addressOf(n.Address)
		if err != nil {
			continue
		}
		group.LbEndpoints = append(group.LbEndpoints, &endpoint.LbEndpoint{
			HostIdentifier: &endpoint.LbEndpoint_Endpoint{Endpoint: &endpoint.Endpoint{Address: address}},
			Metadata: &core.Metadata{FilterMetadata: map[string]*structpb.Struct{metadataKey: {
				Fields: map[string]*structpb.Value{
					"node_id":  structpb.NewStringValue(n.ID),
					"instance": structpb.NewStringValue(n.Instance),
					"store_id": structpb.NewStringValue(n.StoreID),
				},
			}}},
		})
	}
	out := &endpoint.ClusterLoadAssignment{ClusterName: name}
	if len(group.LbEndpoints) > 0 {
		out.Endpoints = []*endpoint.LocalityLbEndpoints{group}
	}
	return out
}

// addressOf reads host:port or unix:/path.
func addressOf(text string) (*core.Address, error) {
	if path, unix := strings.CutPrefix(text, "unix:"); unix {
		return &core.Address{Address: &core.Address_Pipe{Pipe: &core.Pipe{Path: path}}}, nil
	}
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		return nil, err
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 || host == "" {
		return nil, fmt.Errorf("address %q: want host:port with a port from 1 to 65535", text)
	}
	return &core.Address{Address: &core.Address_SocketAddress{SocketAddress: &core.SocketAddress{
		Address: host, PortSpecifier: &core.SocketAddress_PortValue{PortValue: uint32(n)},
	}}}, nil
}

// reachable is a sidecar's address as others see it: one that listens on every
// interface is reached where its connection comes from.
func reachable(address string, from net.Addr) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	tcp, ok := from.(*net.TCPAddr)
	if ip := net.ParseIP(host); ok && (host == "" || ip != nil && ip.IsUnspecified()) {
		return net.JoinHostPort(tcp.IP.String(), port)
	}
	return address
}

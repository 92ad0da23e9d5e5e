package xds

import (
	"fmt"
	"hash/fnv"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/sluice-bus/sluice/controlplane/internal/fleet"
)

const (
	// peerGroups is how many resources the replay peers are divided into. Empty ones are left out.
	peerGroups = 64
	// metadataKey is the key of a sidecar's identity in an endpoint's metadata.
	metadataKey = "sluice"
	// peersPerSecond bounds the bytes of replay peers sent to the whole fleet per second, and
	// peersAtOnce the bytes before a pause. When a thousand sidecars join at once, each has to be
	// told of all others, 180 MiB together; that must not delay policies.
	peersPerSecond = 4 << 20
	peersAtOnce    = 16 << 20
)

// peers are the sidecars with a replay API, as resources; those that have left are unhealthy. Only
// the goroutine of Run changes them.
type peers struct {
	cache  *cache.LinearCache
	groups [peerGroups][]fleet.Node // as they were sent last
	next   int                      // the group that is looked at first
	free   time.Time                // when more may be sent
}

func newPeers() *peers { return &peers{cache: cache.NewLinearCache(resource.EndpointType)} }

func groupName(i int) string { return "replay-peers/" + strconv.Itoa(i) }

// groupOf returns the group of a sidecar, by its id, so that it does not change.
func groupOf(id string) int {
	h := fnv.New32a()
	h.Write([]byte(id))
	return int(h.Sum32() % peerGroups)
}

// replace sends the changed groups to so many receivers, and reports whether it sent all of them:
// later calls send the rest. The nodes are in the same order each time.
func (p *peers) replace(nodes []fleet.Node, receivers int, now time.Time) (all bool, err error) {
	if now.Before(p.free) {
		return false, nil
	}
	var groups [peerGroups][]fleet.Node
	for _, n := range nodes {
		i := groupOf(n.ID)
		groups[i] = append(groups[i], n)
	}
	changed, gone := map[string]types.Resource{}, []string(nil)
	spent := 0
	for range peerGroups {
		if spent >= peersAtOnce {
			break
		}
		i := p.next
		p.next = (i + 1) % peerGroups
		if slices.Equal(groups[i], p.groups[i]) {
			continue
		}
		p.groups[i] = groups[i]
		if len(groups[i]) == 0 {
			gone = append(gone, groupName(i))
			continue
		}
		made := assignment(groupName(i), groups[i])
		changed[groupName(i)] = made
		spent += receivers * proto.Size(made)
	}
	p.free = now.Add(time.Duration(spent) * time.Second / peersPerSecond)
	return spent < peersAtOnce, update(p.cache, changed, gone)
}

// assignment makes the resource of a group. A node whose address cannot be parsed is left out: it
// cannot be reached.
func assignment(name string, nodes []fleet.Node) *endpoint.ClusterLoadAssignment {
	group := &endpoint.LocalityLbEndpoints{}
	for _, n := range nodes {
		address, err := addressOf(n.Address)
		if err != nil {
			continue
		}
		health := core.HealthStatus_UNKNOWN
		if n.Gone {
			health = core.HealthStatus_UNHEALTHY
		}
		group.LbEndpoints = append(group.LbEndpoints, &endpoint.LbEndpoint{
			HealthStatus:   health,
			HostIdentifier: &endpoint.LbEndpoint_Endpoint{Endpoint: &endpoint.Endpoint{Address: address}},
			Metadata: &core.Metadata{FilterMetadata: map[string]*structpb.Struct{metadataKey: {
				Fields: map[string]*structpb.Value{
					"node_id":   structpb.NewStringValue(n.ID),
					"instance":  structpb.NewStringValue(n.Instance),
					"store_id":  structpb.NewStringValue(n.StoreID),
					"folder_id": structpb.NewStringValue(n.FolderID),
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

// addressOf parses host:port or unix:/path.
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

// reachable is a sidecar's address as others reach it: a sidecar that listens on every interface is
// reached at the address of its connection.
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

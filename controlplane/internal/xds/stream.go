package xds

import (
	"context"
	"net"
	"strconv"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sluice-bus/sluice/controlplane/internal/fleet"
	"github.com/sluice-bus/sluice/internal/policypb"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// Bounds of one stream. Beyond them it ends with ResourceExhausted.
const (
	// MaxSubscribed is how many names a stream may subscribe to, of all types together.
	MaxSubscribed = 100_000
	// maxTypes is how many types of resources it may name.
	maxTypes = 32
	// maxUnacked bounds the resources sent and neither acked nor rejected. Each response counts as
	// one, too.
	maxUnacked = 4 * MaxSubscribed
)

// stream is one sidecar's stream. The library calls back from one goroutine, so nothing needs a
// lock.
type stream struct {
	ctx      context.Context
	from     net.Addr
	policies *policies
	session  *fleet.Session // nil until the first request
	nodeID   string

	types      map[string]*interest
	subscribed int // names, of all types

	unacked  map[string]sent // by nonce
	unackedN int             // what maxUnacked bounds
}

// interest is a stream's subscription to one type.
type interest struct {
	names    map[string]struct{}
	wildcard bool
	rejected *fleet.Rejection // not followed by an ack yet
	nonce    int64            // of the rejected response
}

func (i *interest) in(name string) bool {
	_, ok := i.names[name]
	return ok || i.wildcard
}

// sent is a response that the sidecar has not answered yet.
type sent struct {
	typeURL   string
	resources []sentResource
	removed   []string
}

// sentResource is one resource of a response; the version is 0 if it is not a policy, or was
// removed.
type sentResource struct {
	name    string
	version int64
	part    *fleet.Part // of a pack
}

func (s sent) size() int { return 1 + len(s.resources) + len(s.removed) }

func newStream(from net.Addr, p *policies) *stream {
	return &stream{from: from, policies: p, types: map[string]*interest{}, unacked: map[string]sent{}}
}

// request handles a subscription and the answer to a response; an error ends the stream.
func (s *stream) request(r *discovery.DeltaDiscoveryRequest) error {
	i, known := s.types[r.GetTypeUrl()]
	if !known {
		if len(s.types) >= maxTypes {
			return status.Errorf(codes.ResourceExhausted, "this stream names more than %d types of resources", maxTypes)
		}
		i = &interest{names: map[string]struct{}{}}
		s.types[r.GetTypeUrl()] = i
	}
	if err := s.subscribe(r, i); err != nil {
		return err
	}
	if !known {
		s.has(r, i)
	}
	s.settle(r, i)
	if s.unackedN > maxUnacked {
		return status.Errorf(codes.ResourceExhausted,
			"%d resources in %d responses were neither acked nor rejected, more than the %d that are allowed", s.unackedN, len(s.unacked), maxUnacked)
	}
	return nil
}

// subscribe updates what the stream wants.
func (s *stream) subscribe(r *discovery.DeltaDiscoveryRequest, i *interest) error {
	for _, name := range r.GetResourceNamesSubscribe() {
		if name == "" || len(name) > wire.MaxTopicBytes {
			return status.Errorf(codes.InvalidArgument, "a name of %d bytes in resource_names_subscribe; want 1 to %d", len(name), wire.MaxTopicBytes)
		}
	}
	added, ok := i.add(r.GetResourceNamesSubscribe(), MaxSubscribed-s.subscribed)
	if !ok {
		return status.Errorf(codes.ResourceExhausted, "this stream subscribes to more than the %d names that are allowed", MaxSubscribed)
	}
	removed, lostAll := i.remove(r.GetResourceNamesUnsubscribe())
	s.subscribed += len(added) - len(removed)
	if lostAll {
		s.session.Forget(func(policy string) bool { return typeOf(policy) == r.GetTypeUrl() && !i.in(policy) })
	} else if !i.wildcard {
		s.session.Acked(nil, removed)
	}
	return nil
}

// add subscribes to names, and returns the new ones. It subscribes to none if there are too many.
func (i *interest) add(names []string, room int) (added []string, ok bool) {
	for _, name := range names {
		if name == wildcard {
			i.wildcard = true
			continue
		}
		if _, has := i.names[name]; has {
			continue
		}
		if len(added) == room {
			for _, name := range added {
				delete(i.names, name)
			}
			return nil, false
		}
		i.names[name] = struct{}{}
		added = append(added, name)
	}
	return added, true
}

// remove unsubscribes from names, and returns those that the stream was subscribed to, and whether
// it no longer has the wildcard.
func (i *interest) remove(names []string) (removed []string, lostAll bool) {
	for _, name := range names {
		if name == wildcard {
			lostAll, i.wildcard = lostAll || i.wildcard, false
			continue
		}
		if _, has := i.names[name]; has {
			delete(i.names, name)
			removed = append(removed, name)
		}
	}
	return removed, lostAll
}

// has records the resources that a sidecar has from an earlier connection.
func (s *stream) has(r *discovery.DeltaDiscoveryRequest, i *interest) {
	if r.GetTypeUrl() == policypb.PolicyPackType {
		s.session.Holds(s.policies.parts(r.GetInitialResourceVersions()), nil)
		return
	}
	versions := s.policies.versions(r.GetTypeUrl(), r.GetInitialResourceVersions())
	for name := range r.GetInitialResourceVersions() {
		if _, inForce := versions[name]; !i.in(name) {
			delete(versions, name)
		} else if !inForce && r.GetTypeUrl() == policypb.TopicPolicyType {
			versions[name] = fleet.NoPolicy // or one that it is about to be sent
		}
	}
	s.session.Acked(versions, nil)
}

// response records a response that is about to be sent.
func (s *stream) response(r *discovery.DeltaDiscoveryResponse) {
	out := sent{
		typeURL: r.GetTypeUrl(), removed: r.GetRemovedResources(),
		resources: s.policies.identify(r.GetTypeUrl(), r.GetResources()),
	}
	s.unacked[r.GetNonce()] = out
	s.unackedN += out.size()
}

// settle handles the sidecar's answer to a response, if the request has one.
func (s *stream) settle(r *discovery.DeltaDiscoveryRequest, i *interest) {
	out, ok := s.unacked[r.GetResponseNonce()]
	if !ok || out.typeURL != r.GetTypeUrl() {
		return // no answer, or one to another stream
	}
	delete(s.unacked, r.GetResponseNonce())
	s.unackedN -= out.size()
	nonce, _ := strconv.ParseInt(r.GetResponseNonce(), 10, 64) // the library counts
	if r.GetErrorDetail() != nil {
		i.rejected, i.nonce = out.rejection(r.GetErrorDetail().GetMessage()), nonce
		s.session.Rejected(i.rejected)
		return
	}
	versions, gone := map[string]int64{}, []string(nil)
	for _, name := range out.removed {
		if out.typeURL == policypb.TopicPolicyType && i.in(name) && !i.wildcard {
			versions[name] = fleet.NoPolicy
		} else {
			gone = append(gone, name)
		}
	}
	parts := map[string]*fleet.Part{}
	for _, resource := range out.resources {
		if resource.part != nil {
			parts[resource.name] = resource.part
			continue
		}
		if resource.version > 0 && i.in(resource.name) {
			versions[resource.name] = resource.version
		} else {
			gone = append(gone, resource.name)
		}
	}
	if out.typeURL == policypb.PolicyPackType {
		s.session.Holds(parts, gone)
	} else {
		s.session.Acked(versions, gone)
	}
	if i.rejected != nil && nonce > i.nonce {
		i.rejected = nil
		s.session.Rejected(s.lastRejection())
	}
}

// lastRejection returns the rejection to show if several types have one.
func (s *stream) lastRejection() *fleet.Rejection {
	var last interest
	for _, i := range s.types {
		if i.rejected != nil && i.nonce > last.nonce {
			last = *i
		}
	}
	return last.rejected
}

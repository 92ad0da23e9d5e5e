package xds

import (
	"context"
	"net"
	"strconv"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sluice-bus/sluice/controlplane/internal/fleet"
	"github.com/sluice-bus/sluice/internal/policypb"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// Bounds of one stream. Beyond them it ends with ResourceExhausted.
const (
	// MaxSubscribed is how many names a stream may subscribe to, of all types together. Sidecars
	// subscribe to all of a type, to their own credential, and again to what they refused.
	MaxSubscribed = MaxVersions
	// MaxVersions is how many resources a sidecar may have when it connects, of all types together:
	// the packs of a million policies, and the replay peers. maxVersionBytes bounds the version of
	// one.
	MaxVersions     = 20_000
	maxVersionBytes = 128
	// maxTypes is how many types of resources it may name.
	maxTypes = 32
	// maxUnacked bounds the resources sent and neither acked nor rejected. Each response counts as
	// one, too.
	maxUnacked = 400_000
)

// stream is one sidecar's stream. The library calls back from one goroutine, so nothing needs a
// lock.
type stream struct {
	ctx      context.Context
	from     net.Addr
	policies *policies
	session  *fleet.Session // nil until the first request
	nodeID   string
	since    time.Time // of the session

	types      map[string]*interest
	subscribed int // names, of all types
	versions   int // that the sidecar had when it connected

	unacked  map[string]sent // by nonce
	unackedN int             // what maxUnacked bounds
}

// interest is a stream's subscription to one type.
type interest struct {
	names    map[string]struct{}
	rejected *fleet.Rejection // not followed by an ack yet
	nonce    int64            // of the rejected response
}

// sent is a response that the sidecar has not answered yet.
type sent struct {
	typeURL   string
	resources []sentResource
	removed   []string
}

// sentResource is one resource of a response.
type sentResource struct {
	name string
	part *fleet.Part // of a pack; else nil
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
	if err := s.checkVersions(r.GetInitialResourceVersions()); err != nil {
		return err
	}
	if !known && r.GetTypeUrl() == policypb.PolicyPackType {
		s.session.Holds(s.policies.inForce(r.GetInitialResourceVersions()), nil)
	}
	s.settle(r, i)
	if s.unackedN > maxUnacked {
		return status.Errorf(codes.ResourceExhausted,
			"%d resources in %d responses were neither acked nor rejected, more than the %d that are allowed",
			s.unackedN, len(s.unacked), maxUnacked)
	}
	return nil
}

// subscribe updates what the stream wants.
func (s *stream) subscribe(r *discovery.DeltaDiscoveryRequest, i *interest) error {
	for _, name := range r.GetResourceNamesSubscribe() {
		if name == "" || len(name) > wire.MaxTopicBytes {
			return status.Errorf(codes.InvalidArgument, "a name of %d bytes in resource_names_subscribe; want 1 to %d",
				len(name), wire.MaxTopicBytes)
		}
	}
	before := len(i.names)
	for _, name := range r.GetResourceNamesSubscribe() {
		i.names[name] = struct{}{}
	}
	if s.subscribed+len(i.names)-before > MaxSubscribed {
		return status.Errorf(codes.ResourceExhausted, "this stream subscribes to more than the %d names that are allowed", MaxSubscribed)
	}
	for _, name := range r.GetResourceNamesUnsubscribe() {
		delete(i.names, name)
	}
	s.subscribed += len(i.names) - before
	return nil
}

// checkVersions bounds the resources that the sidecar says it has: the library keeps them.
func (s *stream) checkVersions(has map[string]string) error {
	s.versions += len(has)
	if s.versions > MaxVersions {
		return status.Errorf(codes.ResourceExhausted, "more than the %d resources that are allowed in initial_resource_versions", MaxVersions)
	}
	for name, version := range has {
		if len(name) > wire.MaxTopicBytes || len(version) > maxVersionBytes {
			return status.Errorf(codes.InvalidArgument,
				"a name of %d bytes and a version of %d in initial_resource_versions; at most %d and %d are allowed",
				len(name), len(version), wire.MaxTopicBytes, maxVersionBytes)
		}
	}
	return nil
}

// response records a response that is about to be sent.
func (s *stream) response(r *discovery.DeltaDiscoveryResponse) {
	out := sent{typeURL: r.GetTypeUrl(), removed: r.GetRemovedResources(), resources: make([]sentResource, len(r.GetResources()))}
	for i, resource := range r.GetResources() {
		out.resources[i].name = resource.GetName()
		if out.typeURL == policypb.PolicyPackType {
			out.resources[i].part = s.policies.sent(resource)
		}
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
	if out.typeURL == policypb.PolicyPackType {
		parts := make(map[string]*fleet.Part, len(out.resources))
		for _, resource := range out.resources {
			parts[resource.name] = resource.part
		}
		s.session.Holds(parts, out.removed)
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

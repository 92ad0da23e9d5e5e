package xds

import (
	"maps"
	"slices"

	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"

	"github.com/sluice-bus/sluice/controlplane/policypb"
)

// wildcard subscribes to all resources of a type. It is also the name of a
// policy, which only matters where subscriptions are concerned.
const wildcard = "*"

// watcher gives each stream's subscription to the cache of its type.
type watcher struct {
	cache.MuxCache
	policies *policies
	held     *held
}

func newWatcher(p *policies, e *peers, h *held, c *credentials) *watcher {
	return &watcher{policies: p, held: h, MuxCache: cache.MuxCache{
		ClassifyDelta: func(r *cache.DeltaRequest) string { return r.GetTypeUrl() },
		Caches: map[string]cache.Cache{ // never changed: it has no lock
			policypb.PolicyPackType:  p.packCache,
			policypb.TopicPolicyType: p.topicCache,
			policypb.GlobPolicyType:  p.globCache,
			resource.EndpointType:    e.cache,

			policypb.PeerCredentialType: c.cache,
		},
	}}
}

// CreateDeltaWatch answers a subscription once there is something new for it.
// A type that is not served is a newer sidecar's; the mux would end the stream.
func (w *watcher) CreateDeltaWatch(request *cache.DeltaRequest, sub cache.Subscription, value chan cache.DeltaResponse) (func(), error) {
	from, served := w.Caches[request.GetTypeUrl()]
	if !served {
		return nil, nil
	}
	sub = again(request, sub)
	if request.GetTypeUrl() == resource.EndpointType {
		return w.held.watch(request, sub, value)
	}
	return w.policies.watch(from, request, sub, value)
}

// subscription is one that believes the client to have less.
type subscription struct {
	cache.Subscription
	returned map[string]string
}

// ReturnedResources are the resources that the client has, by version.
func (s subscription) ReturnedResources() map[string]string { return s.returned }

// again makes a name that is subscribed to be answered, as the protocol asks, also where
// the server believes that the client has it: it may have dropped or refused the resource
// in between. One that there is none of is said to be removed. The cache alone would be
// silent on both. A wildcard that is asked for again has everything sent again.
func again(request *cache.DeltaRequest, sub cache.Subscription) cache.Subscription {
	initial := request.GetInitialResourceVersions()
	var forget []string
	for _, name := range request.GetResourceNamesSubscribe() {
		_, wanted := sub.SubscribedResources()[name]
		_, named := initial[name]
		switch {
		case name == wildcard && len(initial) == 0:
			forget = slices.AppendSeq(forget, maps.Keys(sub.ReturnedResources()))
		case name != wildcard && !named && (wanted || sub.IsWildcard()):
			forget = append(forget, name)
		}
	}
	if len(forget) == 0 {
		return sub
	}
	returned := maps.Clone(sub.ReturnedResources()) // the library's own must not be changed
	for _, name := range forget {
		returned[name] = "" // no version: what is there is sent, what is not is said to be gone
	}
	return subscription{Subscription: sub, returned: returned}
}

// keepWildcard makes a request mean what its sender did. A client asks for one
// resource of a wildcard again by subscribing to its name and unsubscribing in
// one request. With the policy named '*' that would take back the wildcard.
func keepWildcard(request *cache.DeltaRequest) {
	if slices.Contains(request.GetResourceNamesSubscribe(), wildcard) {
		request.ResourceNamesUnsubscribe = slices.DeleteFunc(request.GetResourceNamesUnsubscribe(),
			func(name string) bool { return name == wildcard })
	}
}

package xds

import (
	"maps"
	"slices"

	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"

	"github.com/sluice-bus/sluice/internal/policypb"
)

// wildcard subscribes to all resources of a type.
const wildcard = "*"

// watcher passes each stream's subscription to the cache of its type.
type watcher struct {
	cache.MuxCache
	policies  *policies
	postponed *postponed
}

func newWatcher(p *policies, e *peers, h *postponed, c *credentials) *watcher {
	return &watcher{policies: p, postponed: h, MuxCache: cache.MuxCache{
		ClassifyDelta: func(r *cache.DeltaRequest) string { return r.GetTypeUrl() },
		Caches: map[string]cache.Cache{ // never changed: it has no lock
			policypb.PolicyPackType:     p.cache,
			policypb.PeerCredentialType: c.cache,
			resource.EndpointType:       e.cache,
		},
	}}
}

// CreateDeltaWatch answers a subscription once there are changes. For an unknown type the mux would
// end the stream.
func (w *watcher) CreateDeltaWatch(request *cache.DeltaRequest, sub cache.Subscription, value chan cache.DeltaResponse) (func(), error) {
	from, served := w.Caches[request.GetTypeUrl()]
	if !served {
		return nil, nil
	}
	sub = again(request, sub)
	switch request.GetTypeUrl() {
	case resource.EndpointType:
		return w.postponed.watch(request, sub, value)
	case policypb.PolicyPackType:
		return w.policies.watch(request, sub, value)
	default:
		return from.CreateDeltaWatch(request, sub, value)
	}
}

// subscription is a subscription that treats some resources as not yet sent.
type subscription struct {
	cache.Subscription
	returned map[string]string
}

// ReturnedResources are the resources that the client has, by version.
func (s subscription) ReturnedResources() map[string]string { return s.returned }

// again answers a name that is subscribed to again, as the protocol asks, even if the server
// believes that the client has the resource: the client may have dropped or refused it. A missing
// resource is answered as removed. The cache alone would answer neither. A wildcard that is
// subscribed to again gets all resources again.
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
		returned[name] = "" // no version: the cache sends the resource, or its removal
	}
	return subscription{Subscription: sub, returned: returned}
}

package xds

import (
	"sync"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"

	"github.com/sluice-bus/sluice/controlplane/internal/catalog"
	"github.com/sluice-bus/sluice/controlplane/internal/fleet"
	"github.com/sluice-bus/sluice/internal/policypb"
)

// policies are those in force, as resources.
type policies struct {
	mu    sync.Mutex // taken before the cache's own
	cache *marked
	packs map[string]*pack // by name of the resource
}

func newPolicies() *policies { return &policies{cache: newMarked(policypb.PolicyPackType)} }

// replace puts a state in force and returns how many resources it changed. Unchanged ones cost a
// comparison and are not sent. Calls are serial, so the policies in force do not change meanwhile,
// and streams wait only for the last step.
func (p *policies) replace(state *catalog.State) (int, error) {
	packs, changed, gone, err := p.pack(state.Resolved)
	if err != nil {
		return 0, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.packs = packs
	p.cache.follow(policypb.Revision{Series: state.Series, Number: state.Revision}, len(changed)+len(gone) > 0)
	return len(changed) + len(gone), p.cache.update(changed, gone)
}

// pack returns the packs of policies, and their changes.
func (p *policies) pack(all []catalog.Resolved) (packs map[string]*pack, changed map[string]types.Resource, gone []string, err error) {
	packs, changed = map[string]*pack{}, map[string]types.Resource{}
	for name, resolved := range packsOf(all) {
		if packs[name] = p.packs[name]; packs[name].is(resolved) {
			continue
		}
		if changed[name], packs[name], err = packOf(resolved); err != nil {
			return nil, nil, nil, err
		}
	}
	for name := range p.packs {
		if packs[name] == nil {
			gone = append(gone, name)
		}
	}
	return packs, changed, gone, nil
}

// watch answers a subscription, with policies of one revision.
func (p *policies) watch(request *cache.DeltaRequest, sub cache.Subscription, value chan cache.DeltaResponse) (func(), error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cache.CreateDeltaWatch(request, sub, value)
}

// mark sets the revision of a response of policies.
func (p *policies) mark(r *discovery.DeltaDiscoveryResponse) {
	if r.GetTypeUrl() != policypb.PolicyPackType {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	r.SystemVersionInfo = p.cache.revisionOf(r.GetSystemVersionInfo()).String()
}

// sent returns the versions of a pack in a response.
func (p *policies) sent(r *discovery.Resource) *fleet.Part {
	p.mu.Lock()
	current := p.packs[r.GetName()]
	p.mu.Unlock()
	if current != nil && current.part.ID == r.GetVersion() {
		return current.part
	}
	return &fleet.Part{ID: r.GetVersion(), Versions: packVersions(r.GetResource().GetValue())}
}

// inForce returns the packs in force among the resources that a sidecar has when it connects.
func (p *policies) inForce(hashes map[string]string) map[string]*fleet.Part {
	p.mu.Lock()
	defer p.mu.Unlock()
	found := map[string]*fleet.Part{}
	for name, hash := range hashes {
		if current := p.packs[name]; current != nil && current.part.ID == hash {
			found[name] = current.part
		}
	}
	return found
}

package xds

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-bus/sluice/controlplane/internal/catalog"
	"github.com/sluice-bus/sluice/controlplane/internal/fleet"
	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/internal/policypb"
)

// policies are those in force, as resources.
type policies struct {
	packCache  *marked
	topicCache *marked
	globCache  *marked

	mu     sync.Mutex       // taken before the caches' own
	packs  map[string]*pack // by name of the resource
	topics map[string]inForce
	globs  map[string]inForce
}

// inForce is the state of a policy that is served.
type inForce struct {
	version   int64
	effective *policy.Effective
	hash      string // the resource's version
}

func newPolicies() *policies {
	return &policies{
		packCache:  newMarked(policypb.PolicyPackType),
		topicCache: newMarked(policypb.TopicPolicyType),
		globCache:  newMarked(policypb.GlobPolicyType),
		topics:     map[string]inForce{},
		globs:      map[string]inForce{},
	}
}

// replace puts a state in force and returns how many resources it changed. Unchanged ones cost a
// comparison and are not sent. Calls are serial, so the policies in force do not change meanwhile,
// and streams wait only for the last step.
func (p *policies) replace(state *catalog.State) (int, error) {
	topics := newChange(p.topics, topicPolicy)
	globs := newChange(p.globs, globPolicy)
	for _, r := range state.Resolved {
		c := &topics
		if typeOf(r.Name) == policypb.GlobPolicyType {
			c = &globs
		}
		if err := c.add(r); err != nil {
			return 0, err
		}
	}
	gone, globsGone := topics.gone(), globs.gone()
	packs, packsChanged, packsGone, err := p.pack(state.Resolved)
	if err != nil {
		return 0, err
	}

	p.mu.Lock()
	defer p.mu.Unlock()
	p.packs, p.topics, p.globs = packs, topics.after, globs.after
	revision := policypb.Revision{Series: state.Series, Number: state.Revision}
	p.packCache.follow(revision, len(packsChanged)+len(packsGone) > 0)
	p.topicCache.follow(revision, len(topics.update)+len(gone) > 0)
	p.globCache.follow(revision, len(globs.update)+len(globsGone) > 0)
	// Exact policies are added before the globs change, and removed after that, so that no topic
	// inherits values of neither state.
	return len(topics.update) + len(gone) + len(globs.update) + len(globsGone), errors.Join(
		p.packCache.update(packsChanged, packsGone),
		p.topicCache.update(topics.update, nil),
		p.globCache.update(globs.update, globsGone),
		p.topicCache.update(nil, gone))
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

// change is the change of one type's resources.
type change struct {
	before, after map[string]inForce
	update        map[string]types.Resource
	resource      func(catalog.Resolved, *policypb.Settings) types.Resource
	// settings are shared by policies with equal fields: of ten thousand few differ in more than
	// their names.
	settings map[policy.Effective]*policypb.Settings
}

func newChange(before map[string]inForce, resource func(catalog.Resolved, *policypb.Settings) types.Resource) change {
	return change{
		before: before, after: make(map[string]inForce, len(before)),
		update: map[string]types.Resource{}, resource: resource,
		settings: map[policy.Effective]*policypb.Settings{},
	}
}

func (c *change) add(r catalog.Resolved) error {
	old, ok := c.before[r.Name]
	if ok && old.version == r.Version && same(old.effective, r.Effective) {
		c.after[r.Name] = old
		return nil
	}
	settings := c.settings[*r.Effective]
	if settings == nil {
		settings = policypb.FromEffective(r.Effective)
		c.settings[*r.Effective] = settings
	}
	made := c.resource(r, settings)
	text, err := cache.MarshalResource(made)
	if err != nil {
		return fmt.Errorf("policy %q: %w", r.Name, err)
	}
	c.update[r.Name] = made
	c.after[r.Name] = inForce{version: r.Version, effective: r.Effective, hash: cache.HashResource(text)}
	return nil
}

// gone returns the names that do not exist any more.
func (c *change) gone() (names []string) {
	for name := range c.before {
		if _, ok := c.after[name]; !ok {
			names = append(names, name)
		}
	}
	return names
}

func topicPolicy(r catalog.Resolved, s *policypb.Settings) types.Resource {
	return &policypb.TopicPolicy{Name: r.Name, Version: r.Version, Settings: s}
}

func globPolicy(r catalog.Resolved, s *policypb.Settings) types.Resource {
	return &policypb.GlobPolicy{Name: r.Name, Version: r.Version, Settings: s}
}

// update changes a cache, if there is anything to change.
func update(c *cache.LinearCache, resources map[string]types.Resource, gone []string) error {
	if len(resources) == 0 && len(gone) == 0 {
		return nil
	}
	return c.UpdateResources(resources, gone)
}

// versions finds, by their hashes, the policies in force among the resources that a sidecar has
// when it connects.
func (p *policies) versions(typeURL string, hashes map[string]string) map[string]int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	from := p.ofType(typeURL)
	found := map[string]int64{}
	for name, hash := range hashes {
		if e, ok := from[name]; ok && e.hash == hash {
			found[name] = e.version
		}
	}
	return found
}

// ofType returns the policies in force of a type; none if it is no type of policies.
func (p *policies) ofType(typeURL string) map[string]inForce {
	switch typeURL {
	case policypb.TopicPolicyType:
		return p.topics
	case policypb.GlobPolicyType:
		return p.globs
	default:
		return nil
	}
}

// watch answers a subscription, with policies of one revision.
func (p *policies) watch(c cache.Cache, request *cache.DeltaRequest, sub cache.Subscription, value chan cache.DeltaResponse) (func(), error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return c.CreateDeltaWatch(request, sub, value)
}

// mark sets the revision of a response of policies.
func (p *policies) mark(r *discovery.DeltaDiscoveryResponse) {
	of := map[string]*marked{policypb.PolicyPackType: p.packCache, policypb.TopicPolicyType: p.topicCache, policypb.GlobPolicyType: p.globCache}[r.GetTypeUrl()]
	if of == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	r.SystemVersionInfo = of.revisionOf(r.GetSystemVersionInfo()).String()
}

// identify returns the policy and version of each resource.
func (p *policies) identify(typeURL string, resources []*discovery.Resource) []sentResource {
	p.mu.Lock()
	defer p.mu.Unlock()
	from := p.ofType(typeURL)
	out := make([]sentResource, len(resources))
	for i, r := range resources {
		out[i].name = r.GetName()
		if typeURL == policypb.PolicyPackType {
			out[i].part = p.partOf(r)
			continue
		}
		if e, ok := from[r.GetName()]; ok && e.hash == r.GetVersion() {
			out[i].version = e.version
		} else if from != nil { // replaced by now
			var m policypb.TopicPolicy                          // a GlobPolicy's version has the same field number
			_ = proto.Unmarshal(r.GetResource().GetValue(), &m) // this server has written it
			out[i].version = m.GetVersion()
		}
	}
	return out
}

// partOf returns the versions of a pack. p.mu is held.
func (p *policies) partOf(r *discovery.Resource) *fleet.Part {
	if now := p.packs[r.GetName()]; now != nil && now.part.ID == r.GetVersion() {
		return now.part
	}
	return &fleet.Part{ID: r.GetVersion(), Versions: packVersions(r.GetResource().GetValue())}
}

// parts returns the packs in force among the resources that a sidecar has when it connects.
func (p *policies) parts(hashes map[string]string) map[string]*fleet.Part {
	p.mu.Lock()
	defer p.mu.Unlock()
	found := map[string]*fleet.Part{}
	for name, hash := range hashes {
		if now := p.packs[name]; now != nil && now.part.ID == hash {
			found[name] = now.part
		}
	}
	return found
}

// typeOf returns the type of the resource of a policy of that name.
func typeOf(name string) string {
	if strings.HasSuffix(name, wildcard) {
		return policypb.GlobPolicyType
	}
	return policypb.TopicPolicyType
}

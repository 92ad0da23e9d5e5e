package xds

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"

	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-bus/sluice/controlplane/internal/catalog"
	"github.com/sluice-bus/sluice/controlplane/internal/fleet"
	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/internal/policypb"
)

// perPack is the average number of policies in a pack. Large packs save memory, since the server
// keeps a version for each pack and stream; small packs save bandwidth, since a change of one
// policy sends its whole pack to every sidecar.
const perPack = 64

// pack is a resource with policies of neighbouring names.
type pack struct {
	resolved []catalog.Resolved
	part     *fleet.Part // its version as a resource, and those of the policies
}

// packsOf divides policies into packs. The hash of a name decides whether a pack begins with it,
// and the pack has that name: adding or removing a policy changes one pack, or two if a pack begins
// with it. The policies are ascending by name.
func packsOf(all []catalog.Resolved) map[string][]catalog.Resolved {
	packs := map[string][]catalog.Resolved{}
	name, from := "policies/", 0
	for i := range all {
		sum := sha256.Sum256([]byte(all[i].Name))
		if binary.BigEndian.Uint64(sum[8:])%perPack != 0 {
			continue
		}
		if i > from {
			packs[name] = all[from:i:i]
		}
		name, from = "policies/"+hex.EncodeToString(sum[:8]), i
	}
	if len(all) > from {
		packs[name] = all[from:]
	}
	return packs
}

func (p *pack) is(resolved []catalog.Resolved) bool {
	if p == nil || len(p.resolved) != len(resolved) {
		return false
	}
	for i, r := range resolved {
		if was := p.resolved[i]; was.Name != r.Name || was.Version != r.Version || !same(was.Effective, r.Effective) {
			return false
		}
	}
	return true
}

// same compares policies. A policy that a change leaves unchanged mostly keeps its pointer.
func same(a, b *policy.Effective) bool { return a == b || *a == *b }

// packOf makes the resource of policies, and its fleet.Part.
func packOf(resolved []catalog.Resolved) (types.Resource, *pack, error) {
	m := &policypb.PolicyPack{}
	places := map[policy.Effective]uint32{}
	versions := make(map[string]int64, len(resolved))
	for _, r := range resolved {
		place, there := places[*r.Effective]
		if !there {
			settings, err := cache.MarshalResource(policypb.FromEffective(r.Effective))
			if err != nil {
				return nil, nil, fmt.Errorf("policy %q: %w", r.Name, err)
			}
			place = uint32(len(m.Settings))
			places[*r.Effective] = place
			m.Settings = append(m.Settings, settings)
		}
		m.Policies = append(m.Policies, &policypb.PolicyPack_Policy{Name: r.Name, Version: r.Version, Settings: place})
		versions[r.Name] = r.Version
	}
	text, err := cache.MarshalResource(m)
	if err != nil {
		return nil, nil, err
	}
	return m, &pack{resolved: resolved, part: &fleet.Part{ID: cache.HashResource(text), Versions: versions}}, nil
}

// packVersions reads the versions of a pack that was sent and has been replaced.
func packVersions(value []byte) map[string]int64 {
	var m policypb.PolicyPack
	if proto.Unmarshal(value, &m) != nil {
		return nil // cannot be: this server has written it
	}
	versions := make(map[string]int64, len(m.GetPolicies()))
	for _, p := range m.GetPolicies() {
		versions[p.GetName()] = p.GetVersion()
	}
	return versions
}

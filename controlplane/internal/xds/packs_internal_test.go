package xds

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"pgregory.net/rapid"

	"github.com/sluice-bus/sluice/controlplane/internal/catalog"
	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/internal/policypb"
	"github.com/sluice-bus/sluice/test/require"
)

// Packs is how many packs there are of policies.
func Packs(all []catalog.Resolved) int { return len(packsOf(all)) }

// resolvedOf makes policies, ascending by name, that say one of few things.
func resolvedOf(names ...string) (all []catalog.Resolved) {
	for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
		e := policy.Defaults()
		e.Partitions = 1 + len(name)%3
		all = append(all, catalog.Resolved{Name: name, Version: int64(len(name)), Effective: &e})
	}
	return all
}

// Every policy is in one pack, in order, and one that is put in or taken out is in few.
func TestPacks(t *testing.T) {
	var names []string
	for i := range 5000 {
		names = append(names, fmt.Sprintf("team-%02d.service-%d", i%50, i))
	}
	all := resolvedOf(names...)
	packs := packsOf(all)
	var got []string
	for _, in := range packs {
		if len(in) > 12*perPack {
			t.Errorf("%d policies in a pack", len(in))
		}
		for _, r := range in {
			got = append(got, r.Name)
		}
	}
	if len(packs) < len(all)/perPack/2 || len(packs) > 2*len(all)/perPack {
		t.Errorf("%d packs of %d policies", len(packs), len(all))
	}
	if slices.Sort(got); !slices.Equal(got, slices.Sorted(slices.Values(names))) {
		t.Error("not every policy is in one pack")
	}
	rapid.Check(t, func(t *rapid.T) {
		i := rapid.IntRange(0, len(all)-1).Draw(t, "without")
		changed := 0
		without := packsOf(slices.Delete(slices.Clone(all), i, i+1))
		for name, in := range without {
			if was := (&pack{resolved: packs[name]}); !was.is(in) {
				changed++
			}
		}
		for name := range packs {
			if without[name] == nil {
				changed++
			}
		}
		if changed < 1 || changed > 2 {
			t.Fatalf("%d packs are others without %s", changed, all[i].Name)
		}
	})
	if packs := packsOf(nil); len(packs) != 0 {
		t.Errorf("packs of nothing: %v", packs)
	}
}

// A pack has the content of its policies, and equal content once.
func TestPackSaysItsPolicies(t *testing.T) {
	all := resolvedOf("a", "bb", "ccc", "dddd", "e*")
	m, made, err := packOf(all)
	require.NoError(t, err)
	got := m.(*policypb.PolicyPack)
	if len(got.GetSettings()) != 3 {
		t.Errorf("%d settings, want 3", len(got.GetSettings()))
	}
	for i, p := range got.GetPolicies() {
		var s policypb.Settings
		require.NoError(t, proto.Unmarshal(got.GetSettings()[p.GetSettings()], &s))
		e, err := s.Effective()
		if err != nil || *e != *all[i].Effective || p.GetName() != all[i].Name || p.GetVersion() != all[i].Version ||
			made.part.Versions[p.GetName()] != p.GetVersion() {
			t.Errorf("%v says %+v, %v; want %+v", p, e, err, all[i])
		}
	}
	if _, again, _ := packOf(all); again.part.ID != made.part.ID {
		t.Error("the same policies have two versions")
	}
}

// The codec writes what gRPC's own does, without a copy of what is large.
func TestCodec(t *testing.T) {
	c := newCodec()
	for name, m := range map[string]proto.Message{
		"a request":   &discovery.DeltaDiscoveryRequest{TypeUrl: "t", ResourceNamesSubscribe: []string{"*"}},
		"no resource": &discovery.DeltaDiscoveryResponse{TypeUrl: "t", Nonce: "7", RemovedResources: []string{"a", "b"}},
		"resources": &discovery.DeltaDiscoveryResponse{TypeUrl: "t", Nonce: "7", SystemVersionInfo: "0/3",
			RemovedResources: []string{"a"}, Resources: []*discovery.Resource{
				{Name: "b", Version: "1", Resource: &anypb.Any{TypeUrl: "t", Value: []byte(strings.Repeat("x", 100_000))}},
				{Name: "c", Version: "2", Aliases: []string{"d"}, Resource: &anypb.Any{TypeUrl: "t"}},
			}},
	} {
		out, err := c.Marshal(m)
		require.NoError(t, err)
		got := m.ProtoReflect().New().Interface()
		if err := c.Unmarshal(out, got); err != nil || !proto.Equal(got, m) {
			t.Errorf("%s: got %v, %v; want %v", name, got, err, m)
		}
	}
}

package fleet_test

import (
	"fmt"
	"maps"
	"testing"

	"github.com/sluice-bus/sluice/controlplane/internal/fleet"
	"github.com/sluice-bus/sluice/test/require"
)

// A sidecar that has all policies shows those of its parts, here and at another control plane, and
// a change of any policy has to reach it.
func TestParts(t *testing.T) {
	here, there := fleet.NewRegistry(fleet.Config{ControlPlane: "cp1"}), fleet.NewRegistry(fleet.Config{ControlPlane: "cp2"})
	one := &fleet.Part{ID: "h1", Versions: map[string]int64{"a": 1, "b": 2}}
	two := &fleet.Part{ID: "h2", Versions: map[string]int64{"c": 3}}
	for _, name := range []string{"n1", "n2"} {
		s, err := here.Connect(fleet.Node{ID: name, Instance: name}, fleet.Prefix{})
		require.NoError(t, err)
		s.Holds(map[string]*fleet.Part{"1": one, "2": two}, nil)
		if name == "n2" {
			s.Holds(nil, []string{"2"})
		}
	}
	require.NoError(t, there.Merge("cp2", [][]byte{here.Export()}))
	for _, r := range []*fleet.Registry{here, there} {
		want := map[string]map[string]int64{"n1": {"a": 1, "b": 2, "c": 3}, "n2": {"a": 1, "b": 2}}
		list := r.Sidecars()
		if len(list) != len(want) {
			t.Errorf("%d sidecars", len(list))
		}
		for _, s := range list {
			if !maps.Equal(s.Versions, want[s.NodeID]) {
				t.Errorf("%s runs %v, want %v", s.NodeID, s.Versions, want[s.NodeID])
			}
		}
		got := map[string]map[string]int64{}
		for _, s := range r.Using("c") {
			got[s.NodeID] = s.Versions
		}
		if len(got) != 2 || got["n1"]["c"] != 3 || got["n2"] == nil || len(got["n2"]) != 0 {
			t.Errorf("a change of c has to reach %v", got)
		}
	}
}

// Of very many versions those are shown that not all sidecars have alike.
func TestVeryManyVersions(t *testing.T) {
	r := fleet.NewRegistry(fleet.Config{})
	all := &fleet.Part{ID: "all", Versions: map[string]int64{}}
	for i := range fleet.MaxVersions / 2 {
		all.Versions[fmt.Sprint("t", i)] = 1
	}
	before, after := &fleet.Part{ID: "before", Versions: map[string]int64{"x": 1}},
		&fleet.Part{ID: "after", Versions: map[string]int64{"x": 2}}
	for i, part := range []*fleet.Part{before, after} {
		s, err := r.Connect(fleet.Node{ID: fmt.Sprint(i)}, fleet.Prefix{})
		require.NoError(t, err)
		s.Holds(map[string]*fleet.Part{"1": all, "2": part}, nil)
	}
	for i, s := range r.Sidecars() {
		if len(s.Versions) != 1 || s.Versions["x"] != int64(i+1) {
			t.Errorf("%d versions are shown, x is %d", len(s.Versions), s.Versions["x"])
		}
	}
	if got := r.Using("t7"); len(got) != 2 || got[0].Versions["t7"] != 1 {
		t.Errorf("asked for one: %v", got)
	}
}

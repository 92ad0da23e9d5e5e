package fleet_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/controlplane/internal/fleet"
	"github.com/sluice-bus/sluice/test/require"
)

// A sidecar's connection has ended, perhaps for a moment. Its place is kept for it at this control plane, at another one, and
// after a start.
func TestAPlaceIsKept(t *testing.T) {
	const keep = 6 * time.Second
	node := func(instance, folder string) fleet.Node {
		return fleet.Node{ID: "a", Instance: instance, FolderID: folder, Address: "127.0.0.1:8083", StoreID: "s"}
	}
	for name, tc := range map[string]struct {
		instance, folder string
		after            time.Duration
		drained, kept    bool
	}{
		"the same process":         {"i1", "f1", 0, false, false},
		"the next in its folder":   {"i2", "f1", 0, false, false},
		"another folder":           {"i2", "f2", keep - time.Second, false, true},
		"no folder":                {"i2", "", 0, false, true},
		"another folder, later on": {"i2", "f2", keep, false, false},
		"after a goodbye":          {"i2", "f2", 0, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			here, c := newRegistry("cp1")
			there := fleet.NewRegistry(fleet.Config{ControlPlane: "cp2", AwaitEnd: time.Millisecond, Now: c.now})
			s, err := here.Connect(node("i1", "f1"), fleet.Prefix{})
			require.NoError(t, err)
			entries, _ := here.Due()
			if tc.drained {
				here.Drained(node("i1", "f1"))
				entries = nil
			}
			s.Close()
			require.NoError(t, there.Merge("cp2", [][]byte{here.Export()}))
			restarted := fleet.NewRegistry(fleet.Config{ControlPlane: "cp1", AwaitEnd: time.Millisecond, Now: c.now})
			restarted.Remember(entries)
			c.pass(tc.after)
			for i, at := range []*fleet.Registry{here, there, restarted} {
				_, err := at.Connect(node(tc.instance, tc.folder), fleet.Prefix{})
				if _, taken := errors.AsType[*fleet.TakenError](err); taken != tc.kept || err != nil && !taken {
					t.Errorf("%d: %v", i, err)
				}
			}
		})
	}
}

// A prefix lets in so many node ids, connected to any control plane or missing. Those that it knows come back.
func TestNodesOfAPrefixAreBounded(t *testing.T) {
	r, c := newRegistry("cp1")
	other := fleet.NewRegistry(fleet.Config{ControlPlane: "cp2", Now: c.now})
	within := fleet.Prefix{Pattern: "o-*", Nodes: 3}
	join := func(at *fleet.Registry, id string) (*fleet.Session, error) {
		return at.Connect(fleet.Node{ID: id, Instance: "i" + id, Address: "h:1"}, within)
	}
	_, err := join(other, "o-0")
	require.NoError(t, err)
	require.NoError(t, r.Merge("cp1", [][]byte{other.Export()}))
	r.Remember([]fleet.Entry{{Node: fleet.Node{ID: "o-missing", Instance: "i", Address: "h:1"}}})
	connect(t, r, "other", "i") // of no prefix
	s, err := join(r, "o-1")
	require.NoError(t, err)
	for _, id := range []string{"o-0", "o-1", "o-missing"} {
		if _, err := join(r, id); err != nil {
			t.Errorf("%s, which is known: %v", id, err)
		}
	}
	if _, err := join(r, "o-2"); err == nil || errors.As(err, new(*fleet.TakenError)) {
		t.Errorf("one more: %v", err)
	}
	r.Drained(fleet.Node{ID: "o-1", Instance: "io-1"})
	s.Close()
	for i := range 2 {
		if _, err := join(r, fmt.Sprint("o-new-", i)); (err == nil) != (i == 0) {
			t.Errorf("%d, in the place of one that has left: %v", i, err)
		}
	}
}

// A stream of another service is for the process that has the node id, here, now or a moment ago.
func TestOtherServicesNeedTheSession(t *testing.T) {
	r, c := newRegistry("cp1")
	has := func(instance string) bool { return r.Has("a", instance) }
	if has("i1") {
		t.Error("before it is connected")
	}
	s := connect(t, r, "a", "i1")
	if !has("i1") || has("i2") || r.AwaitSession(t.Context(), "a", "i1") != nil || r.AwaitSession(t.Context(), "a", "i2") == nil {
		t.Error("while it is connected")
	}
	s.Close()
	if !has("i1") || has("i2") {
		t.Error("a moment later")
	}
	if c.pass(6 * time.Second); has("i1") {
		t.Error("long after")
	}
}

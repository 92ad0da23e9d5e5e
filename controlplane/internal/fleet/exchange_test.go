package fleet_test

import (
	"slices"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/controlplane/internal/fleet"
	"github.com/sluice-bus/sluice/test/require"
)

func TestControlPlanesShareWhatTheyKnow(t *testing.T) {
	here, c := newRegistry("cp1")
	there := fleet.NewRegistry(fleet.Config{ControlPlane: "cp2", Now: c.now})
	connect(t, here, "a", "i1")
	connect(t, here, "moved", "i").Close()
	elsewhere := connect(t, there, "b", "i2")
	runs(elsewhere, map[string]int64{"orders": 7})
	elsewhere.Rejected(&fleet.Rejection{Policy: "orders", Version: 8, Reason: "no"})
	connect(t, there, "moved", "i")
	for range 10 {
		c.pass(time.Second)
		here.Usage("a", "orders", 10, 1, c.at)
		there.Usage("b", "orders", 20, 2, c.at)
		there.Share("b", "orders", 5)
		there.Share("c", "orders", 0)
	}

	docs := [][]byte{here.Export(), there.Export()}
	for range 2 { // the same documents come again and again
		require.NoError(t, here.Merge("cp1", docs))
	}
	list := here.Sidecars()
	if got := ids(list); !slices.Equal(got, []string{"a+", "b+", "moved+"}) || here.Known() != 3 || len(here.Peers()) != 3 {
		t.Fatalf("got %v, %d known, peers %v", got, here.Known(), here.Peers())
	}
	if b := list[1]; b.Versions["orders"] != 7 || b.Rejected == nil || b.Rejected.Version != 8 || b.ControlPlane != "cp2" {
		t.Errorf("got %+v", b)
	}
	got := topic(t, here, "orders")
	if got.AllowedPerSecond != 30 || got.DeniedPerSecond != 3 || got.History[59] != (fleet.Point{Allowed: 30, Denied: 3}) {
		t.Errorf("got %+v", got)
	}
	if !slices.Equal(got.Sidecars, []string{"a", "b", "c"}) || got.BySidecar[0].SharePerSecond != nil ||
		*got.BySidecar[1].SharePerSecond != 5 || *got.BySidecar[2].SharePerSecond != 0 {
		t.Errorf("got %v, %+v", got.Sidecars, got.BySidecar)
	}

	if err := here.Merge("cp1", nil); err != nil || here.Known() != 1 {
		t.Errorf("once the other one is gone: %d known, %v", here.Known(), err)
	}
}

func TestASidecarOnTwoControlPlanesIsOne(t *testing.T) {
	here, c := newRegistry("cp1")
	there := fleet.NewRegistry(fleet.Config{ControlPlane: "cp2", Now: c.now})
	connect(t, there, "a", "i")
	document := there.Export()
	c.pass(time.Second)
	connect(t, here, "a", "i")
	require.NoError(t, here.Merge("cp1", [][]byte{document}))
	if got := here.Sidecars(); len(got) != 1 || got[0].ControlPlane != "cp1" || here.Known() != 1 {
		t.Errorf("got %+v, %d known", got, here.Known())
	}
}

func TestADocumentThatCannotBeReadIsLeftOut(t *testing.T) {
	here, c := newRegistry("cp1")
	there := fleet.NewRegistry(fleet.Config{ControlPlane: "cp2", Now: c.now})
	connect(t, there, "a", "i")
	if err := here.Merge("cp1", [][]byte{[]byte("what is this"), there.Export()}); err == nil {
		t.Error("no error")
	}
	if here.Known() != 1 {
		t.Errorf("%d known, want the one that can be read", here.Known())
	}
}

func FuzzMerge(f *testing.F) {
	r, c := newRegistry("cp2")
	r.Usage("a", "orders", 1, 1, c.at)
	f.Add(r.Export())
	f.Fuzz(func(t *testing.T, packed []byte) {
		here, _ := newRegistry("cp1")
		_ = here.Merge("cp1", [][]byte{packed})
		here.Sidecars()
		here.Topics(true)
	})
}

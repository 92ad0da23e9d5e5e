package fleet_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-bus/sluice/controlplane/internal/fleet"
	"github.com/sluice-bus/sluice/test/require"
)

// clock is a time that moves when it is told to.
type clock struct{ at time.Time }

func newClock() *clock                { return &clock{time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC)} }
func (c *clock) now() time.Time       { return c.at }
func (c *clock) pass(d time.Duration) { c.at = c.at.Add(d) }

func newRegistry(name string) (*fleet.Registry, *clock) {
	c := newClock()
	return fleet.NewRegistry(fleet.Config{ControlPlane: name, AwaitEnd: time.Millisecond, Now: c.now}), c
}

func connect(t *testing.T, r *fleet.Registry, node, instance string) *fleet.Session {
	t.Helper()
	s, err := r.Connect(fleet.Node{ID: node, Instance: instance, Address: "127.0.0.1:8083", StoreID: "s1", Version: "v1"}, fleet.Prefix{})
	require.NoError(t, err)
	return s
}

// ids names the sidecars, with a + where they are connected.
func ids(list []fleet.Sidecar) (out []string) {
	for _, s := range list {
		name := s.NodeID
		if s.Connected {
			name += "+"
		}
		out = append(out, name)
	}
	return out
}

// runs says that the sidecar of a session runs these versions of policies, and no others.
func runs(s *fleet.Session, versions map[string]int64) {
	s.Holds(map[string]*fleet.Part{"policies/": {ID: fmt.Sprint(versions), Versions: versions}}, nil)
}

func TestASidecarIsShownWithWhatItRuns(t *testing.T) {
	r, c := newRegistry("cp1")
	s := connect(t, r, "a", "i1")
	runs(s, map[string]int64{"orders": 3, "*": 1})
	runs(s, map[string]int64{"orders": 4})
	s.Rejected(&fleet.Rejection{Policy: "orders", Version: 5, Reason: "no"})
	c.pass(time.Hour)

	got := r.Sidecars()[0]
	if got.NodeID != "a" || got.Address != "127.0.0.1:8083" || got.StoreID != "s1" || got.Version != "v1" || got.ControlPlane != "cp1" {
		t.Errorf("got %+v", got)
	}
	if !got.Connected || !got.LastSeen.Equal(c.at) {
		t.Errorf("a connected sidecar was last seen %v, want now", got.LastSeen)
	}
	if !maps.Equal(got.Versions, map[string]int64{"orders": 4}) {
		t.Errorf("versions %v", got.Versions)
	}
	if got.Rejected == nil || *got.Rejected != (fleet.Rejection{Policy: "orders", Version: 5, Reason: "no"}) {
		t.Errorf("rejected %+v", got.Rejected)
	}
	s.Rejected(nil)
	if got := r.Sidecars()[0]; got.Rejected != nil {
		t.Errorf("still rejected: %+v", got.Rejected)
	}
}

func TestASidecarIsShownWithWhatItsStoreDoesNotMeet(t *testing.T) {
	r, _ := newRegistry("cp1")
	other, _ := newRegistry("cp2")
	s := connect(t, r, "a", "i1")
	for _, unmet := range []map[string]string{{"orders": "w:3"}, nil, {"orders": "w:2", "paid": "w:3"}} {
		s.Unmet(unmet)
		require.NoError(t, other.Merge("cp2", [][]byte{r.Export()}))
		if got := r.Sidecars()[0].UnmetConcerns; !maps.Equal(got, unmet) {
			t.Errorf("got %v, want %v", got, unmet)
		}
		if got := other.Sidecars()[0].UnmetConcerns; !maps.Equal(got, unmet) {
			t.Errorf("elsewhere: got %v, want %v", got, unmet)
		}
	}
	s.Close()
	if got := r.Sidecars()[0]; got.UnmetConcerns != nil {
		t.Errorf("one that left still refuses: %v", got.UnmetConcerns)
	}
}

func TestSidecarsThatUseAPolicy(t *testing.T) {
	r, _ := newRegistry("cp1")
	runs(connect(t, r, "a", "i1"), map[string]int64{"orders": 4, "*": 1})
	runs(connect(t, r, "b", "i2"), map[string]int64{"*": 1})
	connect(t, r, "c", "i3") // has no policies yet
	left := connect(t, r, "d", "i4")
	runs(left, map[string]int64{"orders": 3})
	left.Close()

	got := r.Using("orders")
	if !slices.Equal(ids(got), []string{"a+", "b+", "d"}) {
		t.Fatalf("got %v", ids(got))
	}
	for i, want := range []map[string]int64{{"orders": 4}, {}, {"orders": 3}} {
		if !maps.Equal(got[i].Versions, want) {
			t.Errorf("%s has %v, want %v", got[i].NodeID, got[i].Versions, want)
		}
	}
}

func TestWhatASidecarThatLeftRanIsRememberedForAnHour(t *testing.T) {
	r, c := newRegistry("cp1")
	s := connect(t, r, "a", "i1")
	runs(s, map[string]int64{"*": 1})
	connect(t, r, "b", "i2")
	left := c.at
	s.Close()
	c.pass(fleet.KeepDisconnected)
	if got := ids(r.Sidecars()); !slices.Equal(got, []string{"a", "b+"}) || r.Known() != 1 {
		t.Errorf("got %v and %d known", got, r.Known())
	}
	if got := r.Sidecars()[0].LastSeen; !got.Equal(left) {
		t.Errorf("last seen %v, want %v", got, left)
	}
	c.pass(time.Millisecond)
	got := r.Sidecars()
	if !slices.Equal(ids(got), []string{"a", "b+"}) || len(got[0].Versions) > 0 || !got[0].LastSeen.Equal(left) || !got[0].Missing {
		t.Errorf("after more than an hour: %+v", got)
	}
}

func TestThoseThatLeftFirstAreForgottenFirst(t *testing.T) {
	r, c := newRegistry("cp1")
	for i := range fleet.MaxDisconnected + 5 {
		connect(t, r, fmt.Sprintf("n%05d", i), "i").Close()
		c.pass(time.Millisecond)
	}
	got := r.Sidecars()
	if len(got) != fleet.MaxDisconnected+5 || got[4].ControlPlane != "" || got[5].ControlPlane == "" {
		t.Errorf("%d are remembered: %+v", len(got), got[4:6])
	}
}

func TestTooManySidecars(t *testing.T) {
	r, _ := newRegistry("cp1")
	for i := range fleet.MaxConnected {
		connect(t, r, fmt.Sprint(i), "i")
	}
	if _, err := r.Connect(fleet.Node{ID: "one more"}, fleet.Prefix{}); err == nil {
		t.Error("one more was taken")
	}
	connect(t, r, "0", "i") // again: its old connection is not known to be dead
}

func TestARestartedSidecarReplacesItself(t *testing.T) {
	r, _ := newRegistry("cp1")
	connect(t, r, "a", "i1").Close()
	second := connect(t, r, "a", "i2")
	if got := ids(r.Sidecars()); !slices.Equal(got, []string{"a+"}) {
		t.Errorf("got %v", got)
	}
	second.Close()
	if got := ids(r.Sidecars()); !slices.Equal(got, []string{"a"}) {
		t.Errorf("got %v", got)
	}
}

func TestASecondProcessWithANodeIDIsRefused(t *testing.T) {
	r, c := newRegistry("cp1")
	other, _ := newRegistry("cp2")
	first := connect(t, r, "a", "i1")
	told := func() {
		t.Helper()
		require.NoError(t, errors.Join(other.Merge("cp2", [][]byte{r.Export()}), r.Merge("cp1", [][]byte{other.Export()})))
	}
	told()
	for i, at := range []*fleet.Registry{r, r, other} {
		_, err := at.Connect(fleet.Node{ID: "a", Instance: "i2", Address: "10.0.0.9:8083"}, fleet.Prefix{})
		taken, ok := errors.AsType[*fleet.TakenError](err)
		if !ok || taken.NodeID != "a" || taken.Address != "127.0.0.1:8083" || taken.ControlPlane != "cp1" || taken.Again != (i == 1) {
			t.Errorf("%d: %+v, %v", i, taken, err)
		}
		if err := at.Await(t.Context(), fleet.Node{ID: "a", Instance: "i2"}); !errors.As(err, &taken) {
			t.Errorf("%d: %v", i, err)
		}
		if err := at.Await(t.Context(), fleet.Node{ID: "a", Instance: "i1"}); err != nil {
			t.Errorf("%d: the one that is connected: %v", i, err)
		}
	}
	told()
	want := fleet.Refusals{Count: 3, Last: c.at, Address: "10.0.0.9:8083"}
	for _, at := range []*fleet.Registry{r, other} {
		if got := at.Sidecars(); len(got) != 1 || got[0].RefusedSessions == nil || *got[0].RefusedSessions != want || at.Known() != 1 {
			t.Errorf("got %+v, and %d known", got, at.Known())
		}
	}
	if r.Refused() != 2 || other.Refused() != 1 {
		t.Errorf("%d and %d were refused", r.Refused(), other.Refused())
	}
	runs(first, map[string]int64{"x": 1})
	if got := r.Sidecars()[0]; got.Versions["x"] != 1 || got.Address != "127.0.0.1:8083" {
		t.Errorf("the one that was refused has changed %+v", got)
	}
	c.pass(fleet.KeepRefusals + time.Millisecond)
	if got := r.Sidecars()[0].RefusedSessions; got != nil {
		t.Errorf("long after the last one: %+v", got)
	}
	first.Close()
	told()
	connect(t, other, "a", "i2")
}

// The end of a sidecar's last life may be known a moment after its next one is there; that is no
// second sidecar.
func TestARestartWaitsForTheEndOfTheLastLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := fleet.NewRegistry(fleet.Config{ControlPlane: "cp1"})
		last := connect(t, r, "a", "i1")
		time.AfterFunc(fleet.AwaitEnd-100*time.Millisecond, last.Close)
		require.NoError(t, r.Await(t.Context(), fleet.Node{ID: "a", Instance: "i2"}))
		connect(t, r, "a", "i2")
		if r.Refused() != 0 {
			t.Error("it was refused")
		}
	})
}

func TestAnOldSessionChangesNothing(t *testing.T) {
	r, _ := newRegistry("cp1")
	old := connect(t, r, "a", "i1")
	runs(connect(t, r, "a", "i1"), map[string]int64{"x": 2})
	runs(old, map[string]int64{"x": 1})
	old.Rejected(&fleet.Rejection{})
	old.Close()
	old.Close()
	got := r.Sidecars()
	if len(got) != 1 || !got[0].Connected || got[0].Versions["x"] != 2 || got[0].Rejected != nil {
		t.Errorf("got %+v", got)
	}
}

func TestPeersHaveAnAddress(t *testing.T) {
	r, _ := newRegistry("cp1")
	connect(t, r, "b", "i1")
	connect(t, r, "c", "i1").Close()
	connect(t, r, "d", "i1").Close()
	connect(t, r, "e", "i1") // its session is still there when it says goodbye
	for _, id := range []string{"d", "e"} {
		r.Drained(fleet.Node{ID: id, Instance: "i1"})
	}
	r.Drained(fleet.Node{ID: "c", Instance: "another"})
	if _, err := r.Connect(fleet.Node{ID: "a", Instance: "i"}, fleet.Prefix{}); err != nil {
		t.Fatal(err)
	}
	want := []fleet.Node{
		{ID: "b", Instance: "i1", Address: "127.0.0.1:8083", StoreID: "s1", Version: "v1"},
		{ID: "c", Instance: "i1", Address: "127.0.0.1:8083", StoreID: "s1", Version: "v1", Gone: true},
	}
	if got := r.Peers(); !slices.Equal(got, want) {
		t.Errorf("got %+v", got)
	}
}

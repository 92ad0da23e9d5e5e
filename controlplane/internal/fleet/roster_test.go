package fleet_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/controlplane/internal/fleet"
	"github.com/sluice-bus/sluice/test/require"
)

// store is what a control plane's loop does: it stores what is due, and reads what is there.
func store(r *fleet.Registry, there map[string]fleet.Entry) {
	due, _ := r.Due()
	for _, e := range due {
		there[e.Key()] = e
		r.Stored(e)
	}
	var list []fleet.Entry
	for _, e := range there {
		list = append(list, e)
	}
	r.Remember(list)
	for _, e := range r.Superseded() {
		delete(there, e.Key())
		r.Forget(e)
	}
}

func missing(r *fleet.Registry) (names []string) {
	for _, e := range r.Missing() {
		names = append(names, e.ID+" on "+e.StoreID)
	}
	return names
}

func TestWhoIsGoneIsMissing(t *testing.T) {
	there := map[string]fleet.Entry{}
	here, _ := newRegistry("cp1")
	check := func(r *fleet.Registry, what string, want ...string) {
		t.Helper()
		if got := missing(r); !slices.Equal(got, want) {
			t.Errorf("%s: missing are %q, want %q", what, got, want)
		}
	}
	node := func(id, instance, on string) fleet.Node {
		return fleet.Node{ID: id, Instance: instance, StoreID: on, Address: "127.0.0.1:8083"}
	}
	enter := func(r *fleet.Registry, n fleet.Node) *fleet.Session {
		t.Helper()
		s, err := r.Connect(n, fleet.Prefix{})
		require.NoError(t, err)
		return s
	}
	a, b := enter(here, node("a", "1", "s")), enter(here, node("b", "1", "own"))
	enter(here, node("c", "1", "s"))
	enter(here, fleet.Node{ID: "no replay API", Instance: "1"}).Close()
	check(here, "all are there")
	a.Close()
	check(here, "before it is stored", "a on s")
	store(here, there)
	check(here, "stored", "a on s")
	if due, _ := here.Due(); len(due) != 0 {
		t.Errorf("due is %v", due)
	}

	restarted, _ := newRegistry("cp1")
	store(restarted, there)
	check(restarted, "after a restart", "a on s", "b on own", "c on s")
	enter(restarted, node("c", "1", "s"))
	if due, _ := restarted.Due(); len(due) != 0 {
		t.Errorf("due is %v, and the store has it", due)
	}
	enter(restarted, node("b", "2", "another"))
	check(restarted, "back, and with another store", "a on s", "b on own")
	peers := restarted.Peers()
	var gone []bool
	for _, p := range peers {
		gone = append(gone, p.Gone)
	}
	if !slices.Equal(gone, []bool{true, false, true, false}) || peers[1].StoreID != "another" {
		t.Errorf("peers %+v", peers)
	}
	list := restarted.Sidecars()
	if got := ids(list); !slices.Equal(got, []string{"a", "b+", "b", "c+"}) || !list[0].Missing || list[1].Missing ||
		!list[2].Missing || list[3].Missing {
		t.Errorf("sidecars %+v", list)
	}
	restarted.Forget(restarted.Missing()[1])
	check(restarted, "one is forgotten", "a on s")
	unknown := enter(restarted, node("a", "2", ""))
	check(restarted, "its store is not known yet", "a on s")
	if list := restarted.Sidecars(); !slices.Equal(ids(list), []string{"a+", "b+", "c+"}) || list[0].Missing {
		t.Errorf("a is back and has not reached its store yet: %+v", list)
	}
	store(restarted, there)
	unknown.Close()
	store(restarted, there)
	check(restarted, "gone before it is known", "a on ", "a on s", "b on own")
	enter(restarted, node("a", "3", "s"))
	store(restarted, there)
	check(restarted, "it is known", "b on own")
	restarted.Drained(node("a", "3", "s"))
	delete(there, fleet.Entry{Node: node("a", "3", "s")}.Key())
	store(restarted, there)
	check(restarted, "drained", "b on own")

	clear(there) // as where another control plane did not know that they are connected
	store(restarted, there)
	store(restarted, there)
	if len(there) != 2 {
		t.Errorf("of those that are connected %v are stored", there)
	}

	late := enter(here, node("late", "1", "s"))
	late.Close() // while the store is away, and it comes back at another control plane
	back := fleet.Entry{Node: node("late", "2", "s")}
	there[back.Key()] = back
	here.Remember([]fleet.Entry{back})
	if due, _ := here.Due(); slices.ContainsFunc(due, func(e fleet.Entry) bool { return e.ID == "late" }) {
		t.Errorf("an earlier life is due: %v", due)
	}
	delete(there, back.Key())

	b.Close()
	delete(there, fleet.Entry{Node: node("b", "1", "own")}.Key()) // forgotten through another control plane
	store(restarted, there)
	check(restarted, "forgotten elsewhere")
}

// A sidecar may reach its store after its control plane: it is missing at no moment, and its entry is that of the store.
func TestAStoreThatBecomesKnown(t *testing.T) {
	for _, storedBefore := range []bool{false, true} {
		r, _ := newRegistry("cp1")
		there := map[string]fleet.Entry{}
		n := fleet.Node{ID: "a", Instance: "1", Address: "127.0.0.1:8083"}
		s, err := r.Connect(n, fleet.Prefix{})
		require.NoError(t, err)
		if storedBefore {
			store(r, there)
		}
		for range 2 {
			s.Located("s")
			if list := r.Sidecars(); len(list) != 1 || !list[0].Connected || list[0].Missing || list[0].StoreID != "s" || len(r.Missing()) > 0 {
				t.Errorf("stored before: %v: %+v, missing %q", storedBefore, list, missing(r))
			}
			store(r, there)
		}
		n.StoreID = "s"
		if _, known := there[fleet.Entry{Node: n}.Key()]; !known || len(there) != 1 {
			t.Errorf("the store has %v", there)
		}
		s.Located("another")
		if got := r.Sidecars()[0].StoreID; got != "s" {
			t.Errorf("the store that was known is now %q", got)
		}
	}
}

// A sidecar that is back on an empty disk has not brought what the lost one had: its folder is missing until it is
// there again, drained or forgotten.
func TestALostFolderIsMissing(t *testing.T) {
	r, c := newRegistry("cp1")
	there := map[string]fleet.Entry{}
	for life, folder := range []string{"lost", "fresh", "lost"} {
		n := fleet.Node{ID: "a", Instance: fmt.Sprint(life), StoreID: "s", FolderID: folder, Address: "127.0.0.1:8083"}
		s, err := r.Connect(n, fleet.Prefix{})
		require.NoError(t, err)
		store(r, there)
		var want []string
		for _, e := range there {
			if e.FolderID != folder {
				want = append(want, "a on s")
			}
		}
		if got := missing(r); !slices.Equal(got, want) || len(want) != min(life, 1) {
			t.Errorf("life %d, on %s: missing are %q, want %q", life, folder, got, want)
		}
		if peers := r.Peers(); len(peers) != min(life, 1)+1 {
			t.Errorf("life %d: peers %+v", life, peers)
		}
		s.Close()
		c.pass(time.Minute)
		store(r, there)
	}
	r.Drained(fleet.Node{ID: "a", Instance: "3", StoreID: "s", FolderID: "fresh"})
	if got := r.Missing(); len(got) != 1 || got[0].FolderID != "lost" {
		t.Errorf("one is drained: %+v", got)
	}
	r.Forget(r.Missing()[0])
	if got := missing(r); got != nil {
		t.Errorf("forgotten: %q", got)
	}
}

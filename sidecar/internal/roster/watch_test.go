package roster

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/eventlogtest"
	"github.com/sluice-bus/sluice/test/require"
)

func TestFakeNodes(t *testing.T) {
	nodes := eventlogtest.NewNodes()
	eventlogtest.RunNodes(t, nodes, nodes)
}

// cost is what a fleet asks of the store.
type cost struct{ writes, reads, documents int64 }

func (f *fakeNodes) cost() cost {
	return cost{f.saves.Load() + f.entries.Load() + f.ends.Load(), f.looks.Load() + f.lists.Load(), f.read.Load()}
}

func (f *fakeNodes) since(c cost) cost {
	now := f.cost()
	return cost{now.writes - c.writes, now.reads - c.reads, now.documents - c.documents}
}

// A fleet costs in proportion to its size, and so does a restart. When each sidecar read all
// documents at each look, 200 cost 181 commands and 18,200 documents a second, and the second of a
// restart 79,600 documents and 396 writes.
func TestCostOfAFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeNodes()
		var all []*sidecar
		for i := range 200 {
			all = append(all, store.start(fmt.Sprint("s", i)))
		}
		store.tell(all...)
		pass(2 * lease)
		before := store.cost()
		pass(3 * lease)
		idle, span := store.since(before), int64(3*lease/time.Second)
		t.Logf("idle: %d commands and %d documents a second", (idle.writes+idle.reads)/span, idle.documents/span)
		if (idle.writes+idle.reads)/span > 170 || idle.documents/span > 700 {
			t.Error("more than 170 commands or 700 documents")
		}
		before = store.cost()
		all[17].stop()
		all[17] = store.start("s17")
		store.tell(all...)
		const seen = lease / 10
		pass(seen)
		for _, s := range all {
			if name, ok := s.View().Alive(all[17].Standing().ID); !ok || name != "s17" || len(s.View().all) != len(all) {
				t.Fatalf("%s sees %q, and %d in all", s.cfg.Name, name, len(s.View().all))
			}
		}
		c := store.since(before)
		t.Logf("restart: %d documents, %d of them as when idle; %d writes, %d of them so", c.documents,
			idle.documents*int64(seen/time.Second)/span, c.writes, idle.writes*int64(seen/time.Second)/span)
		if c.documents > 2000 || c.writes-idle.writes*int64(seen/time.Second)/span > 20 {
			t.Errorf("a restart costs %+v", c)
		}
		for _, s := range all {
			s.stop()
		}
	})
}

// Of those that die together with all that watch them, more are found each lease.
func TestManyDieTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeNodes()
		var all []*sidecar
		for i := range 12 {
			all = append(all, store.start(fmt.Sprint("s", i)))
		}
		pass(lease)
		for _, s := range all[1:] {
			s.kill()
		}
		for dead := 0; dead < 11; {
			pass(lease + 2*lease/beatsPerLease)
			now := 12 - len(store.live())
			if now < min(dead+watched, 11) {
				t.Fatalf("%d are declared dead, and then %d", dead, now)
			}
			dead = now
		}
		if all[0].sees() != "s0" || !all[0].Valid(time.Now()) {
			t.Errorf("it sees %q", all[0].sees())
		}
		all[0].stop()
	})
}

// Lives that begin or end meanwhile do not prolong the lease of a silent one.
func TestChangesProlongNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeNodes()
		a, b, c := store.start("a"), store.start("b"), store.start("c")
		store.tell(a, c)
		pass(lease)
		b.kill()
		for i := range 11 {
			a.Join(groupName(i))
			c.Join(groupName(i))
			pass(time.Second)
		}
		if store.names() != "a c" || a.sees() != "a c" || c.sees() != "a c" {
			t.Errorf("a sees %q, c sees %q, there are %q", a.sees(), c.sees(), store.names())
		}
		a.stop()
		c.stop()
	})
}

// A change whose writer died before it was in the roll gets there by the watchers.
func TestNeighboursEnterWhatTheRollLacks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeNodes()
		all := []*sidecar{store.start("s0"), store.start("s1"), store.start("s2"), store.start("s3"), store.start("s4"),
			store.start("s5"), store.start("s6"), store.start("s7")}
		pass(lease)
		a := all[0]
		blind := slices.DeleteFunc(slices.Clone(all), func(s *sidecar) bool { return s.next[a.Standing().ID] != nil })
		if len(blind) != 3 { // itself and two more
			t.Fatalf("%d do not watch it", len(blind))
		}
		a.path.set(func() { a.path.lostEntries = true })
		a.Join(groupName(1))
		pass(lease / gapsPerLease)
		a.kill()
		pass(3 * lease / beatsPerLease)
		for _, s := range all[1:] {
			if !slices.Equal(s.View().Others(groupName(1)), []string{"s0"}) {
				t.Errorf("%s does not know of the group", s.cfg.Name)
			}
		}
		id := a.Standing().ID
		if dead, _ := store.DeclareDead(t.Context(), id, store.Node(id).Beat); !dead { // somebody did, who died then
			t.Fatal("it is not declared dead")
		}
		pass(3 * lease / beatsPerLease)
		for _, s := range all[1:] {
			if s.sees() != "s1 s2 s3 s4 s5 s6 s7" {
				t.Errorf("%s sees %q", s.cfg.Name, s.sees())
			}
			s.stop()
		}
	})
}

// A life that is not in the roll is not valid. A sidecar that finds it in a list watches it, and
// one that is asked for it enters it.
func TestALifeThatIsNotInTheRoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeNodes()
		a := store.start("a")
		for i := range 8 {
			s := store.start(fmt.Sprint("s", i))
			defer s.stop()
		}
		b := store.startOn(&fakePath{fakeNodes: store, lostEntries: true}, "b", nil)
		pass(lease)
		if b.Valid(time.Now()) || len(store.live()) != 10 {
			t.Fatalf("valid %v; there are %d", b.Valid(time.Now()), len(store.live()))
		}
		old := b.Standing().ID
		if _, alive := a.View().Alive(old); alive {
			t.Error("who nobody has told knows of it")
		}
		b.path.set(func() { b.path.lostEntries = false })
		pass(lease / beatsPerLease)
		if _, alive := a.View().Alive(old); !alive || !b.Valid(time.Now()) {
			t.Errorf("it is seen %v and valid %v once it can enter itself", alive, b.Valid(time.Now()))
		}
		b.kill()
		// A life that died before: a sidecar that starts after that finds it.
		c := store.startOn(&fakePath{fakeNodes: store, lostEntries: true}, "c", nil)
		c.kill()
		d := store.start("d")
		if _, alive := d.View().Alive(c.Standing().ID); !alive {
			t.Fatal("it is not in the list")
		}
		pass(2 * lease)
		if store.Node(c.Standing().ID).State != eventlog.NodeDead {
			t.Error("it is not declared dead")
		}
		// One that is asked for.
		require.NoError(t, store.SaveNode(t.Context(), eventlog.Node{ID: "e/1/1", Name: "e", Beat: 1, Lease: lease, Version: 1}))
		a.Ask("e/1/1")
		pass(2 * lease / beatsPerLease)
		for _, s := range []*sidecar{a, d} {
			if name, _ := s.View().Alive("e/1/1"); name != "e" {
				t.Errorf("%s does not know of it", s.cfg.Name)
			}
		}
		pass(2 * lease)
		if store.Node("e/1/1").State != eventlog.NodeDead {
			t.Error("it is not declared dead")
		}
		a.stop()
		d.stop()
	})
}

// A late entry does not bring a life back, and the roll of a restored store is read again.
func TestOddRolls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeNodes()
		a, b := store.start("a"), store.start("b")
		pass(lease)
		old := b.Standing().ID
		b.stop()
		pass(lease / 2)
		version, lists := a.View().Version, store.lists.Load()
		for more, c := range []eventlog.NodeChange{{ID: old, Version: 9}, {ID: "never/1/1", Version: 1}} {
			require.NoError(t, store.Enter(t.Context(), c))
			pass(lease / 2)
			if a.sees() != "a" || a.View().Version != version || !a.View().Ended(old) || store.lists.Load() != lists+int64(more) {
				t.Errorf("it sees %q in version %d after %d, in %d lists", a.sees(), a.View().Version, version, store.lists.Load()-lists)
			}
		}
		for i := range 2 * eventlog.RollKept {
			_ = store.Enter(t.Context(), eventlog.NodeChange{ID: fmt.Sprint("x/1/", i), State: eventlog.NodeEnded})
		}
		c := store.start("c")
		pass(lease / beatsPerLease)
		if a.sees() != "a c" {
			t.Errorf("behind many changes it sees %q", a.sees())
		}
		store.Restore()
		pass(lease / beatsPerLease)
		d := store.start("d")
		pass(lease / beatsPerLease)
		if a.sees() != "a c d" {
			t.Errorf("on a restored store it sees %q", a.sees())
		}
		for _, s := range []*sidecar{a, c, d} {
			s.stop()
		}
	})
}

package roster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/test/require"
)

func TestComingAndGoing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeNodes()
		a := store.start("a")
		if !a.Valid(time.Now()) || a.sees() != "a" {
			t.Fatalf("after the start: valid %v, sees %q", a.Valid(time.Now()), a.sees())
		}
		b := store.start("b")
		c := store.start("c")
		pass(lease / beatsPerLease)
		for _, s := range []*sidecar{a, b, c} {
			if s.sees() != "a b c" {
				t.Errorf("%s sees %q", s.cfg.Name, s.sees())
			}
		}
		b.stop()
		if store.names() != "a c" {
			t.Errorf("after a stop the store has %q", store.names())
		}
		if b.Valid(time.Now()) {
			t.Error("valid after the stop")
		}
		killed := time.Now()
		c.kill()
		version := a.View().Version
		pass(lease - lease/beatsPerLease - time.Millisecond - time.Since(killed))
		if a.sees() != "a c" {
			t.Errorf("before the lease is over it sees %q", a.sees())
		}
		pass(2 * lease / beatsPerLease)
		if a.sees() != "a" || a.View().Version == version {
			t.Errorf("after the lease it sees %q", a.sees())
		}
		if store.names() != "a" {
			t.Errorf("the store has %q", store.names())
		}
		a.stop()
	})
}

// A restarted sidecar has its name, and is not taken for its former run.
func TestRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeNodes()
		a, b := store.start("a"), store.start("b")
		pass(lease)
		old := b.Standing().ID
		b.kill()
		b = store.start("b")
		pass(lease / 2)
		if a.View().Gone(old, time.Now().Add(-time.Second)) || b.View().Gone(old, time.Now().Add(-time.Second)) {
			t.Error("gone before its lease is over")
		}
		pass(lease)
		if !a.View().Gone(old, time.Now()) || !b.View().Gone(old, time.Now()) || a.sees() != "a b" {
			t.Error("not gone after its lease")
		}
		if name, ok := a.View().Alive(b.Standing().ID); !ok || name != "b" {
			t.Errorf("alive: %q, %v", name, ok)
		}
		a.stop()
		b.stop()
	})
}

// An unknown life counts as gone only if the store was asked for it after it was announced, and did
// not have it.
func TestUnknownRunsAreNotGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeNodes()
		a := store.start("a")
		pass(time.Second)
		a.Ask("b/1")
		pass(lease / gapsPerLease)
		heard := time.Now()
		if a.View().Gone("b/1", heard) {
			t.Error("gone by a look that is older")
		}
		a.path.set(func() { a.path.err = errStore })
		a.Ask("b/1")
		pass(lease / 2)
		if a.View().Gone("b/1", heard) {
			t.Error("gone without a look")
		}
		a.path.set(func() { a.path.err = nil })
		pass(lease / 2)
		if !a.View().Gone("b/1", heard) {
			t.Error("not gone by a look that is newer")
		}
		a.stop()
	})
}

func TestGroupsAreAnnouncedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeNodes()
		a := store.start("a")
		pass(time.Second)
		for i := range 100 { // coalesced
			a.Join(groupName(i))
		}
		before := store.saves.Load()
		pass(lease / 100)
		if n, saves := store.groupsOf("a"), store.saves.Load(); n != 100 || saves > before+2 {
			t.Fatalf("%d groups after %d saves", n, saves-before)
		}
		b := store.start("b")
		if got := b.View().Others(groupName(3)); len(got) != 1 || got[0] != "a" {
			t.Errorf("others %v", got)
		}
		a.path.set(func() { a.path.err = errStore })
		a.Leave(groupName(3))
		a.Leave(groupName(3))
		pass(time.Second)
		a.path.set(func() { a.path.err = nil })
		pass(lease / beatsPerLease)
		pass(lease / beatsPerLease)
		if got := b.View().Others(groupName(3)); len(got) != 0 {
			t.Errorf("others %v", got)
		}
		for i := range MaxGroups + 10 {
			a.Join(groupName(i))
		}
		pass(lease / 100)
		if n := store.groupsOf("a"); n != MaxGroups {
			t.Errorf("%d groups", n)
		}
		a.stop()
		b.stop()
	})
}

// While nothing changes, views do not either, and the store is asked rarely: a save and a look each
// time.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeNodes()
		a, b := store.start("a"), store.start("b")
		a.Join(groupName(1))
		pass(lease)
		view := b.View()
		saves, looks, lists, entries := store.saves.Load(), store.looks.Load(), store.lists.Load(), store.entries.Load()
		pass(10 * lease)
		if b.View() != view {
			t.Error("the view has changed")
		}
		if n := store.saves.Load() - saves; n < 80 || n > 120 || store.looks.Load()-looks != n {
			t.Errorf("%d saves and %d looks of 2 sidecars in 10 leases", n, store.looks.Load()-looks)
		}
		if store.lists.Load() != lists || store.entries.Load() != entries {
			t.Errorf("%d lists and %d entries while nothing happens", store.lists.Load()-lists, store.entries.Load()-entries)
		}
		a.stop()
		b.stop()
	})
}

// A sidecar that cannot beat stops before others take it for dead, and goes on as another run.
func TestOutageOfOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeNodes()
		a, b := store.start("a"), store.start("b")
		pass(lease)
		old := a.Standing().ID
		a.path.set(func() { a.path.err = errStore })
		lapsed := time.Time{}
		for range 20 {
			pass(time.Second)
			if !a.Valid(time.Now()) && lapsed.IsZero() {
				lapsed = time.Now()
			}
			if b.View().Gone(old, time.Now()) {
				break
			}
			if b.sees() != "a b" {
				t.Fatalf("b sees %q", b.sees())
			}
		}
		if lapsed.IsZero() || time.Since(lapsed) < lease/marginShare/2 {
			t.Errorf("lapsed %v before others took over", time.Since(lapsed))
		}
		a.path.set(func() { a.path.err = nil })
		pass(time.Second)
		if id := a.Standing().ID; id == old || !a.Valid(time.Now()) || !a.Ours(id) || !a.Ours(old) || b.Ours(old) {
			t.Errorf("id %s after %s", id, old)
		}
		pass(lease / 2)
		if a.sees() != "a b" || b.sees() != "a b" || store.names() != "a b" {
			t.Errorf("a sees %q, b sees %q, the store has %q", a.sees(), b.sees(), store.names())
		}
		a.stop()
		b.stop()
	})
}

// An outage shorter than the lease changes nothing but the validity meanwhile.
func TestShortOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeNodes()
		a := store.start("a")
		pass(lease)
		old := a.Standing().ID
		a.path.set(func() { a.path.err = errStore })
		time.Sleep(time.Until(a.ValidUntil()) + time.Millisecond)
		if a.Valid(time.Now()) {
			t.Fatal("still valid")
		}
		a.path.set(func() { a.path.err = nil })
		pass(lease / retriesPerLease)
		if !a.Valid(time.Now()) || a.Standing().ID != old {
			t.Errorf("valid %v, id %s after %s", a.Valid(time.Now()), a.Standing().ID, old)
		}
		a.stop()
	})
}

// After an outage that everybody had, nobody is taken for dead.
func TestOutageOfAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeNodes()
		all := []*sidecar{store.start("a"), store.start("b"), store.start("c")}
		for _, s := range all {
			s.Join(groupName(1))
		}
		pass(lease)
		lives := map[*sidecar]string{}
		for _, s := range all {
			lives[s] = s.Standing().ID
			s.path.set(func() { s.path.err = errStore })
		}
		pass(3 * lease)
		for _, s := range all {
			s.path.set(func() { s.path.err = nil })
			pass(time.Second)
			for _, s := range all {
				if got := strings.Join(append(s.View().Others(groupName(1)), s.View().Name), " "); len(got) != len("a b c") {
					t.Errorf("%s sees %q", s.cfg.Name, got)
				}
			}
		}
		pass(2 * lease)
		for _, s := range all {
			if s.sees() != "a b c" || !s.Valid(time.Now()) || s.Standing().ID != lives[s] {
				t.Errorf("%s sees %q, and was %s", s.Standing().ID, s.sees(), lives[s])
			}
			s.stop()
		}
	})
}

// A sidecar warns that it cannot keep up once it has not for half a lease, and once for each outage.
func TestWarnsOfAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeNodes()
		a := store.start("a")
		for _, c := range []struct {
			outage time.Duration
			want   int
		}{{lease / 4, 0}, {2 * lease, 1}, {lease / 4, 1}, {lease, 2}} {
			a.path.set(func() { a.path.err = errStore })
			a.Join(groupName(int(c.outage))) // it looks at once
			pass(c.outage)
			a.path.set(func() { a.path.err = nil })
			pass(lease)
			if n := strings.Count(a.logged.String(), "cannot keep up"); n != c.want {
				t.Errorf("%d warnings after an outage of %v, want %d", n, c.outage, c.want)
			}
		}
		a.stop()
	})
}

// kept is PendingEnds in memory.
type kept struct{ ids []string }

func (k *kept) Load() []string { return k.ids }

func (k *kept) Save(ids []string) error {
	k.ids = slices.Clone(ids)
	return nil
}

// A sidecar that stops in order while the store is away has the next process tell the store, so
// that it did not die.
func TestAnEndThatTheStoreDoesNotHearOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, disk := newFakeNodes(), &kept{}
		a := store.startKeeping("a", disk)
		old := a.Standing().ID
		a.kill() // which is a stop while the store is away
		if len(disk.ids) != 1 || disk.ids[0] != old || store.Node(old).State != eventlog.NodeLive {
			t.Fatalf("kept %q of %s, which is %v", disk.ids, old, store.Node(old).State)
		}
		a = store.startKeeping("a", disk)
		if len(disk.ids) != 0 || store.Node(old).State != eventlog.NodeEnded || !a.Valid(time.Now()) {
			t.Errorf("kept %q, and %s is %v", disk.ids, old, store.Node(old).State)
		}
		a.stop()
	})
}

// A beat that arrives although it was given up for lost, or is answered late, does not make a run
// valid that others may have taken for dead.
func TestPausedRunIsOver(t *testing.T) {
	for _, when := range []string{"before", "after"} {
		synctest.Test(t, func(t *testing.T) {
			store := newFakeNodes()
			a, b := store.start("a"), store.start("b")
			pass(lease)
			old := a.Standing().ID
			gate := make(chan struct{})
			a.path.set(func() {
				if when == "before" {
					a.path.before = gate
				} else {
					a.path.after = gate
				}
			})
			pass(3 * lease)
			if !b.View().Gone(old, time.Now()) {
				t.Error("not taken for dead")
			}
			a.path.set(func() { a.path.before, a.path.after = nil, nil })
			close(gate)
			synctest.Wait()
			if a.Standing().ID == old && a.Valid(time.Now()) {
				t.Errorf("%s: a life that was declared dead is valid", when)
			}
			pass(lease / retriesPerLease)
			if a.Standing().ID == old {
				t.Errorf("%s: the life goes on", when)
			}
			pass(lease)
			if b.sees() != "a b" || store.names() != "a b" {
				t.Errorf("%s: sees %q, store %q", when, b.sees(), store.names())
			}
			a.stop()
			b.stop()
		})
	}
}

func TestAlone(t *testing.T) {
	r := Alone("node")
	r.Watch(func() { t.Error("called") })
	r.Join(groupName(1))
	r.Leave(groupName(1))
	v := r.View()
	if !r.Valid(time.Now().Add(1000*time.Hour)) || !r.Mine("topic") || r.Standing().ID != "node" || !r.Ours("node") || r.Ours("node/1") {
		t.Error("it is not alone")
	}
	if !v.Known() || !v.Gone("somebody", time.Now()) || len(v.Others(groupName(1))) != 0 || v.Name != "node" {
		t.Error("it sees somebody")
	}
	if !r.ValidUntil().After(time.Now()) {
		t.Error("it ends")
	}
}

func TestWatchAndAnnounced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeNodes()
		a := store.start("a")
		before := a.looks.Load()
		pass(lease)
		if n := a.looks.Load() - before; n < 3 || n > 6 || a.news.Load() != 1 {
			t.Errorf("%d looks, %d news in a lease", n, a.news.Load())
		}
		news := int32(1)
		tells := func(do func(), about ...eventlog.GroupName) {
			t.Helper()
			do()
			pass(lease / 100)
			a.Wake()
			pass(lease / 100)
			if news++; a.news.Load() != news || !slices.Equal(*a.about.Load(), about) {
				t.Errorf("%d news, the last about %v; want %d, about %v", a.news.Load(), *a.about.Load(), news, about)
			}
		}
		tells(func() { a.Join(groupName(1)) }, groupName(1))
		tells(func() { a.Join(groupName(2)) }, groupName(2))
		tells(func() { a.Leave(groupName(1)) }, groupName(1))
		tells(a.stop, groupName(2))
	})
}

func TestMineIsOnOneSidecar(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeNodes()
		all := []*sidecar{store.start("a"), store.start("b"), store.start("c")}
		pass(lease)
		had := make(map[string]int)
		for i := range 300 {
			n := 0
			for _, s := range all {
				if s.Mine(fmt.Sprint("topic", i)) {
					had[s.cfg.Name]++
					n++
				}
			}
			if n != 1 {
				t.Fatalf("topic%d is of %d sidecars", i, n)
			}
		}
		if len(had) != 3 || had["a"] < 60 || had["b"] < 60 || had["c"] < 60 {
			t.Errorf("%v", had)
		}
		for _, s := range all {
			s.stop()
			if s.Mine("topic1") {
				t.Error("has something after its stop")
			}
		}
	})
}

func TestOwner(t *testing.T) {
	if Owner(nil, "x") != "" {
		t.Error("an owner of nobody")
	}
	moved, spread := 0, make(map[string]int)
	three, four := []string{"s-1", "s-2", "s-3"}, []string{"s-4", "s-3", "s-2", "s-1"}
	for i := range 4000 {
		what := fmt.Sprintf("orders\x00g\x00%d", i)
		before, after := Owner(three, what), Owner(four, what)
		spread[after]++
		if before != after {
			if after != "s-4" {
				t.Fatalf("%d moved from %s to %s, who had been there", i, before, after)
			}
			moved++
		}
	}
	for name, n := range spread {
		if n < 850 || n > 1150 {
			t.Errorf("%s has %d of 4000", name, n)
		}
	}
	if moved != spread["s-4"] {
		t.Errorf("%d moved", moved)
	}
}

var _ eventlog.Nodes = (*fakePath)(nil)

// Sidecars that were given one name, as by the host that they share, are told apart, in the same
// way by all.
func TestOneNameForSeveral(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeNodes()
		var all []*sidecar
		for _, name := range []string{"host", "other", "host", "host"} {
			s := store.start(name)
			s.Join(groupName(1))
			all = append(all, s)
		}
		pass(lease)
		owners := map[string]int{}
		for _, s := range all {
			if s.sees() != "host host#2 host#3 other" {
				t.Errorf("%s sees %q", s.View().Name, s.sees())
			}
			for i := range 50 {
				if s.Mine(fmt.Sprint("topic", i)) {
					owners[s.View().Name]++
				}
			}
		}
		if len(owners) != 4 || owners["host"]+owners["host#2"]+owners["host#3"]+owners["other"] != 50 {
			t.Errorf("50 topics are owned so: %v", owners)
		}
		all[0].stop()
		pass(lease)
		if all[2].View().Name != "host" || all[3].View().Name != "host#2" {
			t.Errorf("after the oldest has gone they are %s and %s", all[2].View().Name, all[3].View().Name)
		}
		for _, s := range all[1:] {
			s.stop()
		}
	})
}

// Others have declared a life dead, though it does not know of any reason: its clock stood still,
// maybe.
func TestADeadLifeIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeNodes()
		a := store.start("a")
		former := a.Standing().ID
		if dead, err := a.path.DeclareDead(t.Context(), former, store.Node(former).Beat); err != nil || !dead {
			t.Fatal(dead, err)
		}
		pass(lease / beatsPerLease)
		if now := a.Standing().ID; now == former || !a.Valid(time.Now()) || store.names() != "a" {
			t.Errorf("%s goes on as %s, valid %v; the store has %q", former, now, a.Valid(time.Now()), store.names())
		}
		a.stop()
	})
}

// A refresh tells what was saved before it, without the wait for the next look, or why it cannot.
func TestRefresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeNodes()
		a, b := store.start("a"), store.start("b")
		pass(time.Second)
		a.Join(groupName(1))
		pass(lease / 100)
		if got := b.View().Others(groupName(1)); len(got) != 0 {
			t.Fatalf("others %v without a look", got)
		}
		require.NoError(t, b.Refresh(t.Context()))
		if got := b.View().Others(groupName(1)); len(got) != 1 || got[0] != "a" {
			t.Errorf("others %v", got)
		}
		b.path.set(func() { b.path.err = errStore })
		if err := b.Refresh(t.Context()); !errors.Is(err, errStore) {
			t.Errorf("Refresh: %v; want %v", err, errStore)
		}
		b.path.set(func() { b.path.err = nil })
		b.stop()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := b.Refresh(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Refresh after the end: %v", err)
		}
		a.stop()
	})
}

// A sidecar announces a group only while its document in the store names it, also if a save that leaves the
// group out is under way when the group is joined again.
func TestAnnounces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeNodes()
		a := store.start("a")
		pass(time.Second)
		is := func(want bool) {
			t.Helper()
			if a.Announces(groupName(0)) != want {
				t.Errorf("it announces the group: %v, want %v", !want, want)
			}
		}
		hold := func() (release func()) {
			gate := make(chan struct{})
			a.path.set(func() { a.path.before = gate })
			return func() {
				a.path.set(func() { a.path.before = nil })
				close(gate)
				pass(time.Second)
			}
		}
		release := hold()
		a.Join(groupName(0))
		pass(time.Second)
		is(false)
		release()
		is(true)
		release = hold()
		a.Leave(groupName(0))
		pass(time.Second) // a save without the group is under way
		is(false)
		a.Join(groupName(0))
		is(false)
		release()
		is(true)
		for i := range MaxGroups {
			a.Join(eventlog.GroupName{Topic: "s", Group: groupName(i).Group})
		}
		pass(time.Second)
		is(false) // there are too many before it
		a.stop()
	})
}

package ownership

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/roster"
)

// TestOwnership asks an ownership for its plans, without a group around it, from the first epochs
// of three partitions on.
func TestOwnership(t *testing.T) {
	const life = "node" // of a sidecar that is alone
	r, now := roster.Alone(life), time.Unix(1e9, 0)
	o := &Table{Group: eventlog.GroupName{Topic: "t", Group: "g"}, Roster: r}
	o.Load(3)
	latest := make([]eventlog.Epoch, 3)
	plan := func(used bool, want string) {
		t.Helper()
		x, changed := o.Plan(r.Standing(), r.View(), used, now)
		if got := fmt.Sprint("missing ", x.Missing, " absent ", x.Absent, " frozen ", x.Frozen, " changed ", changed); got != want {
			t.Fatalf("got  %s\nwant %s", got, want)
		}
	}
	free := func(want ...string) {
		t.Helper()
		var got []string
		for _, e := range o.Free(r.Standing(), r.View(), []int{0, 1, 2}, latest, now) {
			got = append(got, fmt.Sprintf("%d/%d by %s from %d", e.Partition, e.Number, e.Owner, e.Progress.Cursor))
			if !e.Inherit || e.Released {
				t.Errorf("it inherits nothing, or is released: %+v", e)
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("got  %q\nwant %q", got, want)
		}
	}
	own := func(i int, state State, epoch uint64, by string) {
		o.Parts[i].State, o.Parts[i].Epoch, o.Parts[i].Life = state, epoch, by
	}

	// Without members there is nothing to take. With one, the partitions that were ever created and
	// not deleted are to be taken.
	plan(false, "missing [] absent [] frozen [] changed true")
	plan(true, "missing [0 1 2] absent [] frozen [] changed false")
	latest[0] = o.EpochOf(0, 1, "another")
	latest[0].Released, latest[0].Progress.Cursor = true, 7
	latest[1] = o.EpochOf(1, 4, life) // a take whose answer got lost
	latest[2] = o.EpochOf(2, 9, "another")
	latest[2].Released, latest[2].Deleted = true, true
	free("0/2 by node from 7", "1/5 by node from 0")

	// Owned partitions stay while no sidecar has members, and so do draining ones.
	own(0, Owned, 2, life)
	own(1, Draining, 5, life)
	own(2, Owned, 10, "an earlier life")
	plan(false, "missing [] absent [] frozen [2] changed true")
	o.Complete = true
	plan(false, "missing [] absent [] frozen [2] changed false")
	plan(true, "missing [] absent [] frozen [2] changed true")
	if o.Parts[1].State != Owned || o.Idle() {
		t.Errorf("partition 1 is in state %d, idle: %v", o.Parts[1].State, o.Idle())
	}

	// A partition that this sidecar has renewed stays its own; one that another has taken is lost.
	latest[0], latest[1], latest[2] = o.EpochOf(0, 3, "another"), o.EpochOf(1, 5, life), o.EpochOf(2, 10, "an earlier life")
	if next := o.Renewals(r.Standing(), []int{2}, latest); len(next) != 1 || next[0].Number != 11 || next[0].Owner != life ||
		!next[0].Inherit {
		t.Errorf("renewals are %+v", next)
	}
	latest[2] = o.EpochOf(2, 11, life)
	lost, renewed := o.Superseded(latest, now)
	if !slices.Equal(lost, []int{0}) || !slices.Equal(renewed, []int{2}) {
		t.Errorf("lost are %v, renewed %v", lost, renewed)
	}
	if p := o.Parts[2]; p.State != Owned || p.Epoch != 11 || p.Life != life {
		t.Errorf("partition 2 was not renewed: %+v", p)
	}

	// What a life that counts as gone has just taken is not taken back at once: the next might be as quick.
	own(0, Foreign, 0, "")
	free("1/6 by node from 0", "2/12 by node from 0")
	now = now.Add(retakeAfter)
	free("0/4 by node from 0", "1/6 by node from 0", "2/12 by node from 0")

	// A take without an answer may make this sidecar own a partition, until the number is taken.
	if got := o.Orphans([]int{0}, latest); got != nil {
		t.Errorf("orphans are %v", got)
	}
	o.Parts[0].Tried = 4
	if got := o.Orphans([]int{0}, latest); !slices.Equal(got, []int{0}) {
		t.Errorf("orphans are %v", got)
	}
	latest[0] = o.EpochOf(0, 4, "another")
	if lost, renewed := o.Superseded(latest, now); len(lost)+len(renewed) != 0 || o.Parts[0].Tried != 0 {
		t.Errorf("lost are %v, renewed %v, tried: %d", lost, renewed, o.Parts[0].Tried)
	}
	o.Doubt = true
	own(0, Foreign, 0, "")
	if x, _ := o.Plan(r.Standing(), r.View(), true, now); !x.Doubt || o.Doubt {
		t.Error("a doubt is not looked into once")
	}
	for _, p := range o.Parts {
		own(p.index, Foreign, 0, "")
	}
	if !o.Idle() {
		t.Error("it is not idle without a partition")
	}
}

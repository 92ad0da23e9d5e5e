package group

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/reader"
	"github.com/sluice-bus/sluice/sidecar/internal/roster"
)

// TestOwnership asks an ownership for its plans, without a group around it, from the first epochs
// of three partitions on.
func TestOwnership(t *testing.T) {
	const life = "node" // of a sidecar that is alone
	r, now := roster.Alone(life), time.Unix(1e9, 0)
	o := &ownership{group: eventlog.GroupName{Topic: topic, Group: "g"}, roster: r}
	for i := range 3 {
		o.parts = append(o.parts, &partition{Place: reader.Place{Index: i}})
	}
	latest := make([]eventlog.Epoch, 3)
	plan := func(used bool, want string) {
		t.Helper()
		x, changed := o.plan(r.Standing(), r.View(), used, now)
		if got := fmt.Sprint("missing ", x.missing, " absent ", x.absent, " frozen ", x.frozen, " changed ", changed); got != want {
			t.Fatalf("got  %s\nwant %s", got, want)
		}
	}
	free := func(want ...string) {
		t.Helper()
		var got []string
		for _, e := range o.free(r.Standing(), r.View(), []int{0, 1, 2}, latest, now) {
			got = append(got, fmt.Sprintf("%d/%d by %s from %d", e.Partition, e.Number, e.Owner, e.Progress.Cursor))
			if !e.Inherit || e.Released {
				t.Errorf("it inherits nothing, or is released: %+v", e)
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("got  %q\nwant %q", got, want)
		}
	}
	own := func(i int, state ownerState, epoch uint64, by string) {
		o.parts[i].own, o.parts[i].epoch, o.parts[i].life = state, epoch, by
	}

	// Without members there is nothing to take. With one, the partitions that were ever created and
	// not deleted are to be taken.
	plan(false, "missing [] absent [] frozen [] changed true")
	plan(true, "missing [0 1 2] absent [] frozen [] changed false")
	latest[0] = o.epochOf(0, 1, "another")
	latest[0].Released, latest[0].Progress.Cursor = true, 7
	latest[1] = o.epochOf(1, 4, life) // a take whose answer got lost
	latest[2] = o.epochOf(2, 9, "another")
	latest[2].Released, latest[2].Deleted = true, true
	free("0/2 by node from 7", "1/5 by node from 0")

	// Owned partitions stay while no sidecar has members, and so do draining ones.
	own(0, owned, 2, life)
	own(1, draining, 5, life)
	own(2, owned, 10, "an earlier life")
	plan(false, "missing [] absent [] frozen [2] changed true")
	o.complete = true
	plan(false, "missing [] absent [] frozen [2] changed false")
	plan(true, "missing [] absent [] frozen [2] changed true")
	if o.parts[1].own != owned || o.idle() {
		t.Errorf("partition 1 is in state %d, idle: %v", o.parts[1].own, o.idle())
	}

	// A partition that this sidecar has renewed stays its own; one that another has taken is lost.
	latest[0], latest[1], latest[2] = o.epochOf(0, 3, "another"), o.epochOf(1, 5, life), o.epochOf(2, 10, "an earlier life")
	if next := o.renewals(r.Standing(), []int{2}, latest); len(next) != 1 || next[0].Number != 11 || next[0].Owner != life || !next[0].Inherit {
		t.Errorf("renewals are %+v", next)
	}
	latest[2] = o.epochOf(2, 11, life)
	lost, found := o.superseded(latest)
	if len(lost) != 1 || lost[0] != o.parts[0] || !found {
		t.Errorf("lost are %v, found: %v", lost, found)
	}
	if p := o.parts[2]; p.own != owned || p.epoch != 11 || p.life != life || !p.dirty {
		t.Errorf("partition 2 was not renewed: %+v", p)
	}

	// A take without an answer may make this sidecar own a partition, until the number is taken.
	own(0, foreign, 0, "")
	if got := o.orphans([]int{0}, latest); got != nil {
		t.Errorf("orphans are %v", got)
	}
	o.parts[0].tried = 4
	if got := o.orphans([]int{0}, latest); !slices.Equal(got, []int{0}) {
		t.Errorf("orphans are %v", got)
	}
	latest[0] = o.epochOf(0, 4, "another")
	if lost, found := o.superseded(latest); len(lost) != 0 || found || o.parts[0].tried != 0 {
		t.Errorf("lost are %v, found: %v, tried: %d", lost, found, o.parts[0].tried)
	}
	o.doubt = true
	own(0, foreign, 0, "")
	if x, _ := o.plan(r.Standing(), r.View(), true, now); !x.doubt || o.doubt {
		t.Error("a doubt is not looked into once")
	}
	for _, p := range o.parts {
		own(p.Index, foreign, 0, "")
	}
	if !o.idle() {
		t.Error("it is not idle without a partition")
	}
}

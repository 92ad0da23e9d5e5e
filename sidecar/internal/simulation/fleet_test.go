package simulation

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-bus/sluice/internal/mongomodel/store"
)

// fleetOf is a plan of n idle sidecars on n topics of 8 partitions with two groups each: one has a member on the topic's sidecar,
// the other one there and one on the next.
func fleetOf(n int) *plan {
	p := &plan{Seed: 1, Sidecars: n, Members: 3, Measured: true}
	for i := range n {
		topic := fmt.Sprintf("t%d", i)
		p.Topics = append(p.Topics, topicPlan{Name: topic, Partitions: 8})
		for g, members := range [][]int{{i}, {i, (i + 1) % n}} {
			p.Groups = append(p.Groups, groupPlan{Topic: topic, Name: fmt.Sprintf("g%d", g), AckTimeout: 30_000, Attempts: 100})
			for _, sidecar := range members {
				p.Consumers = append(p.Consumers, consumerPlan{Seed: uint64(i), Group: len(p.Groups) - 1, Sidecar: sidecar, Window: 100})
			}
		}
	}
	return p
}

// cost is what the store was asked for in some time.
type cost struct {
	span time.Duration
	kind map[string]int // commands
	work store.Work
}

// costOf counts what the store is asked for while do runs.
func (r *run) costOf(c *counting, do func()) cost {
	began, work := time.Now(), r.set.Work()
	c.set(true)
	do()
	c.set(false)
	after := r.set.Work()
	got := cost{time.Since(began), maps.Clone(c.kind), store.Work{Keys: after.Keys - work.Keys, Documents: after.Documents - work.Documents}}
	clear(c.kind)
	return got
}

// all is the commands of any kind.
func (c cost) all() (n int) {
	for _, of := range c.kind {
		n += of
	}
	return n
}

func (c cost) log(t *testing.T, what string) {
	seconds := c.span.Seconds()
	t.Logf("%s: %d commands and %d documents in %.0f s: %.0f and %.0f a second", what, c.all(), c.work.Documents, seconds, float64(c.all())/seconds, float64(c.work.Documents)/seconds)
	for _, kind := range slices.Sorted(maps.Keys(c.kind)) {
		t.Logf("  %-28s %6d, %.1f a second", kind, c.kind[kind], float64(c.kind[kind])/seconds)
	}
}

// TestFleet counts what a fleet costs the store.
func TestFleet(t *testing.T) {
	for _, n := range []int{50, 200} {
		t.Run(fmt.Sprintf("%d sidecars", n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRun(fleetOf(n))
				count := &counting{kind: map[string]int{}}
				r.meter = count
				r.startApplications()
				time.Sleep(2 * time.Minute)
				idle := r.costOf(count, func() { time.Sleep(time.Minute) })
				idle.log(t, "idle")
				restart := r.costOf(count, func() {
					r.machines[0].stop()
					r.start(r.machines[0])
					time.Sleep(time.Minute)
				})
				restart.log(t, "one restarts")
				r.stopApplications()
				report(t, r.plan, r.finish())
			})
		})
	}
}

package simulation

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-bus/sluice/test/mongomodel/store"
)

// fleetOf is a plan of n idle sidecars on n topics of 8 partitions with two groups each: one has a
// member on the topic's sidecar, the other one there and one on the next.
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

// cost is what the store did in some time.
type cost struct {
	span time.Duration
	kind map[string]int // commands
	work store.Work
}

// costOf counts the store's work while do runs.
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

// commands counts the commands that begin with one of the prefixes; without any it counts all.
func (c cost) commands(prefixes ...string) (n int) {
	for kind, of := range c.kind {
		if len(prefixes) == 0 || slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(kind, p) }) {
			n += of
		}
	}
	return n
}

// writes are the commands that a majority answers, except for beats; one member answers signals.
var writes = []string{"insert events", "insert epochs", "insert nodes", "insert meta", "update ", "delete ", "findAndModify "}

// above is what c costs beyond as much time of idling.
func (c cost) above(idle cost) cost {
	part := c.span.Seconds() / idle.span.Seconds()
	less := func(n, of int) int { return n - int(float64(of)*part+0.5) }
	kind := map[string]int{}
	for k, n := range c.kind {
		kind[k] = less(n, idle.kind[k])
	}
	return cost{c.span, kind, store.Work{Keys: less(c.work.Keys, idle.work.Keys), Documents: less(c.work.Documents, idle.work.Documents)}}
}

func (c cost) log(t *testing.T, what string) {
	t.Logf("%s: %d commands, %d of them writes, and %d documents in %v", what, c.commands(), c.commands(writes...), c.work.Documents, c.span)
	for _, kind := range slices.Sorted(maps.Keys(c.kind)) {
		t.Logf("  %-28s %6d", kind, c.kind[kind])
	}
}

var fleetFlag = flag.Int("fleet", 25, "how many sidecars TestFleet has")

// TestFleet counts what a fleet costs the store: its commands, and the documents that the primary
// looks at. With -short the fleet is half as large.
func TestFleet(t *testing.T) {
	n := *fleetFlag
	if testing.Short() {
		n /= 2
	}
	for _, gauges := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) { testFleet(t, n, gauges) })
	}
}

// testFleet measures an idle fleet with the gauges of groups: for these, one sidecar reads all
// epochs now and then. Without the gauges it measures what an event, restarts, a kill and an
// election cost.
func testFleet(t *testing.T, n int, gauges bool) {
	const span = 30 * time.Second
	r := newRun(fleetOf(n))
	r.ungauged = !gauges
	count := &counting{kind: map[string]int{}}
	r.meter = count
	r.startApplications()
	time.Sleep(time.Minute)
	perSecond := func(n int) float64 { return float64(n) / span.Seconds() }
	idle := r.costOf(count, func() { time.Sleep(span) })
	idle.log(t, "idle")
	if commands, documents := perSecond(idle.commands()), perSecond(idle.work.Documents); commands > 1.5*float64(n) ||
		documents > 15*float64(n) {
		t.Errorf("%d idle sidecars ask for %.0f commands and %.0f documents a second", n, commands, documents)
	}
	if gauges {
		r.stopApplications()
		report(t, r.plan, r.finish())
		return
	}
	event := r.costOf(count, func() {
		app := &publisher{run: r, name: "p", plan: publisherPlan{Seed: 1, Topic: "t1", Sidecars: []int{n / 2}, Calls: 1, Batch: 1},
			dice: newDice(1, 2)}
		app.work()
		time.Sleep(span)
	}).above(idle)
	event.log(t, "a lone event, beyond that")
	restart := r.costOf(count, func() {
		r.machines[0].stop()
		r.start(r.machines[0])
		time.Sleep(span)
	}).above(idle)
	restart.log(t, "one restarts, beyond that")
	if restart.commands(writes...) > 40 || restart.work.Documents > 20*n+2000 {
		t.Errorf("a restart costs %d writes and %d documents", restart.commands(writes...), restart.work.Documents)
	}
	rolling := r.costOf(count, func() {
		for _, m := range r.machines {
			m.stop()
			r.start(m)
			time.Sleep(2 * time.Second)
		}
	}).above(idle)
	rolling.log(t, "all restart, one after the other, beyond that")
	if rolling.commands(writes...) > 40*n {
		t.Errorf("%d restarts cost %d writes", n, rolling.commands(writes...))
	}
	kill := r.costOf(count, func() {
		r.machines[n/2].take().kill()
		time.Sleep(span)
	}).above(idle)
	kill.log(t, "one is killed, beyond that")
	election := r.costOf(count, func() {
		r.set.StepDown(r.set.Primary())
		time.Sleep(span)
	}).above(idle)
	election.log(t, "an election, beyond that")
	r.stopApplications()
	res := r.finish()
	report(t, r.plan, res)
	if dead := len(res.history.Declared); dead != 1 {
		t.Errorf("%d lives were declared dead, of which one was", dead)
	}
}

// TestStopOfManyEpochs counts the store's work when a sidecar stops that owns 3,008 epochs.
func TestStopOfManyEpochs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := fleetOf(188)
		p.Sidecars = 1
		for i := range p.Consumers {
			p.Consumers[i].Sidecar = 0
		}
		r := newRun(p)
		count := &counting{kind: map[string]int{}}
		r.meter, r.ungauged = count, true
		r.startApplications()
		time.Sleep(2 * time.Minute)
		began := time.Now()
		stop := r.costOf(count, r.machines[0].stop)
		stop.log(t, "a stop")
		if n := stop.commands(writes...); n > 20 || time.Since(began) > 5*time.Second {
			t.Errorf("a stop makes %d writes in %v", n, time.Since(began))
		}
		r.stopApplications()
		report(t, p, r.finish())
	})
}

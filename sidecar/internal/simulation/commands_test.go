package simulation

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-bus/sluice/test/figures"
	"github.com/sluice-bus/sluice/test/mongomodel"
)

// flow is a plan in which these sidecars publish so many events a second in all, so many in
// a call on average, into one topic of 8 partitions, on a replica set that takes its time. The topic's one
// group has a member at each of the consuming sidecars, which acks each event at once.
func flow(perSecond, batch int, publishing, consuming []int) *plan {
	p := &plan{
		Seed: 1, Sidecars: 1 + max(slices.Max(publishing), slices.Max(consuming)), Members: 3, Measured: true, Lasts: 7000,
		Topics: []topicPlan{{Name: "t0", Partitions: 8}},
		Groups: []groupPlan{{Topic: "t0", Name: "g0", AckTimeout: 30_000, Attempts: 100}},
	}
	for _, i := range consuming {
		p.Consumers = append(p.Consumers, consumerPlan{Seed: uint64(i), Sidecar: i, Window: 1000})
	}
	for n, i := range publishing {
		if perSecond > 0 {
			p.Publishers = append(p.Publishers, publisherPlan{
				Seed: uint64(n), Topic: "t0", Sidecars: []int{i}, Start: 2000, Every: ms(1000 * batch * len(publishing) / perSecond),
				Calls: 5 * perSecond / batch / len(publishing), Batch: 2*batch - 1, Keys: 64, Pipeline: 1000,
			})
		}
	}
	return p
}

// counting counts commands by kind for a while.
type counting struct {
	mu   sync.Mutex
	on   bool
	kind map[string]int
}

func (c *counting) meet(q mongomodel.Request) mongomodel.Fault {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.on {
		kind := q.Command + " " + q.Collection
		if q.Collection == "nodes" && len(q.Documents) > 0 && q.Documents[0].Lookup("u", "$set", "beat").Type != 0 {
			kind = "beat " + q.Collection // there are always some
		}
		c.kind[kind]++
	}
	return mongomodel.Fault{}
}

func (c *counting) set(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.on = on
}

const (
	costsAfter = 3 * time.Second // when all is under way
	costsSpan  = 3 * time.Second
)

// costs are what a flow costs the store in costsSpan.
type costs struct {
	kind     map[string]int // commands
	commands int
	mongomodel.Cost
	answered, delivered, acked time.Duration // the medians, after the beginning of the publish and of the ack
}

// costsOf runs a flow. Replication takes longer by lag once the sidecars have started.
func costsOf(t *testing.T, p *plan, lag time.Duration) (x costs) {
	t.Helper()
	c := &counting{kind: map[string]int{}}
	synctest.Test(t, func(t *testing.T) {
		r := newRun(p)
		r.meter = c
		var counts sync.WaitGroup
		counts.Go(func() {
			time.Sleep(costsAfter / 2)
			for i := range p.Members {
				r.set.Lag(i, lag)
			}
			time.Sleep(costsAfter / 2)
			before := r.set.Cost()
			c.set(true)
			time.Sleep(costsSpan)
			c.set(false)
			x.Cost = r.set.Cost().Minus(before)
		})
		r.work()
		counts.Wait()
		res := r.finish()
		report(t, p, res)
		var acks []time.Duration
		for _, d := range res.history.Deliveries {
			for _, s := range d.Settles {
				acks = append(acks, s.Ended.At-s.Began.At)
			}
		}
		slices.Sort(acks)
		x.answered, x.delivered, x.acked = median(latencies(res.history)), median(deliveryLatencies(res.history)), median(acks)
	})
	x.kind = c.kind
	for _, n := range c.kind {
		x.commands += n
	}
	return x
}

// median is that of durations in order; 0: there are none.
func median(sorted []time.Duration) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[len(sorted)/2]
}

// deliveryLatencies are how long it took from each event's publish to its delivery, ascending.
func deliveryLatencies(h *history) (all []time.Duration) {
	began := map[string]time.Duration{}
	for _, p := range h.Publishes {
		began[p.ID] = p.Began.At
	}
	for _, d := range h.Deliveries {
		all = append(all, d.Came.At-began[d.ID])
	}
	slices.Sort(all)
	return all
}

// TestCosts counts what publish, delivery and ack of events cost the store, above what idle sidecars
// do. The table is in the test's log.
func TestCosts(t *testing.T) {
	one, two, eight := []int{0, 0}, []int{0, 1, 0, 1}, []int{0, 1, 2, 3, 4, 5, 6, 7}
	t.Logf("%-32s %8s %8s %8s %8s %8s %9s %9s %9s",
		"a second", "commands", "majority", "entries", "KB", "sessions", "OK ms", "EVENT ms", "ack ms")
	for _, c := range []struct {
		name                  string
		perSecond, batch      int
		publishing, consuming []int
	}{
		{"1/s, one sidecar", 1, 1, one, one[:1]},
		{"50/s, one sidecar", 50, 1, one, one[:1]},
		{"200/s, one sidecar", 200, 1, one, one[:1]},
		{"2,000/s, one sidecar", 2000, 1, one, one[:1]},
		{"200/s from one to another", 200, 1, one, []int{1}},
		{"2,000/s from one to another", 2000, 1, one, []int{1}},
		{"2,000/s in calls of 100 or so", 2000, 100, one, []int{1}},
		{"200/s, both do both", 200, 1, two, two[:2]},
		{"2,000/s, both do both", 2000, 1, two, two[:2]},
		{"two rivals, 50/s each", 100, 1, two[:2], []int{2}},
		{"eight rivals, 50/s each", 400, 1, eight, []int{8}},
	} {
		t.Run(c.name, func(t *testing.T) {
			idle, x := costsOf(t, flow(0, 1, c.publishing, c.consuming), 0), costsOf(t, flow(c.perSecond, c.batch, c.publishing, c.consuming), 0)
			for _, kind := range slices.Sorted(maps.Keys(x.kind)) {
				t.Logf("%-30s %5.0f/s, idle %.0f/s", kind, rate(x.kind[kind]), rate(idle.kind[kind]))
			}
			commands, cost := rate(x.commands-idle.commands), x.Cost.Minus(idle.Cost)
			majority, entries, kib := rate(cost.Majority), rate(cost.Entries), rate(cost.Bytes)/1024
			t.Logf("%-32s %8.0f %8.0f %8.0f %8.0f %8.0f %9.1f %9.1f %9.1f", c.name, commands, majority, entries, kib, rate(cost.Sessions),
				x.answered.Seconds()*1000, x.delivered.Seconds()*1000, x.acked.Seconds()*1000)
			if cost.Sessions > 0 {
				t.Errorf("%d writes were retryable", cost.Sessions)
			}
			for what, n := range map[string]float64{
				"commands": commands, "majority writes": majority, "oplog entries": entries, "KB of oplog": kib,
			} {
				figures.Compare(t, "MongoDB, "+c.name+": "+what+" a second", n)
			}
		})
	}
}

// rate is a count of costsSpan as one of a second.
func rate(n int) float64 { return float64(n) / costsSpan.Seconds() }

// TestWritesInARow: how many majority writes stand one after the other before an answer, where
// nothing takes as long as they do.
func TestWritesInARow(t *testing.T) {
	const lag = 200 * time.Millisecond
	for _, c := range []struct {
		publishing []int
		consuming  int
		want       time.Duration // before OK, and before EVENT
	}{{[]int{0}, 0, 1}, {[]int{0}, 1, 1}, {[]int{0, 1}, 2, 2}} {
		p := flow(2, 1, c.publishing, []int{c.consuming})
		for i := range p.Publishers { // the median is of those that follow the first ones
			p.Publishers[i].Calls *= 2
		}
		p.Lasts *= 2
		x := costsOf(t, p, lag)
		ok, delivered, ack := x.answered/lag, x.delivered/lag, x.acked/lag
		t.Logf("from %v to %d: %d before OK, %d before EVENT, %d before the ack's OK", c.publishing, c.consuming, ok, delivered, ack)
		if ok > c.want || delivered > c.want || ack > 1 {
			t.Errorf("from %v to %d: want %d, %d and 1 at most", c.publishing, c.consuming, c.want, c.want)
		}
	}
}

// TestIdleFleet: 200 sidecars with a member each, that have nothing to do, ask the store less than 300
// times a second, although each describes its member to the others. With -short they are 50, and the share is the same.
func TestIdleFleet(t *testing.T) {
	sidecars := 200
	if testing.Short() {
		sidecars = 50
	}
	p := flow(0, 1, []int{0}, []int{0})
	p.Sidecars, p.Consumers, p.Lasts = sidecars, nil, 6500
	for i := range p.Sidecars {
		p.Consumers = append(p.Consumers, consumerPlan{Seed: uint64(i), Sidecar: i, Window: 10})
	}
	x := costsOf(t, p, 0)
	for _, kind := range slices.Sorted(maps.Keys(x.kind)) {
		t.Logf("%-30s %5.0f/s", kind, rate(x.kind[kind]))
	}
	if all, most := rate(x.commands), 1.5*float64(sidecars); all > most {
		t.Errorf("%.0f commands a second, want %.0f at most", all, most)
	}
}

// TestASidecarComes: a sidecar that comes greets none of the others, and they do not greet it.
// Before, each of them greeted it. The sidecar that comes has no members of groups.
func TestASidecarComes(t *testing.T) {
	p := flow(0, 1, []int{0}, []int{1})
	p.Sidecars = 5
	p.Consumers = append(p.Consumers, consumerPlan{Seed: 2, Sidecar: 2, Window: 10}, consumerPlan{Seed: 3, Sidecar: 3, Window: 10})
	c := &counting{kind: map[string]int{}}
	synctest.Test(t, func(t *testing.T) {
		r := newRun(p)
		r.meter = c
		var coming sync.WaitGroup
		coming.Go(func() {
			time.Sleep(time.Second)
			r.machines[4].stop()
			time.Sleep(2 * time.Second)
			c.set(true)
			r.start(r.machines[4])
			time.Sleep(3 * time.Second)
			c.set(false)
		})
		r.work()
		coming.Wait()
		report(t, p, r.finish())
	})
	if c.kind["insert nodes"] != 1 {
		t.Errorf("no sidecar came: %v", c.kind)
	}
	signals := 0
	for kind, n := range c.kind {
		if strings.HasPrefix(kind, "insert signals") {
			signals += n
		}
	}
	t.Logf("%d signals", signals)
	if signals > 2 {
		t.Errorf("a sidecar that comes to four others makes %d signals, want 2 at most", signals)
	}
}

package quota_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// slack is how much more than its burst a topic may let through at once.
func slack(rate float64) float64 { return max(1, rate/4) }

// scenario is a fleet with a script, in which demand is above the rate from settled on, or at least
// in the 10 s from each of the times in calm.
type scenario struct {
	name     string
	rate     float64
	burst    int
	sidecars int
	run      func(f *fleet) // takes its time
	settled  time.Duration  // from the start: since when the rate has to be used; -1: only in calm
	calm     []time.Duration
}

// spread puts the same load on all sidecars.
func (f *fleet) spread(l load) {
	for _, s := range f.sidecars {
		s.load.Store(&l)
	}
}

func each(l load) func(*fleet) {
	return func(f *fleet) {
		f.spread(l)
		time.Sleep(30 * time.Second)
	}
}

var scenarios = []scenario{
	{name: "one of one", rate: 200, burst: 200, sidecars: 1, run: each(load{perSecond: 400, batch: 1})},
	{name: "one of eight", rate: 200, burst: 200, sidecars: 8, run: func(f *fleet) {
		f.sidecars[3].load.Store(&load{perSecond: 400, batch: 1})
		time.Sleep(30 * time.Second)
	}},
	{name: "spread evenly", rate: 200, burst: 200, sidecars: 8, run: each(load{perSecond: 50, batch: 1})},
	{name: "spread evenly, Poisson, just above", rate: 200, burst: 200, sidecars: 8, run: each(load{perSecond: 28, batch: 1, poisson: true})},
	{name: "spread unevenly", rate: 400, burst: 100, sidecars: 6, run: func(f *fleet) {
		for i, s := range f.sidecars {
			s.load.Store(&load{perSecond: []float64{10, 20, 40, 60, 300, 800}[i], batch: 1, poisson: true})
		}
		time.Sleep(30 * time.Second)
	}},
	{name: "waiting publishers", rate: 200, burst: 50, sidecars: 4, run: func(f *fleet) {
		each(load{perSecond: 5000, batch: 1, waits: true})(f)
	}},
	{name: "moving every 12 s", rate: 200, burst: 200, sidecars: 4, run: moving(12 * time.Second), settled: -1,
		calm: []time.Duration{5 * time.Second, 17 * time.Second, 29 * time.Second, 41 * time.Second}},
	{name: "moving every 3 s", rate: 200, burst: 200, sidecars: 4, run: moving(3 * time.Second), settled: -1},
	{name: "3 a second over 8, much", rate: 3, burst: 3, sidecars: 8, run: each(load{perSecond: 10, batch: 1, poisson: true})},
	{name: "3 a second over 8, little", rate: 3, burst: 3, sidecars: 8, run: each(load{perSecond: 0.5, batch: 1, poisson: true})},
	{name: "one in 2 s over 4", rate: 0.5, burst: 1, sidecars: 4, run: each(load{perSecond: 2, batch: 1, poisson: true})},
	{name: "30 a second over 20, burst 1", rate: 30, burst: 1, sidecars: 20, run: each(load{perSecond: 10, batch: 1, poisson: true})},
	{name: "batches of 50", rate: 200, burst: 200, sidecars: 8, run: each(load{perSecond: 100, batch: 50, poisson: true})},
	{name: "batches of the burst", rate: 200, burst: 200, sidecars: 8, run: each(load{perSecond: 100, batch: 200, poisson: true})},
	{name: "batches of 50, sizes not told", rate: 200, burst: 200, sidecars: 8,
		run: each(load{perSecond: 100, batch: 50, poisson: true, blind: true})},
	{name: "batches of the burst, sizes not told", rate: 200, burst: 200, sidecars: 8,
		run: each(load{perSecond: 100, batch: 200, poisson: true, blind: true}), settled: -1},
	{name: "a million a second", rate: 1e6, burst: 500_000, sidecars: 4, run: each(load{perSecond: 500_000, batch: 2000, poisson: true})},
	{name: "batches beside single ones", rate: 200, burst: 200, sidecars: 4, run: func(f *fleet) {
		each2(f, load{perSecond: 100, batch: 1}, load{perSecond: 200, batch: 100})
	}},
	{name: "bursts after rest", rate: 100, burst: 200, sidecars: 4, run: func(f *fleet) {
		for i := range 6 {
			s := f.sidecars[i%4]
			s.load.Store(&load{perSecond: 2000, batch: 1})
			time.Sleep(500 * time.Millisecond)
			s.load.Store(&load{})
			time.Sleep(4500 * time.Millisecond)
		}
	}, settled: -1},
	{name: "control plane restarts", rate: 200, burst: 100, sidecars: 4, run: func(f *fleet) {
		f.spread(load{perSecond: 100, batch: 1})
		time.Sleep(8 * time.Second)
		f.stopServer()
		f.startServer()
		time.Sleep(22 * time.Second)
	}},
	{name: "one joins, one leaves", rate: 200, burst: 100, sidecars: 3, run: func(f *fleet) {
		f.spread(load{perSecond: 100, batch: 1})
		time.Sleep(8 * time.Second)
		f.add()
		f.spread(load{perSecond: 100, batch: 1})
		time.Sleep(12 * time.Second)
		f.sidecars[0].leave()
		time.Sleep(12 * time.Second)
	}},
	{name: "one is killed", rate: 200, burst: 100, sidecars: 3, run: func(f *fleet) {
		f.spread(load{perSecond: 250, batch: 1})
		time.Sleep(8 * time.Second)
		f.sidecars[0].port.cut(true)
		f.sidecars[0].load.Store(&load{})
		time.Sleep(14 * time.Second)
	}, settled: -1, calm: []time.Duration{13 * time.Second}},
	{name: "one of four cut off for 10 s", rate: 200, burst: 100, sidecars: 4, run: func(f *fleet) {
		f.spread(load{perSecond: 100, batch: 1})
		time.Sleep(8 * time.Second)
		f.sidecars[0].port.cut(true)
		time.Sleep(10 * time.Second)
		f.sidecars[0].port.cut(false)
		time.Sleep(12 * time.Second)
	}},
	{name: "answers stall for 1 s", rate: 200, burst: 100, sidecars: 4, run: func(f *fleet) {
		f.spread(load{perSecond: 100, batch: 1})
		for i := range 10 {
			time.Sleep(3 * time.Second)
			f.sidecars[i%4].port.stall(time.Second)
		}
	}},
}

func each2(f *fleet, even, odd load) {
	for i, s := range f.sidecars {
		s.load.Store([]*load{&even, &odd}[i%2])
	}
	time.Sleep(30 * time.Second)
}

func moving(every time.Duration) func(*fleet) {
	return func(f *fleet) {
		for i := range 8 {
			s := f.sidecars[i%len(f.sidecars)]
			s.load.Store(&load{perSecond: 500, batch: 1})
			time.Sleep(every)
			s.load.Store(&load{})
		}
	}
}

// TestScenarios holds the bound, and 90 % of the rate, in fixed scenarios; -v shows how near they
// come.
func TestScenarios(t *testing.T) {
	table := []string{fmt.Sprintf("%-36s %7s %6s %4s | %8s %8s | %9s %9s %9s", "scenario", "rate", "burst", "n", "at once", "bound",
		"most/10s", "least/10s", "of ideal")}
	for _, c := range scenarios {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(c.rate, c.burst, 5*time.Millisecond)
				for range c.sidecars {
					f.add()
				}
				time.Sleep(3 * time.Second) // the grace
				c.run(f)
				end := time.Since(f.began)
				f.close()
				table = append(table, c.check(t, f, end))
			})
		})
	}
	t.Log("\n" + strings.Join(table, "\n"))
}

// check holds the bound over all windows, and over those of 10 s, once settled, that 90 % were used
// of the rate, or of what one bucket for all would have let through of the same publishes.
func (c *scenario) check(t *testing.T, f *fleet, end time.Duration) string {
	f.sort()
	accepted, ideal := f.accepted(0), f.ideal(c.rate, c.burst)
	at, bound := excess(accepted, c.rate), float64(c.burst)+slack(c.rate)
	if at > bound+1e-6 {
		t.Errorf("%.1f more than rate × time were accepted, at most %.1f are allowed", at, bound)
	}
	accepted = slices.DeleteFunc(slices.Clone(f.outcomes), func(a acceptance) bool { return !a.accepted })
	const window = 10 * time.Second
	ten, most, least, ofIdeal := c.rate*window.Seconds(), 0.0, math.Inf(1), math.Inf(1)
	for from := max(c.settled, 5*time.Second); from+window <= end; from += 100 * time.Millisecond {
		got, could := float64(within(accepted, from, from+window)), float64(within(ideal, from, from+window))
		most, least = max(most, got/ten), min(least, got/ten)
		ofIdeal = min(ofIdeal, got/max(could, 1))
		if c.settled >= 0 {
			c.used(t, got, could, float64(largest(accepted)))
		}
	}
	for _, from := range c.calm {
		c.used(t, float64(within(accepted, from, from+window)), float64(within(ideal, from, from+window)), 0)
	}
	return fmt.Sprintf("%-36s %7g %6d %4d | %8.1f %8.1f | %8.1f%% %8.1f%% %8.1f%%",
		c.name, c.rate, c.burst, c.sidecars, at, bound, 100*most, 100*least, 100*ofIdeal)
}

// used holds what was accepted within 10 s to 90 % of the rate, or of what one bucket for all could
// have let through; batch is by how much it may be less.
func (c *scenario) used(t *testing.T, got, could, batch float64) {
	t.Helper()
	if ten := 10 * c.rate; got < 0.9*min(ten, could)-batch {
		t.Errorf("only %g were accepted within 10 s, want 90%% of %g, or of the %g that one bucket had let through", got, ten, could)
	}
}

// largest is the largest publish.
func largest(accepted []acceptance) (n int) {
	for _, a := range accepted {
		n = max(n, a.n)
	}
	return n
}

package simulation

import (
	"flag"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"time"
)

// rivals is a plan in which so many sidecars publish on a replica set that takes its time, into so
// many partitions of one topic or of a topic for each. Each publishes 50 events a second, every one
// by itself, or as fast as it can with so many under way.
func rivals(sidecars, partitions int, together bool, underWay int) *plan {
	p := &plan{Seed: uint64(sidecars), Sidecars: sidecars, Members: 3, Measured: true, Lasts: 6000}
	for i := range sidecars {
		topic := "t0"
		if !together {
			topic = fmt.Sprintf("t%d", i)
		}
		if i == 0 || !together {
			p.Topics = append(p.Topics, topicPlan{Name: topic, Partitions: partitions})
		}
		publisher := publisherPlan{
			Seed: uint64(i), Topic: topic, Sidecars: []int{i}, Every: 20, Calls: 250, Batch: 1, Keys: 4 * (partitions - 1), Pipeline: 1000,
		}
		if underWay > 0 {
			p.Lasts, publisher.Every, publisher.Calls, publisher.Pipeline, publisher.Lasts = 3000, 0, math.MaxInt, underWay, 2000
		}
		p.Publishers = append(p.Publishers, publisher)
	}
	return p
}

// latencies are how long each event of a history took from its first publish to its answer,
// ascending.
func latencies(h *history) (all []time.Duration) {
	began := map[string]time.Duration{}
	for _, p := range h.Publishes {
		if _, again := began[p.ID]; !again {
			began[p.ID] = p.Began.At
		}
		if p.ok() {
			all = append(all, p.Ended.At-began[p.ID])
		}
	}
	slices.Sort(all)
	return all
}

// TestRivals: sidecars that publish into one topic cost each other no more than their load does.
// All of them publish what they have, so that their shares are alike.
func TestRivals(t *testing.T) {
	for _, c := range []struct{ sidecars, partitions int }{{8, 1}, {8, 8}} {
		t.Run(fmt.Sprintf("%d sidecars, %d partitions", c.sidecars, c.partitions), func(t *testing.T) {
			p99 := func(together bool) time.Duration {
				p := rivals(c.sidecars, c.partitions, together, 0)
				res := runPlan(t, p)
				report(t, p, res)
				all := latencies(res.history)
				p99 := all[len(all)*99/100]
				t.Logf("in one topic: %v: %d publishes, p50 %v, p99 %v", together, len(all), all[len(all)/2], p99)
				return p99
			}
			if one, each := p99(true), p99(false); one > 2*each {
				t.Errorf("the p99 of %d sidecars is %v in one topic, and %v with a topic each", c.sidecars, one, each)
			}
		})
	}
}

// TestRivalsInAClosedLoop: sidecars that publish into one topic as fast as they can get on half as
// well as with a topic each, where they need no reservations, and each of them does. With -short they go on half as long.
func TestRivalsInAClosedLoop(t *testing.T) {
	loop := func(together bool) (all, least float64) {
		p := rivals(8, 8, together, 16)
		if testing.Short() {
			for i := range p.Publishers {
				p.Publishers[i].Lasts /= 2
			}
		}
		return closedLoop(t, p)
	}
	each, _ := loop(false)
	all, least := loop(true)
	t.Logf("events a second: %.0f in one topic, %.0f with a topic each", all, each)
	if all < 0.45*each {
		t.Errorf("in one topic %.0f events a second, with a topic each %.0f", all, each)
	}
	if mean := all / 8; least < mean/2 {
		t.Errorf("a sidecar publishes %.0f events a second, and the mean is %.0f", least, mean)
	}
}

// closedLoop returns how many events a second all sidecars publish together, and how many the
// slowest publishes.
func closedLoop(t *testing.T, p *plan) (all, least float64) {
	t.Helper()
	res := runPlan(t, p)
	report(t, p, res)
	count, seconds := map[string]int{}, p.Publishers[0].Lasts.d().Seconds()
	for _, done := range res.history.Publishes {
		if done.ok() {
			count[done.Sidecar]++
			all += 1 / seconds
		}
	}
	return all, float64(slices.Min(slices.Collect(maps.Values(count)))) / seconds
}

var tableFlag = flag.Bool("table", false, "have TestTable measure throughput and latency of many writers")

// TestTable measures the latency of publishes at 50 a second from each of so many sidecars, and the
// throughput in a closed loop.
func TestTable(t *testing.T) {
	if !*tableFlag {
		t.Skip("without -table nothing is measured")
	}
	for _, partitions := range []int{1, 8} {
		for _, sidecars := range []int{1, 8, 32} {
			p := rivals(sidecars, partitions, true, 0)
			res := runPlan(t, p)
			report(t, p, res)
			all := latencies(res.history)
			most, _ := closedLoop(t, rivals(sidecars, partitions, true, 16))
			t.Logf("%2d sidecars, %d partitions: p50 %5.1f ms, p99 %5.1f ms at 50/s each; %.0f events a second with 16 under way each",
				sidecars, partitions, all[len(all)/2].Seconds()*1000, all[len(all)*99/100].Seconds()*1000, most)
		}
	}
}

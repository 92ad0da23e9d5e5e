package simulation

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// rivals is a plan in which so many sidecars publish 50 events a second each, every one by itself, on a replica set that takes
// its time: into so many partitions of one topic, or of a topic for each.
func rivals(sidecars, partitions int, together bool) *plan {
	p := &plan{Seed: uint64(sidecars), Sidecars: sidecars, Members: 3, Measured: true, Lasts: 6000}
	for i := range sidecars {
		topic := "t0"
		if !together {
			topic = fmt.Sprintf("t%d", i)
		}
		if i == 0 || !together {
			p.Topics = append(p.Topics, topicPlan{Name: topic, Partitions: partitions})
		}
		p.Publishers = append(p.Publishers, publisherPlan{
			Seed: uint64(i), Topic: topic, Sidecars: []int{i}, Every: 20, Calls: 250, Batch: 1, Keys: 4 * (partitions - 1), Pipeline: 1000,
		})
	}
	return p
}

// latencies are how long each event of a history took from its first publish to its answer, ascending.
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

// TestRivals: sidecars that publish into one topic cost each other no more than their load does. All of them publish what they
// have, so that their shares are alike.
func TestRivals(t *testing.T) {
	for _, c := range []struct{ sidecars, partitions int }{{8, 1}, {8, 8}} {
		t.Run(fmt.Sprintf("%d sidecars, %d partitions", c.sidecars, c.partitions), func(t *testing.T) {
			p99 := func(together bool) time.Duration {
				p := rivals(c.sidecars, c.partitions, together)
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

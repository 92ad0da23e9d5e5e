package simulation

import (
	"slices"
	"testing"
	"time"
)

// rivals is a plan in which so many sidecars publish 50 events a second each into one partition, each by itself, on a
// replica set that takes its time.
func rivals(sidecars int) *plan {
	p := &plan{
		Seed: uint64(sidecars), Sidecars: sidecars, Members: 3, Measured: true, Lasts: 6000,
		Topics: []topicPlan{{Name: "t0", Partitions: 1}},
	}
	for i := range sidecars {
		p.Publishers = append(p.Publishers, publisherPlan{
			Seed: uint64(i), Topic: "t0", Sidecars: []int{i}, Every: 20, Calls: 250, Batch: 1, Pipeline: 1000,
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

// TestStarving shows a known fault: writers of one partition that do not know of each other's events keep each other from
// writing. It fails when that is over.
func TestStarving(t *testing.T) {
	tail := func(sidecars int) time.Duration {
		p := rivals(sidecars)
		res := runPlan(t, p)
		report(t, p, res)
		all := latencies(res.history)
		p99 := all[len(all)*99/100]
		t.Logf("%d sidecars: %d publishes, p50 %v, p99 %v", sidecars, len(all), all[len(all)/2], p99)
		return p99
	}
	if one, eight := tail(1), tail(8); eight < 10*one {
		t.Errorf("the p99 of 8 sidecars is %v, that of one %v: they starve each other no more", eight, one)
	}
}

package simulation

import (
	"strings"
	"testing"
	"testing/synctest"
)

// TestStartOfAFleet: sidecars that start at once, on a store that is slow while they do, do not warn
// that they cannot keep up with one another.
func TestStartOfAFleet(t *testing.T) {
	const sidecars = 32
	synctest.Test(t, func(t *testing.T) {
		p := rivals(sidecars, 8, true, 0)
		p.Lasts = 10_000
		p.Groups = []groupPlan{{Topic: "t0", Name: "g0", AckTimeout: 30_000, Attempts: 100}}
		p.Faults = []fault{{Kind: slowRequests, Sidecar: everySidecar, Percent: 100, By: 1000, For: 4000}}
		for i := range sidecars {
			p.Publishers[i].Every, p.Publishers[i].Calls = 1000, 5
			p.Consumers = append(p.Consumers, consumerPlan{Seed: uint64(i), Sidecar: i, Window: 100})
		}
		r := newRun(p)
		r.work()
		report(t, p, r.finish())
		for line := range strings.Lines(r.logged.String()) {
			if strings.Contains(line, "cannot keep up") {
				t.Error(strings.TrimSpace(line))
			}
		}
	})
}

package scale

import (
	"testing"
	"time"
)

// TestFleet brings changes to all sidecars, each what has changed and not much more, also over the
// end of a control plane.
func TestFleet(t *testing.T) {
	p := startPlane(t)
	f := newFleet(t, p)
	f.start(t)
	f.awaitSynced(t)
	f.awaitPeers(t)

	two := f.ofTwo()
	if len(two) < 8 {
		t.Fatalf("%d topics have two sidecars; the test needs more", len(two))
	}
	t.Run("a change is one pack to everybody", func(t *testing.T) {
		for _, name := range append(two[:4:4], hot) {
			change(t, p, f, name, 1)
		}
	})
	t.Run("a glob has its policies sent again", func(t *testing.T) {
		change(t, p, f, changedGlob, 2+topicPolicies()/teams/8) // one topic in teams falls under it, and their names lie next to each other
	})
	t.Run("a control plane that comes back sends only what has changed", func(t *testing.T) { comeBack(t, p, f, two[4:8]) })
}

// change makes one change and checks what everybody hears of it.
func change(t *testing.T, p *plane, f *fleet, name string, packs int) {
	t.Helper()
	before := f.seen()
	rate, version, at := p.put(t, name)
	last := awaitRate(t, f.using[name], name, rate)
	awaitAcks(t, p, name, version, len(f.list))
	t.Logf("%s was in force %v after the PUT began", name, last.Sub(at))
	for i, got := range f.since(before) {
		// The response is counted, and each resource in it.
		if n := int(got.names[packsKind]) - 1; n < 1 || n > packs || got.names[peersKind] != 0 {
			t.Errorf("%s: %s heard of %d packs and %d groups of peers; want up to %d packs", name, f.list[i].id, n, got.names[peersKind], packs)
		}
	}
}

// comeBack kills the control plane, changes some policies where no sidecar is connected, and lets
// all of them come back at once.
func comeBack(t *testing.T, p *plane, f *fleet, names []string) {
	p.Kill()
	f.awaitConnected(t, false)
	p.restart(t, true)
	rates := map[string]float64{}
	versions := map[string]int64{}
	for _, name := range names {
		rates[name], versions[name], _ = p.put(t, name)
	}
	p.Kill()
	before := f.seen()
	swaps := make([]int, len(f.list))
	for i, s := range f.list {
		swaps[i] = s.changes()
	}

	began := time.Now()
	p.restart(t, false)
	ready := time.Now()
	f.awaitConnected(t, true)
	for name, rate := range rates {
		awaitRate(t, f.using[name], name, rate)
		awaitAcks(t, p, name, versions[name], len(f.list))
	}
	t.Logf("the control plane took %v to start, and all sidecars were back %v later", ready.Sub(began), time.Since(ready))
	// Peers come last: only when everybody had the time to return.
	until(t, "an answer about peers", f.list, func(s *sidecar) bool {
		return s.wire.seen().minus(before[f.index[s]]).names[peersKind] > 0
	})
	for i, got := range f.since(before) {
		s := f.list[i]
		// The answer that there is nothing new of a wildcard is a response, too.
		if n := int(got.names[packsKind]) - 1; n < 1 || n > len(names) || got.names[peersKind] != 1 {
			t.Errorf("%s was sent %d packs and %d groups of peers; want up to %d packs and an empty answer", s.id, n, got.names[peersKind],
				len(names))
		}
		if n := s.changes() - swaps[i]; n != 1 {
			t.Errorf("%s put other policies in force %d times", s.id, n)
		}
		if n := len(s.control.Peers()); n != len(f.list)-1 {
			t.Errorf("%s knows %d peers; want %d", s.id, n, len(f.list)-1)
		}
	}
}

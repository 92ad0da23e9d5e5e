package scale

import (
	"slices"
	"testing"
	"time"
)

// TestFleet brings changes to those who are interested and to nobody else, also
// over the end of a control plane.
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
	t.Run("changes reach those who are interested", func(t *testing.T) {
		for _, name := range append(two[:4:4], hot) {
			change(t, p, f, name)
		}
	})
	t.Run("a glob reaches everybody", func(t *testing.T) { changeGlob(t, p, f) })
	t.Run("a control plane that comes back sends only what has changed", func(t *testing.T) { comeBack(t, p, f, two[4:8]) })
}

// change makes one change of a topic and checks who hears of it.
func change(t *testing.T, p *plane, f *fleet, name string) {
	t.Helper()
	before := f.seen()
	of := f.interested[name]
	rate, version, at := p.put(t, name)
	last := awaitRate(t, of, name, rate)
	awaitAcks(t, p, name, version, len(of))
	t.Logf("%s was in force %v after the PUT began, for %d sidecars", name, last.Sub(at), len(of))
	for i, got := range f.since(before) {
		want := int64(0)
		if slices.Contains(of, f.list[i]) {
			want = 2 // the response, and one resource in it
		}
		if got.names[topicKind] != want || got.names[globKind] != 0 || got.names[peersKind] != 0 {
			t.Errorf("%s, for %d sidecars: %s heard of %d topics, %d globs and %d groups of peers; want %d topics",
				name, len(of), f.list[i].id, got.names[topicKind], got.names[globKind], got.names[peersKind], want)
		}
	}
}

// changeGlob makes one change of a glob. It comes to every sidecar, and as it is
// also what topics without a rate of their own fall through to, those to the
// sidecars that use them.
func changeGlob(t *testing.T, p *plane, f *fleet) {
	t.Helper()
	before := f.seen()
	rate, version, at := p.put(t, changedGlob)
	last := awaitRate(t, f.list, changedGlob, rate)
	fallen := map[*sidecar]int64{}
	for i := range topicPolicies() {
		name := topicName(i)
		if i%teams != 7 || ownRate(i) {
			continue
		}
		of := f.interested[name]
		last = later(last, awaitRate(t, of, name, rate))
		for _, s := range of {
			fallen[s]++
		}
	}
	awaitAcks(t, p, changedGlob, version, len(f.list))
	t.Logf("%s was in force %v after the PUT began, for %d sidecars, %d of them with topics under it", changedGlob, last.Sub(at), len(f.list), len(fallen))
	for i, got := range f.since(before) {
		want := fallen[f.list[i]]
		if want > 0 {
			want++ // the response
		}
		if got.names[topicKind] != want || got.names[globKind] != 2 || got.names[peersKind] != 0 {
			t.Errorf("%s heard of %d topics, %d globs and %d groups of peers; want %d topics and 2 globs",
				f.list[i].id, got.names[topicKind], got.names[globKind], got.names[peersKind], want)
		}
	}
}

// comeBack kills the control plane, changes some policies where no sidecar is
// connected, and lets all of them come back at once.
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
	changed := map[*sidecar]int64{}
	for name, rate := range rates {
		awaitRate(t, f.interested[name], name, rate)
		awaitAcks(t, p, name, versions[name], len(f.interested[name]))
		for _, s := range f.interested[name] {
			changed[s]++
		}
	}
	t.Logf("the control plane took %v to start, and all sidecars were back %v later", ready.Sub(began), time.Since(ready))
	// Peers come last: only when everybody had the time to return.
	until(t, "an answer about peers", f.list, func(s *sidecar) bool {
		return s.wire.seen().minus(before[f.index[s]]).names[peersKind] > 0
	})
	for i, got := range f.since(before) {
		s := f.list[i]
		want := changed[s]
		if want > 0 {
			want++ // the response
		}
		// The answer that there is nothing new of a wildcard is a response, too.
		if got.names[topicKind] != want || got.names[globKind] != 1 || got.names[peersKind] != 1 {
			t.Errorf("%s was sent %d topics, %d globs and %d groups of peers; want %d topics and an empty answer of the others",
				s.id, got.names[topicKind], got.names[globKind], got.names[peersKind], want)
		}
		if n := s.changes() - swaps[i]; n > 1 || (n == 1) != (changed[s] > 0) {
			t.Errorf("%s put other policies in force %d times; %d have changed", s.id, n, changed[s])
		}
		if n := len(s.control.Peers()); n != len(f.list)-1 {
			t.Errorf("%s knows %d peers; want %d", s.id, n, len(f.list)-1)
		}
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

package xds_test

import (
	"fmt"
	"testing"
)

// A change of globs and topics at once, such as one apply makes, comes in two responses. At no time
// in between does a topic fall through to what neither the old policies nor the new ones say of it.
func TestNothingElseHoldsInBetween(t *testing.T) {
	glob := policies{"*": 1, "x.*": 5}
	exact := policies{"*": 1, "x.new": 7}
	f := serve(t, glob)
	c := f.connect(t, "n", "i")
	c.subscribe(topics, "x.new")
	c.expect(topics, policies{"x.new": -1})
	c.subscribe(globs, "*")
	c.expect(globs, glob)
	holds := map[string]int64{"*": 1, "x.*": 5}
	for round := range 20 {
		want, from := exact, int64(5)
		if round%2 == 1 {
			want, from = glob, 7
		}
		f.set(want)
		for responses := 0; responses < 2; responses++ {
			r := c.next()
			for _, each := range r.GetResources() {
				holds[each.GetName()] = version(t, each)
			}
			for _, name := range r.GetRemovedResources() {
				delete(holds, name)
			}
			now := holds["*"]
			for _, name := range []string{"x.*", "x.new"} {
				if v, ok := holds[name]; ok {
					now = v
				}
			}
			if now != from && now != 12-from {
				t.Errorf("round %d: x.new is under version %d, want 5 or 7", round, now)
			}
			c.ack(r)
		}
	}
}

// A sidecar that asks for a topic is answered by the policies as they are, also while changes that
// come in quick succession are collected.
func TestWhoAsksIsAnsweredByTheLatest(t *testing.T) {
	f := serve(t, policies{"*": 1})
	all := policies{"*": 1}
	for version := int64(1); version <= 5; version++ {
		name := fmt.Sprint("topic-", version)
		f.set(all) // begins to collect
		all[name] = version
		f.set(all)
		c := f.connect(t, fmt.Sprint("n", version), "i")
		c.subscribe(topics, name)
		c.expect(topics, policies{name: version})
	}
}

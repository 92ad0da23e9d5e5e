package xds_test

import (
	"fmt"
	"maps"
	"testing"
)

// A sidecar that connects is answered by the policies as they are, also while changes that come in
// quick succession are collected.
func TestWhoAsksIsAnsweredByTheLatest(t *testing.T) {
	all := policies{"*": 1}
	f := serve(t, maps.Clone(all))
	for version := int64(1); version <= 5; version++ {
		f.set(all) // begins to collect
		all[fmt.Sprint("topic-", version)] = version
		f.set(all)
		c := f.connect(t, fmt.Sprint("n", version), "i")
		c.policies()
		c.expect(all)
	}
}

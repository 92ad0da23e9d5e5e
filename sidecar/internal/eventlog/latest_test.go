package eventlog

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// A prefix selects the keys that begin with it, and one key itself alone.
func TestLatestQuery(t *testing.T) {
	text := rapid.StringOf(rapid.SampledFrom([]rune{0, 'a', 'b', 0xD7FF, 0xE000, 0x10FFFF}))
	rapid.Check(t, func(t *rapid.T) {
		given, key := text.Draw(t, "given"), text.Draw(t, "key")
		selects := func(q LatestQuery) bool { return key >= q.From && (q.Below == "" || key < q.Below) }
		if got, want := selects(KeyPrefix(given)), strings.HasPrefix(key, given); got != want {
			t.Fatalf("the prefix %q selects %q: %v", given, key, got)
		}
		if got, want := selects(OneKey(given)), key == given; got != want {
			t.Fatalf("the key %q selects %q: %v", given, key, got)
		}
	})
}

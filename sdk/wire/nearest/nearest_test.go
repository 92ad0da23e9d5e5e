package nearest

import "testing"

func TestWord(t *testing.T) {
	known := []string{"dry_run", "limit", "cursor"}
	for word, want := range map[string]string{"dryRun": "dry_run", "limt": "limit", "dry_run": "dry_run", "partition": "", "": ""} {
		if got := Word(word, known); got != want {
			t.Errorf("%q: %q, want %q", word, got, want)
		}
	}
	if got := Hint("curser", known); got != ` (did you mean "cursor"?)` {
		t.Error(got)
	}
	if got := Hint("x", nil) + Known("x", nil); got != "" {
		t.Error(got)
	}
	if got := Known("partition", known) + Known("curser", known); got != `; known are dry_run, limit, cursor (did you mean "cursor"?)` {
		t.Error(got)
	}
}

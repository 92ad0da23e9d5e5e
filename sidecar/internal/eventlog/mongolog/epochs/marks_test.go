package epochs

import (
	"fmt"
	"testing"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

func TestMarks(t *testing.T) {
	open := sharedStore(t)
	l, other := open(), open()
	save := func(marks ...eventlog.Mark) {
		t.Helper()
		if err := l.SaveEpochs(t.Context(), nil, marks); err != nil {
			t.Fatalf("SaveEpochs: %v", err)
		}
	}
	// Marks of the future, so that no server removes them by itself.
	const at = 1 << 42
	save(eventlog.Mark{Topic: "t", Group: "a/b", ID: "c", ExpiresAt: at})
	save(eventlog.Mark{Topic: "t", Group: "a", ID: "late", ExpiresAt: at + 10}, eventlog.Mark{Topic: "t", Group: "a", ID: "late",
		ExpiresAt: at})
	ids := []string{"c", "b/c", "late", "a/b/c"}
	for group, want := range map[string][]bool{
		"a/b": {true, false, false, false},
		"a":   {false, false, true, false},
	} {
		got, err := other.Marked(t.Context(), "t", group, ids, at-1)
		if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("Marked of group %q = %v, %v; want %v", group, got, err, want)
		}
	}
	if got, err := other.Marked(t.Context(), "t", "a", []string{"late"}, at+9); err != nil || !got[0] {
		t.Errorf("an earlier time took the place of the later: %v, %v", got, err)
	}
	if removed, more, err := other.SweepMarks(t.Context(), at, 10); removed != 1 || more || err != nil {
		t.Errorf("SweepMarks = %d, %v, %v; want one removed", removed, more, err)
	}
	if got, err := l.Marked(t.Context(), "t", "a/b", []string{"c"}, 0); err != nil || got[0] {
		t.Errorf("a mark that was swept: %v, %v", got, err)
	}
}

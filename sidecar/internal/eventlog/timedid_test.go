package eventlog

import (
	"strings"
	"testing"

	"github.com/google/uuid"
	"pgregory.net/rapid"
)

// TestTimedIDs: an id tells its ts, ids of one ts rise, and a changed one is taken for one only by chance.
func TestTimedIDs(t *testing.T) {
	changed, taken := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		ts := rapid.Int64Range(0, 1<<48-1).Draw(t, "ts")
		first, second := NewTimedID(ts), NewTimedID(ts)
		if first >= second {
			t.Fatalf("%s comes after %s", first, second)
		}
		if got, timed := TimeOfID(first); !timed || got != ts {
			t.Fatalf("%s: %d, %v, want %d", first, got, timed, ts)
		}
		u := uuid.MustParse(first)
		if u.Version() != 7 || u.Variant() != uuid.RFC4122 {
			t.Fatalf("%s has version %v, variant %v", first, u.Version(), u.Variant())
		}
		u[rapid.IntRange(0, len(u)-1).Draw(t, "byte")] ^= byte(rapid.IntRange(1, 255).Draw(t, "flip"))
		changed++
		if _, timed := TimeOfID(u.String()); timed {
			taken++
		}
	})
	if taken*10 > changed {
		t.Errorf("%d of %d changed ids are taken for timed ones", taken, changed)
	}
	others := []string{"", "order-1", "0192f0c1-2345-7abc-8def-0123456789a", uuid.NewString(), strings.ToUpper(NewTimedID(1<<48 - 1))}
	for _, id := range others {
		if _, timed := TimeOfID(id); timed {
			t.Errorf("%q is taken for a timed id", id)
		}
	}
}

// TestIDsOfOthersAreRarelyTimed: most ids that clients make need no search.
func TestIDsOfOthersAreRarelyTimed(t *testing.T) {
	const ids = 20_000
	timed := 0
	for range ids {
		if _, is := TimeOfID(uuid.Must(uuid.NewV7()).String()); is {
			timed++
		}
	}
	if timed > ids/100 {
		t.Errorf("%d of %d", timed, ids)
	}
}

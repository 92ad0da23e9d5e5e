package federation

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// TestSeen: an id that was added is known while it is among the last, and never less than
// suspected.
func TestSeen(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		room := rapid.IntRange(2, 64).Draw(t, "room")
		s := newSeen(room, nil)
		order := map[string]int{} // when it was added last
		n := 0
		for range rapid.IntRange(1, 400).Draw(t, "steps") {
			id := fmt.Sprint(rapid.IntRange(0, 200).Draw(t, "id"))
			add := rapid.Bool().Draw(t, "add")
			known, maybe := s.look(id, add)
			at, had := order[id]
			if had && !known && !maybe {
				t.Fatalf("%s is forgotten", id)
			}
			if had && n-at < room/2 && !known {
				t.Fatalf("%s is not known %d ids later", id, n-at)
			}
			if !had && known {
				t.Fatalf("%s is new", id)
			}
			if add && !known {
				order[id] = n
				n++
			}
		}
	})
}

// TestFiltersSuspectFew that were not added, and all that were.
func TestFiltersSuspectFew(t *testing.T) {
	var b filters
	random := rand.New(rand.NewPCG(1, 2))
	draw := func() fingerprint { return fingerprint{random.Uint64(), random.Uint64()} }
	for range 2_000_000 {
		f := draw()
		if b.add(f); !b.has(f) {
			t.Fatal("one that was added is not suspected")
		}
	}
	if len(b) != 3 {
		t.Errorf("%d filters, want 3", len(b))
	}
	wrong := 0
	for range 100_000 {
		if b.has(draw()) {
			wrong++
		}
	}
	if wrong > 2000 {
		t.Errorf("%d of 100,000 were suspected", wrong)
	}
}

package topics

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-bus/sluice/internal/clock"
)

// A hole has stood since the head was first seen above it. What was given out later has not.
func TestHoles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h Holes
		stood := func(first, last, head, want uint64) {
			t.Helper()
			if got := h.Stood(clock.System(), first, last, head, 5*time.Second); got != want {
				t.Errorf("of %d to %d, under %d, it has stood up to %d; want %d", first, last, head, got, want)
			}
		}
		stood(3, 9, 9, 0)
		time.Sleep(4 * time.Second)
		stood(3, 12, 12, 0)
		time.Sleep(time.Second)
		stood(3, 12, 12, 9)
		stood(10, 12, 12, 0)
		time.Sleep(5 * time.Second)
		stood(10, 12, 20, 12)
	})
}

// The newest event is known up to where readers have seen all documents.
func TestNewest(t *testing.T) {
	var n Newest
	check := func(end, want uint64, known bool) {
		t.Helper()
		if got, is := n.UpTo(end); is != known || is && got != want {
			t.Errorf("up to %d it is %d, %v; want %d, %v", end, got, is, want, known)
		}
	}
	check(5, 0, false)
	n.Saw(1, 5, 3)
	check(5, 3, true)
	n.Saw(7, 9, 8) // 6 was not seen
	check(9, 0, false)
	n.Saw(6, 9, 0)
	check(9, 3, true)
}

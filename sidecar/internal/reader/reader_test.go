package reader

import (
	"testing"
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/tail"
)

// A read that does not find an announced event is repeated soon at first; a failed read is repeated
// later.
func TestPlace(t *testing.T) {
	tails := tail.New(tail.DefaultBounds())
	w := tails.Watch("t", func() {})
	defer w.Close()
	now := time.Unix(1_000_000, 0)
	p := &Place{Index: 1, Next: 3, Head: 2}
	if p.Readable(w, now) {
		t.Error("there is something to read")
	}
	tails.Heard("t", 1, 5)
	if !p.Readable(w, now) || p.Head != 5 {
		t.Errorf("there is nothing to read up to %d", p.Head)
	}
	for _, want := range []time.Duration{5, 10, 20, 40, 80, 160, 250, 250} {
		if p.Empty(3, now) {
			t.Error("that is a way forward")
		}
		if got := p.RetryAt(now).Sub(now); got != want*time.Millisecond {
			t.Errorf("it is read again after %v, want %v ms", got, int(want))
		}
		if p.Readable(w, now) {
			t.Error("it is read at once")
		}
		now = p.RetryAt(now)
		if !p.Readable(w, now) || !p.RetryAt(now).IsZero() {
			t.Error("it is not read when that is due")
		}
	}
	p.Passed(3)
	if p.Next != 4 || p.Vain() != 0 {
		t.Errorf("it is at %d after %d reads in vain", p.Next, p.Vain())
	}
	if !p.Empty(6, now) {
		t.Error("that is no way forward")
	}
	p.Failed(now)
	if got := p.RetryAt(now).Sub(now); got != readAgain {
		t.Errorf("what failed is read again after %v", got)
	}
}

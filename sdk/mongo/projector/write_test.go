package projector

import (
	"errors"
	"testing"
)

// TestOutcome: what a document causes counts as an attempt or ends the event; what a server that shuts down or steps
// down causes does neither.
func TestOutcome(t *testing.T) {
	for _, c := range []struct {
		code          int
		waits, letter bool
	}{
		{code: 91, waits: true}, {code: 189, waits: true}, {code: 10107, waits: true}, {code: 11600, waits: true}, {code: 11602, waits: true},
		{code: 121, letter: true}, {code: 10334, letter: true},
		{code: 2}, {code: 11000},
	} {
		err := outcome(c.code, "it says why")
		waits, letter := errors.As(err, new(*unavailable)), errors.As(err, new(*refusal))
		if err == nil || waits != c.waits || letter != c.letter {
			t.Errorf("code %d: %v; waits %v, want %v; is a dead letter %v, want %v", c.code, err, waits, c.waits, letter, c.letter)
		}
	}
}

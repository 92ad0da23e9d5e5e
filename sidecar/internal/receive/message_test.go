package receive_test

import (
	"bytes"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"

	"github.com/sluice-bus/sluice/internal/budget"
	"github.com/sluice-bus/sluice/sidecar/internal/receive"
)

// TestMessage: a message in any pieces is read completely, takes its memory from the budget meanwhile,
// and gives all of it back.
func TestMessage(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := bytes.Repeat([]byte("0123456789"), rapid.IntRange(0, 10_000).Draw(t, "tens"))
		have := rapid.IntRange(1, 300_000).Draw(t, "capacity")
		most := int64(rapid.IntRange(0, 400_000).Draw(t, "budget"))
		memory := budget.New(budget.Bounds{Memory: most}).Of("")
		in := receive.Message{B: make([]byte, 0, have), Budget: memory, AtMost: len(text)}
		err := in.ReadAll(iotest.HalfReader(bytes.NewReader(text)))
		_, noMemory := err.(*receive.NoMemory)
		switch {
		case noMemory && len(in.B) >= receive.FreeBytes && bytes.HasPrefix(text, in.B):
		case noMemory:
			t.Fatalf("refused with %d bytes", len(in.B))
		case err != nil || !bytes.Equal(in.B, text):
			t.Fatalf("read %d bytes of %d: %v", len(in.B), len(text), err)
		case len(text) > receive.FreeBytes && memory.Used() < int64(len(text)):
			t.Fatalf("%d bytes are taken for %d", memory.Used(), len(text))
		}
		if memory.Used() > most {
			t.Fatalf("%d bytes of %d are taken", memory.Used(), most)
		}
		if in.Free(); memory.Used() != 0 {
			t.Fatalf("%d bytes are left taken", memory.Used())
		}
	})
}

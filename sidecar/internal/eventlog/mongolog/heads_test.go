package mongolog

import (
	"slices"
	"testing"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/eventlogtest"
)

// stored appends events that must be new and returns their seqs.
func stored(t *testing.T, l *Log, topic string, batch ...*eventlog.Record) []uint64 {
	t.Helper()
	var seqs []uint64
	for i, o := range l.Append(t.Context(), topic, 0, batch) {
		if o.Err != nil || o.Duplicate {
			t.Fatalf("event %q: %+v", batch[i].ID, o)
		}
		seqs = append(seqs, o.Seq)
	}
	return seqs
}

func wantSeqs(t *testing.T, got []uint64, want ...uint64) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("seqs %v; want %v", got, want)
	}
}

func ensure(t testing.TB, l *Log, topic string, partitions int) {
	t.Helper()
	if _, err := l.EnsureTopic(t.Context(), topic, partitions); err != nil {
		t.Fatal(err)
	}
}

// After somebody has deleted a topic's head, new seqs are above those of stored events.
func TestALogWithoutAHeadGoesOn(t *testing.T) {
	l, again := opened(t, Options{})
	insertEvents(t, l, eventlog.Hint{Topic: "t", Partition: 0, Head: 7})
	wantSeqs(t, stored(t, again(), "t", eventlogtest.Event("a")), 8)
}

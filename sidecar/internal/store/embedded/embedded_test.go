package embedded_test

import (
	"log/slog"
	"testing"

	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/store/embedded"
	"github.com/sluice-bus/sluice/sidecar/internal/tail"
	"github.com/sluice-bus/sluice/test/require"
)

// Readers do not get an erased event from memory.
func TestErasedIsForgotten(t *testing.T) {
	tails := tail.New(tail.DefaultBounds())
	s, err := embedded.Open(t.Context(), embedded.Config{
		Dir: t.TempDir(), InMemory: true, NodeID: "node", Policies: policy.NewCurrent(policy.NewResolvedSnapshot(nil)),
		Tails: tails, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	defer s.Close()
	watch := tails.Watch("t", func() {})
	defer watch.Close()
	tails.Appended("t", 0, []*eventlog.Record{{Event: wire.Event{Topic: "t", ID: "a", Seq: 1}}})
	inMemory := func() int { return len(watch.Read(0, 1, eventlog.Bounds{Events: 10})) }
	before := inMemory()
	s.Erased("t")
	if after := inMemory(); before != 1 || after != 0 {
		t.Errorf("%d events in memory before, %d after; want 1 and 0", before, after)
	}
}

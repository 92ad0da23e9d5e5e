package sidecar

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/sluice-bus/sluice/internal/program"
	"github.com/sluice-bus/sluice/test/require"
)

// TestDeletedTopicsAreForgotten, also those that share a label with others.
func TestDeletedTopicsAreForgotten(t *testing.T) {
	var cfg Config
	program.Defaults(&cfg)
	cfg.Listen, cfg.ReplayListen, cfg.OpsListen = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	cfg.DataDir, cfg.InMemory, cfg.NodeID, cfg.MaxTopicLabels, cfg.Logger = t.TempDir(), true, "node", 1, slog.New(slog.DiscardHandler)
	s, err := New(t.Context(), cfg)
	require.NoError(t, err)
	defer s.close()
	for i := range 4 {
		for range 2 { // a topic that is found is remembered
			_, err := s.topics.EnsureTopic(t.Context(), fmt.Sprint(i), 1)
			require.NoError(t, err)
		}
	}
	for i := range 3 {
		require.NoError(t, s.store.Log().DeleteTopic(t.Context(), fmt.Sprint(i)))
	}
	require.NoError(t, s.forgetGone(t.Context()))
	if got := s.topics.Known(); len(got) != 1 || got[0] != "3" {
		t.Errorf("%q are remembered; want 3", got)
	}
}

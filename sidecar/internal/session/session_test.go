package session

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/sidecar/internal/audit"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/test/require"
)

// A line of the access log has the code that the client is answered with.
func TestNoteHasTheCodeOfTheAnswer(t *testing.T) {
	var lines bytes.Buffer
	log, err := audit.Open([]string{"*"}, "", slog.New(slog.NewTextHandler(&lines, nil)))
	require.NoError(t, err)
	s := &Session{of: &Sessions{Audit: log}}
	s.Note(s.Identity(), audit.Subscribe, "t", "g", fmt.Errorf("no answer: %w", eventlog.ErrUnavailable))
	s.Note(s.Identity(), audit.Subscribe, "t", "g", nil)
	if got := lines.String(); strings.Count(got, "code=") != 1 || !strings.Contains(got, "code=store_unavailable") {
		t.Error(got)
	}
}

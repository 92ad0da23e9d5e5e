// Package coretest makes stores for the tests of the log's parts.
package coretest

import (
	"log/slog"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/core"
)

// Timeout leaves a slow test server its time.
const Timeout = 45 * time.Second

// Open connects to a store, and closes it with the test. What the config leaves out is as the log
// has it, without messages.
func Open(t testing.TB, c core.Config) *core.Store {
	t.Helper()
	if c.Timeout == 0 {
		c.Timeout = Timeout
	}
	if c.SeqTaken == 0 {
		c.SeqTaken = 24 * time.Hour
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	s, err := core.Connect(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(func() {}); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

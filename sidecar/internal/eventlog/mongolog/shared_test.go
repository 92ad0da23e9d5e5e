package mongolog

import (
	"log/slog"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/test/mongotest"
)

// patience is how long a test waits for an event that comes soon, and an operation for a slow test
// server.
const patience = 20 * time.Second

// sharedStore makes an empty store on the shared server, and returns a function that opens logs on
// it. Each log is closed with the test.
func sharedStore(t *testing.T) func() *Log {
	t.Helper()
	s := mongotest.Shared(t)
	url := s.URI(s.NewDatabase(t))
	return func() *Log {
		t.Helper()
		return openRunning(t, Options{URL: url})
	}
}

// openRunning opens a log on a running server.
func openRunning(t *testing.T, o Options) *Log {
	t.Helper()
	o.Logger = slog.New(slog.DiscardHandler)
	if o.Timeout == 0 {
		o.Timeout = patience
	}
	l, err := Open(o)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	if err := l.Ping(t.Context()); err != nil {
		t.Fatalf("Ping: %v", err)
	}
	return l
}

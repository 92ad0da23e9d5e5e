package mongolog

import (
	"log/slog"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/eventlogtest"
	"github.com/sluice-bus/sluice/test/mongotest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	// The suite's events are years old, and are deleted as soon as they may be.
	server := mongotest.Shared(t)
	eventlogtest.Run(t, func(t *testing.T) eventlogtest.Store {
		o := Options{URL: server.URI(server.NewDatabase(t)), Timeout: testTimeout, SeqTaken: time.Nanosecond}
		return reopening(func() *Log { return openRunning(t, o) })
	})
}

// reopening is a store of logs that open opens, for as long as a whole group of the suite runs.
func reopening(open func() *Log) eventlogtest.Store {
	l := open()
	return eventlogtest.Store{
		Log: l,
		Reopen: func(t *testing.T) eventlog.Log {
			t.Helper()
			if err := l.Close(); err != nil {
				t.Fatalf("Close: %v", err)
			}
			l = open()
			return l
		},
	}
}

// testTimeout leaves a slow test server its time.
const testTimeout = 45 * time.Second

// mustOpen opens a log that is closed at the end of the test.
func mustOpen(t testing.TB, o Options) *Log {
	t.Helper()
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	l, err := Open(o)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

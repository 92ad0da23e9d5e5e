package pebblelog

import (
	"log/slog"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/eventlogtest"
)

func TestConformanceOnDisk(t *testing.T) {
	eventlogtest.Run(t, func(t *testing.T) eventlogtest.Store {
		return store(t, Options{Dir: t.TempDir()})
	})
}

func TestConformanceInMemory(t *testing.T) {
	eventlogtest.Run(t, func(t *testing.T) eventlogtest.Store {
		return store(t, Options{Dir: "data", FS: vfs.NewMem()})
	})
}

// store opens a log for the suite.
func store(t *testing.T, o Options) eventlogtest.Store {
	t.Helper()
	l := mustOpen(t, o)
	t.Cleanup(func() { l.Close() })
	return eventlogtest.Store{
		Log: l,
		Reopen: func(t *testing.T) eventlog.Log {
			t.Helper()
			if err := l.Close(); err != nil {
				t.Fatalf("Close: %v", err)
			}
			l = mustOpen(t, o)
			return l
		},
	}
}

func mustOpen(t testing.TB, o Options) *Log {
	t.Helper()
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	l, err := Open(o)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	return l
}

package mongolog

import (
	"flag"
	"log/slog"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/internal/mongotest"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/eventlogtest"
)

func TestConformance(t *testing.T) {
	server := mongotest.Shared(t)
	if !server.Real() && !flagGiven("rapid.checks") {
		// Every query of FerretDB reads all that earlier checks left.
		if err := flag.Set("rapid.checks", "20"); err != nil {
			t.Fatal(err)
		}
		defer flag.Set("rapid.checks", "100")
	}
	eventlogtest.Run(t, func(t *testing.T) eventlogtest.Store {
		// The suite's events are years old, and are deleted as soon as they
		// may be: heads are always read, and looked at again.
		o := Options{URL: server.URI(server.NewDatabase(t)), StaleHead: time.Nanosecond, Timeout: testTimeout}
		return reopening(func() *Log { return mustOpen(t, o) })
	})
}

// The groups about appending and reading, with the queries that are for MongoDB
// and with heads that are remembered.
func TestConformanceWithIndexes(t *testing.T) {
	server := mongotest.Shared(t)
	eventlogtest.Run(t, func(t *testing.T) eventlogtest.Store {
		o := Options{URL: server.URI(server.NewDatabase(t)), Timeout: testTimeout}
		return reopening(func() *Log { return openAdapted(t, o, likeMongoDB) })
	}, "Append", "Read", "Scan", "Seek", "Find", "History")
}

// reopening is a store of logs that open opens, for as long as a whole group of
// the suite runs.
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

func flagGiven(name string) (given bool) {
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == name })
	return given
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

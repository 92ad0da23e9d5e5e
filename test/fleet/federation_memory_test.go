package fleet

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/admin"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

// 1,000,000 events take a minute, with the same memory.
var manyEvents = flag.Int("events", 150_000, "how many events a large export of a fleet has")

// TestMemoryOfALargeExport exports many events of three sidecars through each of them, one after
// the other, and looks at the peak memory of every process.
func TestMemoryOfALargeExport(t *testing.T) {
	const most = 150 << 20
	e := newSockets(t, 3)
	for i, s := range e.sites {
		flood(t, s.process(), i, *manyEvents/3)
	}
	for _, s := range e.sites {
		if err := s.process().ResetPeak(); err != nil {
			t.Logf("what is measured includes the publishing: %v", err)
		}
	}
	for i := range e.sites {
		began := time.Now()
		if n := e.count(t, i); n != *manyEvents/3*3 {
			t.Errorf("%s: %d events, want %d", e.sites[i].name, n, *manyEvents/3*3)
		}
		t.Logf("%s: %.0f events/s", e.sites[i].name, float64(*manyEvents)/time.Since(began).Seconds())
	}
	for _, s := range e.sites {
		_, peak, err := s.process().Memory()
		require.NoError(t, err)
		if t.Logf("%s: %d MiB at its peak", s.name, peak>>20); peak > most {
			t.Errorf("%s: %d MiB at its peak, want at most %d", s.name, peak>>20, most>>20)
		}
	}
}

// count exports the fleet through a site, and checks the order.
func (e *edge) count(t *testing.T, site int) (n int) {
	client := &admin.HTTP{ReplayURL: e.sockets[site]}
	defer client.CloseIdle()
	var last string
	for line, err := range client.ExportLines(t.Context(), sluice.ExportQuery{Topic: federationTopic, Scope: "fleet"}) {
		if err != nil {
			t.Errorf("%s: %v", e.sites[site].name, err)
			return n
		}
		event, err := codec.ParseEvent(line)
		if err != nil {
			t.Error(err)
			return n
		}
		if at := fmt.Sprintf("%d %s", event.TS, event.ID); at <= last {
			t.Errorf("%s after %s", at, last)
		} else {
			last = at
		}
		n++
	}
	return n
}

// newSockets starts sidecars that know each other by --peers over unix sockets.
func newSockets(t *testing.T, n int) *edge {
	t.Helper()
	dir, err := os.MkdirTemp("", "edge") // short: a socket's path has 108 bytes at most
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	file := filepath.Join(dir, "policies.yaml")
	require.NoError(t, os.WriteFile(file, []byte(policies), 0o600))
	e := &edge{}
	for i := range n {
		e.sockets = append(e.sockets, "unix:"+filepath.Join(dir, fmt.Sprintf("%d.sock", i)))
	}
	for i := range n {
		s := &site{name: fmt.Sprintf("edge-%d", i), dir: filepath.Join(dir, fmt.Sprint(i))}
		// Each is told of all, itself included.
		s.args = []string{"--node-id", s.name, "--policies", file, "--replay-listen", e.sockets[i], "--peers", strings.Join(e.sockets, ",")}
		s.start(t)
		e.sites = append(e.sites, s)
	}
	return e
}

// flood publishes events with ids of a site's own.
func flood(t *testing.T, p *testkit.Sidecar, site, n int) {
	t.Helper()
	c, err := sluice.DialConn(t.Context(), p.URL(), nil)
	require.NoError(t, err)
	defer c.Close()
	ctx, fail := context.WithCancelCause(t.Context())
	defer fail(nil)
	payload := []byte(`"` + strings.Repeat("x", 200) + `"`)
	for from := 0; from < n; from += 500 {
		events := make([]wire.Event, min(500, n-from))
		for i := range events {
			events[i] = wire.Event{ID: fmt.Sprintf("%d-%09d", site, from+i), Payload: payload}
		}
		err := c.PublishBatchAsync(ctx, federationTopic, events, func(results []wire.ResultItem, err error) {
			for _, r := range results {
				if err == nil && r.Err != nil {
					err = r.Err
				}
			}
			if err != nil {
				fail(err)
			}
		})
		require.NoError(t, err)
	}
	if err := c.Flush(ctx); err != nil {
		t.Fatal(context.Cause(ctx), err)
	}
	require.NoError(t, context.Cause(ctx))
}

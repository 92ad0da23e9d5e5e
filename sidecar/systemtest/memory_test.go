package systemtest

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/sluice-bus/sluice/internal/sidecartest"
	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// TestReaderThatNeverReads publishes 200,000 events into a topic whose only
// reader never reads its socket: the sidecar must not keep them in memory for
// it.
func TestReaderThatNeverReads(t *testing.T) {
	const most = 200 << 20
	for _, c := range []struct{ name, subscribe string }{
		{"in a group", `{"op":"SUBSCRIBE","topic":"flood","group":"stuck","opts":{"maxInflight":100000}}`},
		{"without a group", `{"op":"SUBSCRIBE","topic":"flood"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := sidecartest.Start(t, t.TempDir(), "--policies", unlimited(t))
			idle := resident(t, p)
			stuck, _, err := websocket.Dial(t.Context(), "ws://"+p.Listen+"/ws", nil)
			if err != nil {
				t.Fatal(err)
			}
			defer stuck.CloseNow()
			if err := stuck.Write(t.Context(), websocket.MessageText, []byte(c.subscribe)); err != nil {
				t.Fatal(err)
			}
			flood(t, p, 200_000, 300)
			if got := resident(t, p); got > most {
				t.Errorf("%d MiB resident, want at most %d MiB", got>>20, most>>20)
			} else {
				t.Logf("%d MiB resident, %d MiB before", got>>20, idle>>20)
			}
		})
	}
}

// unlimited writes a policies file that limits nothing.
func unlimited(t *testing.T) string {
	t.Helper()
	return write(t, filepath.Join(t.TempDir(), "policies.yaml"),
		`[{name: "*", connection: {rate: 0}, publish: {rate: 0}, delivery: {max_inflight: 100000}}]`)
}

// flood publishes n events in batches and checks every answer.
func flood(t *testing.T, p *sidecartest.Process, n, size int) {
	t.Helper()
	const batch = 500
	c, err := sluice.DialConn(t.Context(), p.URL(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, fail := context.WithCancelCause(t.Context())
	defer fail(nil)
	payload := []byte(`"` + strings.Repeat("x", size-2) + `"`)
	events := make([]wire.Event, batch)
	for i := range events {
		events[i].Payload = payload
	}
	for range n / batch {
		err := c.PublishBatchAsync(ctx, "flood", events, func(results []wire.ResultItem, err error) {
			if err != nil {
				fail(err)
			}
			for _, r := range results {
				if r.Err != nil {
					fail(r.Err)
				}
			}
		})
		if err != nil {
			t.Fatal(context.Cause(ctx), err)
		}
	}
	if err := c.Flush(ctx); err != nil {
		t.Fatal(context.Cause(ctx), err)
	}
}

// resident is the process's memory in bytes.
func resident(t *testing.T, p *sidecartest.Process) int {
	t.Helper()
	now, _, err := p.Memory()
	if err != nil {
		t.Skipf("this system does not tell a process's memory: %v", err)
	}
	return now
}

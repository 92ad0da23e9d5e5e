package admit_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/audit"
	"github.com/sluice-bus/sluice/test/require"
)

// TestSourcesAreNoted: what an outbox or a capture publishes has a line in the access log, and what is refused, too.
func TestSourcesAreNoted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines bytes.Buffer
		log, err := audit.Open([]string{"t"}, "", slog.New(slog.NewTextHandler(&lines, nil)))
		require.NoError(t, err)
		f := open(t, `[{"name":"t","publish":{"rate":1,"burst":1}}]`)
		source := f.NewSource(nil, log.Source("outbox o"))
		for range 2 {
			item := wire.PublishItem{Event: wire.Event{Topic: "t", Payload: []byte("1")}}
			_ = source.Publish(t.Context(), []wire.PublishItem{item}, func([]wire.ResultItem) {})
			synctest.Wait()
		}
		for i, line := range strings.Split(strings.TrimSpace(lines.String()), "\n") {
			want := []string{`identity="" from="outbox o" events=1 refused=0`, `identity="" from="outbox o" events=0 refused=1 code=rate_limited`}[i]
			if !strings.Contains(line, want) {
				t.Errorf("line %d is %q, want %s", i, line, want)
			}
		}
		if n := strings.Count(lines.String(), "\n"); n != 2 {
			t.Errorf("%d lines", n)
		}
	})
}

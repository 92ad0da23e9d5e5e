package fleet

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/internal/pause"
	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

// TestRetentionWaitsForTheTopicsOwnPolicy restarts a sidecar whose file has only a glob with a
// short lifetime, while the control plane is away. The control plane has a policy that keeps the
// topic for ever, so the sidecar must not sweep it meanwhile.
func TestRetentionWaitsForTheTopicsOwnPolicy(t *testing.T) {
	t.Parallel()
	p := startPlane(t)
	p.put(t, "*", unlimited)
	p.put(t, "log.*", `{"retention":{"ttl":"1ms"}}`)
	p.put(t, "log.kept", `{"retention":{"ttl":"0s"}}`)
	file := testkit.Write(t, filepath.Join(t.TempDir(), "policies.yaml"), `[{name: "log.*", retention: {ttl: 1ms}}]`)
	m := startSidecar(t, "s", "--control-plane", p.XDS(), "--policies", file, "--retention-interval", "100ms")
	publish := func(topic string) {
		t.Helper()
		require.NoError(t, m.publish(t.Context(), topic))
	}
	const events = 20
	for range events {
		publish("log.kept")
	}
	publish("log.swept")
	eventually(t, "what the glob lets expire goes", func() bool { return m.stored(t, "log.swept") == 0 })
	awaitCache(t, m, "log.kept")

	p.Kill()
	for _, cached := range []bool{true, false} {
		m.Kill()
		if !cached {
			require.NoError(t, os.Remove(filepath.Join(m.dir, "control-plane.cache")))
		}
		m.start(t)
		pause.For(t.Context(), 700*time.Millisecond) // seven sweeps
		if n := m.stored(t, "log.kept"); n != events {
			t.Fatalf("%d of %d events are left of a topic that keeps for ever (with what the control plane said on disk: %v)", n, events, cached)
		}
	}
	publish("log.swept")
	publish("log.kept")
	p.start(t)
	eventually(t, "sweeping goes on when the control plane is back", func() bool { return m.stored(t, "log.swept") == 0 })
	if n := m.stored(t, "log.kept"); n != events+1 {
		t.Errorf("%d of %d events are left of a topic that keeps for ever", n, events+1)
	}
}

// stored is how many events a topic has.
func (m *member) stored(t *testing.T, topic string) int {
	t.Helper()
	page, err := m.api.Replay(t.Context(), sluice.ReplayQuery{Topic: topic})
	require.NoError(t, err)
	return len(page.Events)
}

package controlplane

import (
	"net"
	"net/http"
	"testing"

	"github.com/sluice-bus/sluice/internal/listen"
	"github.com/sluice-bus/sluice/test/require"
)

// TestIdleConnectionsShutOutNobody: whatever connections somebody without a token opens, health
// checks and metrics are answered, and sidecars join and stay.
func TestIdleConnectionsShutOutNobody(t *testing.T) {
	const token, places = "any-token-0123456789", 16
	c, conn := serve(t, map[string]string{token: ""}, func(c *ControlPlane) {
		for _, ln := range []**listen.Evicting{&c.xdsListener, &c.httpListener} {
			*ln = listen.NewEvicting((*ln).Listener, places, places/reserveShare)
		}
		c.gate = newGate(c.xdsListener)
	})
	require.NoError(t, join(t, conn, token, "before", "i", nil))
	xds, web := c.Addresses()
	for _, addr := range []string{xds, web} {
		for range 400 {
			idle, err := net.Dial("tcp", addr)
			require.NoError(t, err)
			t.Cleanup(func() { idle.Close() })
		}
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for path, status := range map[string]int{"/healthz": 200, "/readyz": 200, "/metrics": 403} { // role sidecar may not read
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+web+path, nil)
		require.NoError(t, err)
		r.Header.Set("Authorization", "Bearer "+token)
		resp, err := client.Do(r)
		require.NoError(t, err)
		resp.Body.Close()
		if resp.StatusCode != status {
			t.Errorf("%s: %s", path, resp.Status)
		}
	}
	require.NoError(t, join(t, conn, token, "another", "i", nil)) // over the connection of the first
	other := dialXDS(t, c)
	require.NoError(t, join(t, other, token, "after", "i", nil))
	if n := c.registry.Known(); n != 3 {
		t.Errorf("%d sidecars are connected; want 3", n)
	}
	if n := c.xdsListener.Evicted(); n < 400-places {
		t.Errorf("%d connections were closed for others", n)
	}
}

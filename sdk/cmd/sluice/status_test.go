package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/test/sluicetest"
)

// TestStatusOfAStoreThatIsAway: since when, what that means and the last error.
func TestStatusOfAStoreThatIsAway(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"version":"v1","node_id":"a","store":{"url":"mongodb://db1","state":"away","since":%d,`+
			`"detail":"the store is away; publishes are spooled","error":"connection refused"}}`, time.Now().Add(-time.Hour).UnixMilli())
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	got := run(t, &sluicetest.Sidecar{}, "", "status", "--ops-url", server.URL)
	const want = "mongodb://db1 the store is away; publishes are spooled, since 1h ago: connection refused"
	if text := strings.Join(strings.Fields(got.stdout), " "); got.status != 0 || !strings.Contains(text, want) {
		t.Errorf("status %d, %s%s, want %q", got.status, got.stdout, got.stderr, want)
	}
}

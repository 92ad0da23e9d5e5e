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

// TestGroupsOfTheWholeStore: members of all sidecars are shown, and that some could not say theirs, which makes it a part.
func TestGroupsOfTheWholeStore(t *testing.T) {
	info := fmt.Sprintf(`{"topic":"t","group":"g","lag":3,"inflight":2,"partitions":[],`+
		`"members":[{"id":"a/1","node_id":"a","address":"10.0.0.7:999",`+
		`"since":%d,"inflight":2,"max_inflight":5,"oldest_unacked_ms":1500,"paused":false,"blocked_by":"rate"}],"missing":["b"]}`,
		time.Now().Add(-time.Hour).UnixMilli())
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/topics/t/groups", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"groups":["g"]}`) })
	mux.HandleFunc("GET /v1/topics/t/groups/g", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, info) })
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	for command, shown := range map[string]string{
		"groups list t":                 "g 3 2 1 or more rate",
		"groups members t g":            "a/1 a 10.0.0.7:999 1h ago 2 of 5 1.5s rate not known: members at b, which did not say within 10 s",
		"groups show t g -o json":       info,
		"groups list t -o yaml":         "missing: - b",
		"groups members t g -o wide":    "as the sidecar at " + server.URL + " says",
		"groups show t g --timeout 10s": "not known: members at b",
	} {
		got := run(t, &sluicetest.Sidecar{}, "", append(strings.Fields(command), "--url", server.URL)...)
		got.wantFailure(t, 4, "members at b are not known")
		if text := strings.Join(strings.Fields(got.stdout), " "); !strings.Contains(text, shown) {
			t.Errorf("sluice %s: %s, want %q", command, text, shown)
		}
	}
}

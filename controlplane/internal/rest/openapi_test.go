package rest

import (
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/test/openapitest"
	"github.com/sluice-bus/sluice/test/testkit"
)

// TestRandomRequests: no request makes the API fail, or answer with what its description does not have; and bodies have the members
// that are described.
func TestRandomRequests(t *testing.T) { testkit.Rounds(t, randomRequests) }

func randomRequests(t *testing.T, seed uint64) {
	a := newAPI(t)
	r := openapitest.Random{
		Description: openapitest.Of(a),
		Words: []string{
			"", "a", "a", "orders.*", "*", "*", "30s", "none", "header:x", "w:1", "gone", "1", "..", "é", "{}", "a b",
			"unknown", "limit", "dry_runs", `"1"`,
		},
	}
	seen := r.Try(t, a, 10_000, seed)
	for route, statuses := range map[string][]int{
		"PUT /v1/policies/{name}": {201, 422}, "DELETE /v1/policies/{name}": {204}, "POST /v1/apply": {200}, "GET /v1/topics": {200, 400},
	} {
		for _, status := range statuses {
			if !seen[route][status] {
				t.Errorf("no request led %s to %d: %v", route, status, seen[route])
			}
		}
	}
	if objects := r.CheckMembers(t, a, nil); objects < 10 {
		t.Errorf("asked about the members of only %d objects", objects)
	}
}

func TestAbout(t *testing.T) {
	a := newAPI(t, func(c *Config) {
		c.Access = tokens{}
		c.About = About{Program: "p", Version: "v", NodeID: "n", Listeners: map[string]string{"http": "h:1"}}
	})
	want(t, a.send("GET", "/", "", "Accept", "application/json"), 200, `{"program":"p","version":"v"}`)
	known := a.send("GET", "/", "", "Accept", "application/json", "Authorization", "Bearer viewer").Body.String()
	for _, part := range []string{
		`"node_id":"n","listeners":{"http":"h:1"},"routes":[`, `"PUT /v1/policies/{name}"`, `"GET /v1/openapi.json"`,
	} {
		if !strings.Contains(known, part) {
			t.Errorf("%s has no %s", known, part)
		}
	}
	for _, accept := range []string{"", "*/*", "text/html,application/xhtml+xml,application/json;q=0.9,*/*;q=0.8"} {
		if got := a.send("GET", "/", "", "Accept", accept).Body.String(); got != "console /" {
			t.Errorf("Accept %q: %s", accept, got)
		}
	}
}

package rest

import (
	"context"
	"testing"

	"github.com/sluice-bus/sluice/controlplane/internal/catalog"
	"github.com/sluice-bus/sluice/controlplane/internal/store/boltstore"
	"github.com/sluice-bus/sluice/test/require"
)

// Changes are there after a restart, history and audit log included.
func TestRestart(t *testing.T) {
	dir := t.TempDir()
	var before []string
	paths := []string{"/v1/policies", "/v1/policies/*", "/v1/policies/gone/history", "/v1/audit"}
	for start := range 2 {
		s, err := boltstore.Open(dir)
		require.NoError(t, err)
		c, err := catalog.Open(context.Background(), catalog.Config{Store: s})
		require.NoError(t, err)
		a := newAPI(t, func(cfg *Config) { cfg.Catalog = c })
		if start == 0 {
			a.send("PUT", "/v1/policies/*", `{"publish":{"rate":0.1}}`)
			a.send("POST", "/v1/apply", `{"policies":[{"name":"gone","schema":{"json_schema":{"a":1e400}}},{"name":"b"}]}`)
			a.send("DELETE", "/v1/policies/gone", "")
		}
		for i, path := range paths {
			w := a.send("GET", path, "")
			switch {
			case w.Code != 200:
				t.Errorf("%s: %d %s", path, w.Code, w.Body)
			case start == 0:
				before = append(before, w.Body.String())
			case w.Body.String() != before[i]:
				t.Errorf("%s was %s, and is %s", path, before[i], w.Body)
			}
		}
		require.NoError(t, s.Close())
	}
}

package controlplane

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"github.com/sluice-bus/sluice/test/browsertest"
	"github.com/sluice-bus/sluice/test/faultproxy"
	"github.com/sluice-bus/sluice/test/mongotest"
	"github.com/sluice-bus/sluice/test/testkit"
)

// TestConsoleWorkbench uses the pages of groups, dead letters, scheduled events, sidecars, usage and the audit log, as somebody who
// may do everything and as a viewer.
func TestConsoleWorkbench(t *testing.T) {
	t.Parallel()
	control := testkit.StartControlPlane(t)
	s := testkit.StartSidecar(t, t.TempDir(), "--control-plane", control.XDS(), "--node-id", "edge-1")
	dir := t.TempDir()
	roles := "tokens:\n" + entry("node", "role: sidecar, sidecar: '*'") + entry("the-viewer", "role: viewer") +
		entry("the-admin", "role: admin")
	guarded := testkit.StartControlPlane(t, "--auth-config", testkit.Write(t, filepath.Join(dir, "roles.yaml"), roles))
	token := testkit.Write(t, filepath.Join(dir, "token"), "node")
	auth := testkit.Write(t, filepath.Join(dir, "auth.yaml"), "tokens:\n"+entry("application", "publish: ['*'], subscribe: ['*']")+
		"control_plane: {token_file: "+token+", read: true, operate: true}")
	g := testkit.StartSidecar(t, t.TempDir(), "--control-plane", guarded.XDS(), "--node-id", "guarded-1", "--auth-config", auth)
	browsertest.Run(t, browsertest.Target{
		Script: "workbench.mjs", URL: control.URL(), Topic: topic, Shots: "workbench",
		AuthURL: guarded.URL(), ViewerToken: "the-viewer", AdminToken: "the-admin",
		Env: []string{"CONSOLE_SIDECAR_URL=" + s.URL(), "CONSOLE_GUARDED_SIDECAR_URL=" + g.URL()},
	})
}

// TestConsoleIncidents mends four incidents with the page alone: the store that goes away, a consumer that hangs on one key, dead
// letters of a bad deployment, and a noisy tenant.
func TestConsoleIncidents(t *testing.T) {
	t.Parallel()
	db := mongotest.Start(t)
	proxy := faultproxy.New(t, db.Addr())
	control := testkit.StartControlPlane(t)
	s := testkit.StartSidecar(t, t.TempDir(), "--control-plane", control.XDS(), "--node-id", "edge-1",
		"--store", db.URIVia(proxy.Addr(), db.NewDatabase(t)))
	world := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/store/down" {
			proxy.Down()
		} else {
			proxy.Up()
		}
	}))
	defer world.Close()
	browsertest.Run(t, browsertest.Target{
		Script: "incidents.mjs", URL: control.URL(), Topic: topic, Shots: "incidents",
		Env: []string{"CONSOLE_SIDECAR_URL=" + s.URL(), "CONSOLE_WORLD_URL=" + world.URL},
	})
}

package controlplane

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/test/testkit"
)

// Two control planes of one store: the one without a sidecar of a store of events passes people's requests on to the one that has it,
// with the person's own credentials.
func TestAControlPlaneAsksTheOneThatHasTheSidecar(t *testing.T) {
	t.Parallel()
	dir, url := t.TempDir(), mongoStore(t)
	roles := testkit.Write(t, filepath.Join(dir, "roles.yaml"), "tokens:\n"+entry("node", "role: sidecar, sidecar: '*'")+
		entry("the-viewer", "role: viewer")+entry("the-operator", "role: operator"))
	one := plane{testkit.StartControlPlane(t, "--store", url, "--name", "one", "--auth-config", roles)}
	two := plane{testkit.StartControlPlane(t, "--store", url, "--name", "two", "--auth-config", roles)}
	log := filepath.Join(dir, "access.log")
	token := testkit.Write(t, filepath.Join(dir, "token"), "node")
	auth := testkit.Write(t, filepath.Join(dir, "auth.yaml"), "tokens:\n"+entry("application", "subscribe: ['*']")+
		"control_plane: {token_file: "+token+", read: true, operate: true}")
	one.sidecar(t, "edge", "--auth-config", auth, "--audit-topics", "*", "--audit-file", log)
	store := one.storeOf(t, 1, as("the-viewer"))
	testkit.Eventually(t, "the other control plane can be asked, too", func() bool {
		return two.ask(t, "GET", store+"/topics", "", as("the-viewer")).Status == 200
	})
	if a := two.ask(t, "POST", store+"/topics/orders/events", `{"n":1}`, as("the-operator"), "Sluice-Id: one"); a.Status != 201 {
		t.Errorf("an operator publishes: %d %s", a.Status, a.Body)
	}
	if a := two.ask(t, "POST", store+"/topics/orders/events", `{}`, as("the-viewer")); a.Status != 403 {
		t.Errorf("a viewer publishes: %d %s", a.Status, a.Body)
	}
	a := two.ask(t, "GET", store+"/replay?topic=orders", "", as("the-operator"))
	if a.Status != 200 || !strings.Contains(string(a.Body), `"id":"one"`) {
		t.Errorf("the event is replayed: %d %s", a.Status, a.Body)
	}
	testkit.Eventually(t, "the sidecar's access log has the person", func() bool {
		text, _ := os.ReadFile(log)
		return strings.Contains(string(text), "the-operator")
	})
}

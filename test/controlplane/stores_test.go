package controlplane

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

// storeOf waits until sidecars are connected, and returns the path of their store.
func (p plane) storeOf(t testing.TB, sidecars int, headers ...string) string {
	t.Helper()
	path := ""
	testkit.Eventually(t, "the sidecars are connected, and their store can be asked", func() bool {
		connected := 0
		for _, s := range p.call(t, "GET", "/v1/sidecars", "", headers...).JSON(t).List("sidecars") {
			if s["connected"] == true && s.Text("store_id") != "" {
				connected++
				path = "/v1/stores/" + s.Text("store_id")
			}
		}
		return connected == sidecars && p.ask(t, "GET", path+"/topics", "", headers...).Status != http.StatusBadGateway
	})
	return path
}

// undescribed makes requests that a sidecar answers: the control plane does not describe its routes.
var undescribed = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

func (p plane) ask(t testing.TB, method, path, body string, headers ...string) testkit.Answer {
	t.Helper()
	return testkit.CallWith(t, undescribed, method, p.URL()+path, body, headers...)
}

// as is the header of a token, which is also the name of its entry.
func as(name string) string { return "Authorization: Bearer " + name }

func entry(name, more string) string {
	return fmt.Sprintf(" - {name: %s, sha256: %x, %s}\n", name, sha256.Sum256([]byte(name)), more)
}

// Section 10: the control plane asks a sidecar for its people, over the connection that the sidecar has, and
// the sidecar allows what its file says.
func TestPeopleAskSidecarsThroughTheControlPlane(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	roles := "tokens:\n" + entry("node", "role: sidecar, sidecar: '*'") + entry("olga", "role: operator, topics: [orders.*]")
	for _, role := range []string{"viewer", "reader", "operator", "editor", "admin"} {
		roles += entry("the-"+role, "role: "+role)
	}
	p := start(t, "--auth-config", testkit.Write(t, filepath.Join(dir, "roles.yaml"), roles))
	testkit.Write(t, filepath.Join(dir, "token"), "node")
	sidecar := func(node, section string) (app, string) {
		log := filepath.Join(t.TempDir(), "access.log")
		file := testkit.Write(t, filepath.Join(t.TempDir(), "auth.yaml"), "tokens:\n"+entry("application", "subscribe: ['*']")+
			"control_plane: {token_file: "+filepath.Join(dir, "token")+section+"}")
		return p.sidecar(t, node, "--auth-config", file, "--audit-topics", "*", "--audit-file", log), log
	}
	s, log := sidecar("open", ", read: true, operate: true")
	open := p.storeOf(t, 1, as("the-viewer"))
	a := p.ask(t, "POST", open+"/topics/orders.new/events", `{"n":1}`, as("the-operator"), "Sluice-Id: one", "Sluice-Key: k")
	if a.Status != 201 {
		t.Fatalf("an operator publishes: %d %s", a.Status, a.Body)
	}
	pull := s.URL() + "/v1/topics/orders.new/groups/g/pull"
	if a := testkit.Call(t, "POST", pull, `{"wait_ms":0}`, as("application")); a.Status != 200 {
		t.Fatalf("the group is not made: %d %s", a.Status, a.Body)
	}
	for _, c := range []struct {
		who, method, path, body string
		status                  int
	}{
		{"the-viewer", "GET", "/topics", "", 200}, {"the-viewer", "GET", "/replay?topic=orders.new", "", 403},
		{"the-viewer", "GET", "/export?topic=orders.new", "", 403}, {"the-viewer", "GET", "/topics/orders.new/latest", "", 403},
		{"the-viewer", "GET", "/topics/orders.new/events/one", "", 403}, {"the-viewer", "GET", "/topics/orders.new/dlq", "", 200},
		{"the-reader", "GET", "/replay?topic=orders.new", "", 200}, {"the-reader", "GET", "/export?topic=orders.new", "", 200},
		{"the-reader", "GET", "/topics/orders.new/events/one", "", 200}, {"the-reader", "GET", "/topics/orders.new/latest", "", 200},
		{"the-reader", "POST", "/topics/orders.new/events", "1", 403}, {"the-editor", "POST", "/topics/orders.new/events", "1", 201},
		{"the-operator", "PUT", "/topics/orders.new/groups/g/cursor", `{"from":"earliest"}`, 204},
		{"the-operator", "DELETE", "/topics/orders.new/groups/g", "", 403}, {"the-admin", "DELETE", "/topics/orders.new/groups/h", "", 404},
		{"olga", "GET", "/replay?topic=orders.new", "", 200}, {"olga", "GET", "/replay?topic=payments", "", 403},
		{"the-admin", "POST", "/topics/orders.new/groups/g/pull", "{}", 404}, {"node", "GET", "/topics", "", 403},
	} {
		if a := p.ask(t, c.method, open+c.path, c.body, as(c.who)); a.Status != c.status {
			t.Errorf("%s: %s %s: %d %.300s; want %d", c.who, c.method, c.path, a.Status, a.Body, c.status)
		}
	}
	text, err := os.ReadFile(log)
	require.NoError(t, err)
	lines := string(text)
	for _, want := range []string{`"identity":"the-operator"`, `"role":"operator"`, `"identity":"olga"`, `"from":"the control plane `} {
		if !strings.Contains(lines, want) {
			t.Errorf("the access log has no %s: %s", want, lines)
		}
	}
}

func TestASidecarMayRefuseItsControlPlane(t *testing.T) {
	t.Parallel()
	p := start(t)
	file := testkit.Write(t, filepath.Join(t.TempDir(), "auth.yaml"), "tokens: []\ncontrol_plane: {read: true}")
	p.sidecar(t, "node", "--auth-config", file)
	store := p.storeOf(t, 1)
	if a := p.ask(t, "GET", store+"/topics", ""); a.Status != 200 {
		t.Errorf("what it allows: %d %s", a.Status, a.Body)
	}
	o := refused(t, "a change", p.ask(t, "PUT", store+"/topics/a", ""), 403, "forbidden")
	if !strings.Contains(o.Text("error"), "operate: true") {
		t.Errorf("the error does not say what to do: %v", o)
	}
}

// A page of events is answered whatever happens to one of two sidecars, and after the control plane was
// restarted.
func TestAStoreAnswersWhileSidecarsDie(t *testing.T) {
	t.Parallel()
	sockets, err := os.MkdirTemp("", "") // a socket's path has to be short
	require.NoError(t, err)
	defer os.RemoveAll(sockets)
	dir := t.TempDir()
	run := func() plane {
		return start(t, "--data-dir", dir, "--xds-listen", "unix:"+filepath.Join(sockets, "xds"))
	}
	p := run()
	shared := mongoStore(t)
	first, second := p.sidecar(t, "first", "--store", shared), p.sidecar(t, "second", "--store", shared)
	store := p.storeOf(t, 2)
	for range 20 {
		if a := first.publish(t, "orders"); a.Status != 201 {
			t.Fatalf("%d %s", a.Status, a.Body)
		}
	}
	page := func() testkit.Answer { return p.ask(t, "GET", store+"/replay?topic=orders&order=desc&limit=20", "") }
	for i := range 60 {
		if i == 20 {
			first.Kill()
		}
		if a := page(); a.Status != 200 || a.JSON(t).Number(t, "count") != 20 {
			t.Fatalf("page %d: %d %.300s", i, a.Status, a.Body)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	require.NoError(t, p.Stop(ctx))
	p = run()
	testkit.Eventually(t, "the store is there again", func() bool { return page().Status == 200 })
	second.Kill()
	testkit.Eventually(t, "nobody answers for the store", func() bool {
		a := page()
		return a.Status == 502 && strings.Contains(string(a.Body), `"missing":["`+strings.TrimPrefix(store, "/v1/stores/"))
	})
}

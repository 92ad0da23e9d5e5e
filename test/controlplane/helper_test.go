package controlplane

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/test/mongotest"
	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

type object = testkit.Object

// onBoth are the tests of promises that a store of policies could break. They run on the embedded
// store, and again on a shared one as subtests of TestOnMongoDB.
var onBoth = []func(*testing.T){
	TestPutGetDelete, TestPreconditions, TestOneOfManyWins, TestHistoryAndRollback, TestDocuments, TestNames,
	TestInvalidChangesNothing, TestSeed, TestEnforcement, TestSchemasEvolve,
}

func TestOnMongoDB(t *testing.T) {
	for _, test := range onBoth {
		name := runtime.FuncForPC(reflect.ValueOf(test).Pointer()).Name()
		t.Run(name[strings.LastIndexByte(name, '.')+1:], test)
	}
}

// sharesStore tells whether the test runs on a shared store.
func sharesStore(t testing.TB) bool { return strings.HasPrefix(t.Name(), "TestOnMongoDB/") }

// store returns the flags of an empty store, the test's own.
func store(t testing.TB) []string {
	t.Helper()
	if !sharesStore(t) {
		return []string{"--data-dir", t.TempDir()}
	}
	return []string{"--store", mongoStore(t)}
}

// mongoStore is the URL of an empty database of the shared server.
func mongoStore(t testing.TB) string {
	t.Helper()
	db := mongotest.Shared(t)
	return db.URI(db.NewDatabase(t))
}

// plane is a running control plane.
type plane struct{ *testkit.ControlPlane }

// start starts a control plane on an empty store.
func start(t testing.TB, args ...string) plane {
	t.Helper()
	return plane{testkit.StartControlPlane(t, append(store(t), args...)...)}
}

// call sends a request for a path; headers are "Name: value".
func (p plane) call(t testing.TB, method, path, body string, headers ...string) testkit.Answer {
	t.Helper()
	return testkit.Call(t, method, p.URL()+path, body, headers...)
}

// get is the answer at a path.
func (p plane) get(t testing.TB, path string) object {
	t.Helper()
	a := p.call(t, "GET", path, "")
	if a.Status != 200 || a.Header.Get("Content-Type") != "application/json" {
		t.Fatalf("GET %s: %d %s %s", path, a.Status, a.Header.Get("Content-Type"), a.Body)
	}
	return a.JSON(t)
}

// put sets a policy to the document.
func (p plane) put(t testing.TB, name, document string) object {
	t.Helper()
	a := p.call(t, "PUT", "/v1/policies/"+name, document, "Content-Type: application/json")
	if a.Status != 200 && a.Status != 201 {
		t.Fatalf("PUT %s %s: %d %s", name, document, a.Status, a.Body)
	}
	return a.JSON(t)
}

// refused checks an answer against section 3: the status of the code, and the body
// {"error","code"}.
func refused(t testing.TB, what string, a testkit.Answer, status int, code string) object {
	t.Helper()
	if a.Status != status || !strings.HasPrefix(a.Header.Get("Content-Type"), "application/json") {
		t.Errorf("%s: want %d %s, got %d %s %.300s", what, status, code, a.Status, a.Header.Get("Content-Type"), a.Body)
		return nil
	}
	o := a.JSON(t)
	if o["code"] != code || o.Text("error") == "" {
		t.Errorf("%s: want %s, got %s", what, code, a.Body)
	}
	return o
}

// app is a running sidecar.
type app struct{ *testkit.Sidecar }

// sidecar starts a sidecar that has its policies from the control plane.
func (p plane) sidecar(t testing.TB, nodeID string, args ...string) app {
	t.Helper()
	return app{testkit.StartSidecar(t, t.TempDir(), append([]string{"--control-plane", p.XDS(), "--node-id", nodeID}, args...)...)}
}

// publish sends one event.
func (s app) publish(t testing.TB, topic string) testkit.Answer {
	t.Helper()
	return testkit.Call(t, "POST", s.URL()+"/v1/topics/"+topic+"/events", "1")
}

// batch sends n events in one request.
func (s app) batch(t testing.TB, topic string, n int) testkit.Answer {
	t.Helper()
	return testkit.Call(t, "POST", s.URL()+"/v1/topics/"+topic+"/events", strings.Repeat(`{"payload":1}`+"\n", n),
		"Content-Type: application/x-ndjson")
}

// burst reads a topic's burst, one of 11 to 19, from the refusal of a batch that is too large;
// "none" where it is not.
func (s app) burst(t testing.TB, topic string) string {
	t.Helper()
	a := s.batch(t, topic, 100)
	if a.Status == 200 {
		return "none"
	}
	for n := 11; n < 20; n++ {
		if o := a.JSON(t); a.Status == 400 && o["code"] == "bad_request" && strings.Contains(o.Text("error"), fmt.Sprint(n)) {
			return fmt.Sprint(n)
		}
	}
	return fmt.Sprintf("%d %s", a.Status, a.Body)
}

func (s app) status(t testing.TB) object {
	t.Helper()
	return testkit.Call(t, "GET", s.OpsURL()+"/v1/status", "").JSON(t)
}

// shortDir is a folder for unix sockets, whose paths must be short.
func shortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "sluice")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func file(t testing.TB, content string) string {
	t.Helper()
	return testkit.Write(t, filepath.Join(t.TempDir(), "file.yaml"), content)
}

package sidecar

import (
	"net/http"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-bus/sluice/test/mongotest"
	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

// A data folder that cannot be written any more, as after its file system became read-only: the sidecar says so wherever it is asked,
// takes nothing, and has everything that it took once it is started again. A limit of zero bytes a file stands for the file system.
func TestFolderThatCannotBeWritten(t *testing.T) {
	t.Run("embedded log", func(t *testing.T) {
		dir := t.TempDir()
		s := testkit.StartSidecar(t, dir, "--policies", unlimited(t))
		if status, body := exchange(t, "POST", s.URL()+"/v1/topics/t/events", "1"); status != http.StatusCreated {
			t.Fatalf("%d %s", status, body)
		}
		cannotWrite(t, s, http.StatusServiceUnavailable)
		s.Kill()
		s = testkit.StartSidecar(t, dir)
		if _, body := exchange(t, "GET", s.ReplayURL()+"/replay?topic=t", ""); !strings.Contains(body, `"count":1`) {
			t.Errorf("after a restart: %s", body)
		}
	})
	t.Run("spool", func(t *testing.T) {
		db := mongotest.Start(t)
		db.Needs(t, mongotest.Restarts)
		s := testkit.StartSidecar(t, t.TempDir(), "--policies", unlimited(t), "--store", db.URI(db.NewDatabase(t)), "--store-timeout", "1s")
		db.Stop()
		testkit.Eventually(t, "an event is spooled", func() bool {
			status, _ := exchange(t, "POST", s.URL()+"/v1/topics/t/events", "1")
			return status == http.StatusAccepted
		})
		cannotWrite(t, s, http.StatusServiceUnavailable)
	})
}

// cannotWrite lets every write to a file of the sidecar fail, and wants it to say so.
func cannotWrite(t *testing.T, s *testkit.Sidecar, refused int) {
	t.Helper()
	require.NoError(t, unix.Prlimit(s.PID(), unix.RLIMIT_FSIZE, &unix.Rlimit{}, nil))
	publish := func() (int, string) { return exchange(t, "POST", s.URL()+"/v1/topics/t/events", "2") }
	status, body := publish()
	if status != refused || !strings.Contains(body, `"code":"store_unavailable"`) {
		t.Errorf("a publish that cannot be written: %d %s", status, body)
	}
	testkit.Eventually(t, "status says that the store has failed", func() bool {
		store := testkit.Call(t, "GET", s.OpsURL()+"/v1/status", "").JSON(t)
		return store.Text("store.state") == "failed" && strings.Contains(store.Text("store.error"), "file too large") &&
			store.Number(t, "store.since") > 0
	})
	for path, wants := range map[string]struct {
		status int
		text   string
	}{
		"/readyz": {http.StatusServiceUnavailable, "restart the sidecar"}, "/healthz": {http.StatusOK, ""},
		"/metrics": {http.StatusOK, "\nsluice_store_up{} 0\n"},
	} {
		status, body := exchange(t, "GET", s.OpsURL()+path, "")
		if status != wants.status || !strings.Contains(strings.ReplaceAll(body, "store_up 0", "store_up{} 0"), wants.text) {
			t.Errorf("%s: %d %.300s", path, status, body)
		}
	}
	if status, body := publish(); status != refused || !strings.Contains(body, "restart") {
		t.Errorf("a publish afterwards does not say what to do: %d %s", status, body)
	}
	if n := strings.Count(s.Log(), "has failed"); n != 1 {
		t.Errorf("%d lines of the log say that it has failed:\n%s", n, s.Log())
	}
}

package sidecar

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

// TestBackupAndDamage takes a backup of a running sidecar, damages an event of its folder, and wants it named and
// dropped on request. The backup, restored, is another store with everything that was acknowledged before it.
func TestBackupAndDamage(t *testing.T) {
	dir := t.TempDir()
	data, restored, backup := filepath.Join(dir, "data"), filepath.Join(dir, "restored"), filepath.Join(dir, "backup.tar")
	command := func(want int, args ...string) (output string) {
		t.Helper()
		stdout, stderr, status := testkit.SidecarProgram.Launch(t, nil, args...).Ended(t)
		if status != want {
			t.Errorf("%v: exit status %d; want %d\n%s%s", args, status, want, stdout, stderr)
		}
		return stdout + stderr
	}
	s := testkit.StartSidecar(t, data)
	for n := range 3 {
		got := testkit.Call(t, "POST", s.URL()+"/v1/topics/t/events", fmt.Sprintf(`{"number":%d}`, n), "Sluice-Key: k")
		if got.Status != 201 {
			t.Fatalf("publish: %d %s", got.Status, got.Body)
		}
	}
	command(0, "backup", "--data-dir", data, "--file", backup)
	if output := command(1, "verify", "--data-dir", data); !strings.Contains(output, "in use") {
		t.Errorf("verify of a folder in use: %s", output)
	}
	s.Kill()
	command(0, "verify", "--data-dir", data)
	command(1, "backup", "--data-dir", data, "--file", filepath.Join(dir, "other.tar"))

	files, err := filepath.Glob(filepath.Join(data, "journal", "*.log"))
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(file, bytes.Replace(text, []byte(`{"number":1}`), []byte(`{"number":9}`), 1), 0o600))
	}
	if output := command(1, "verify", "--data-dir", data); !strings.Contains(output, ".log is damaged at byte") ||
		!strings.Contains(output, "1 events from seq 2 to 2") {
		t.Errorf("verify: %s", output)
	}
	wantEvents(t, data, 0) // not one is answered where one of them cannot be
	command(0, "verify", "--data-dir", data, "--drop-damaged")
	command(0, "verify", "--data-dir", data)
	wantEvents(t, data, 2)

	command(0, "restore", "--data-dir", restored, "--file", backup)
	wantEvents(t, restored, 3)
	if output := command(1, "restore", "--data-dir", restored, "--file", backup); !strings.Contains(output, "not empty") {
		t.Errorf("restore again: %s", output)
	}
}

// wantEvents starts a sidecar on a folder, and counts the events of topic t; 0: it answers 503.
func wantEvents(t *testing.T, data string, want int) {
	t.Helper()
	s := testkit.StartSidecar(t, data)
	defer s.Kill()
	got := testkit.Call(t, "GET", s.ReplayURL()+"/replay?topic=t", "")
	if want == 0 {
		if got.Status != 503 || !bytes.Contains(got.Body, []byte(".log is damaged")) {
			t.Errorf("replay: %d %s; want 503 with the file's name", got.Status, got.Body)
		}
		return
	}
	if got.Status != 200 || !bytes.Contains(got.Body, fmt.Appendf(nil, `"count":%d`, want)) {
		t.Errorf("replay: %d %s; want %d events", got.Status, got.Body, want)
	}
}

package sidecar

import (
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

// TestStoredFilesArePrivate looks at all files that a sidecar and its control plane have stored
// under the usual umask: in folders of their own, in folders that were there, and where an older
// version has let all users read.
func TestStoredFilesArePrivate(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o022))
	top := t.TempDir()
	there, control := filepath.Join(top, "sidecar"), filepath.Join(top, "new", "control")
	require.NoError(t, os.Mkdir(there, 0o755))
	for _, round := range []string{"new", "tightened"} {
		cp := testkit.StartControlPlane(t, "--data-dir", control)
		for _, dir := range []string{there, filepath.Join(top, "new", "sidecar")} {
			s := testkit.StartSidecar(t, dir, "--control-plane", cp.XDS())
			res, err := http.Post(s.URL()+"/v1/topics/orders/events", "application/json", strings.NewReader(`{"n":1}`))
			require.NoError(t, err)
			res.Body.Close()
			if res, err = http.Post(s.URL()+"/v1/topics/orders/groups/g/pull", "application/json", strings.NewReader(`{"wait_ms":0}`)); err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
			testkit.Eventually(t, "the policies are not kept", func() bool {
				_, err := os.Stat(filepath.Join(dir, "control-plane.cache"))
				return err == nil
			})
			require.NoError(t, s.Stop(t.Context()))
		}
		require.NoError(t, cp.Stop(t.Context()))
		files := 0
		err := filepath.WalkDir(top, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || path == top || path == filepath.Join(top, "new") {
				return err
			}
			info, err := entry.Info()
			if err != nil {
				return err
			}
			want := fs.FileMode(0o600)
			if info.IsDir() {
				want = 0o700
			} else {
				files++
			}
			if info.Mode().Perm() != want {
				t.Errorf("%s: %s has mode %v, want %v", round, path, info.Mode(), want)
			}
			return os.Chmod(path, info.Mode()|0o055) // for the next round
		})
		if err != nil || files < 10 {
			t.Fatalf("%s: %d files, %v", round, files, err)
		}
	}
}

package policyfile_test

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sidecar/internal/policyfile"
	"github.com/sluice-bus/sluice/test/require"
)

// follow starts following a file in a bubble and returns what is in force and what is logged.
func follow(t *testing.T, path string) (*policy.Current, *bytes.Buffer) {
	t.Helper()
	_, current, logged := followed(t, path)
	return current, logged
}

func followed(t *testing.T, path string) (*policyfile.Source, *policy.Current, *bytes.Buffer) {
	t.Helper()
	var logged bytes.Buffer
	source, current, err := policyfile.Open(path, slog.New(slog.NewTextHandler(&logged, nil)))
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- source.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return source, current, &logged
}

func write(t *testing.T, path, document string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(document), 0o600))
}

// pause lets the time of the bubble pass, in which the file is looked at.
func pause(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// takesEffect is the contract's bound.
const takesEffect = 3 * time.Second

const (
	two   = "[{name: '*', partitions: 2}]"
	three = "[{name: '*', partitions: 3}]"
)

func TestFileIsReloaded(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, path string){
		"rewritten in place, as long as before": func(t *testing.T, path string) {
			info, err := os.Stat(path)
			require.NoError(t, err)
			write(t, path, three)
			require.NoError(t, os.Chtimes(path, info.ModTime(), info.ModTime()))
		},
		"replaced": func(t *testing.T, path string) {
			write(t, path+".new", three)
			require.NoError(t, os.Rename(path+".new", path))
		},
		"removed and written again": func(t *testing.T, path string) {
			require.NoError(t, os.Remove(path))
			pause(2 * takesEffect)
			write(t, path, three)
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "policies.yaml")
			write(t, path, two)
			synctest.Test(t, func(t *testing.T) {
				current, _ := follow(t, path)
				first := current.Load()
				pause(2 * takesEffect)
				if current.Load() != first || first.Topic("a").Partitions != 2 {
					t.Fatal("an unchanged file was reloaded")
				}
				change(t, path)
				pause(takesEffect)
				if got := current.Load().Topic("a").Partitions; got != 3 {
					t.Errorf("%d partitions, want 3", got)
				}
			})
		})
	}
}

// Who asks for it need not wait for the next look.
func TestFileIsReadAgainAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policies.yaml")
	write(t, path, two)
	synctest.Test(t, func(t *testing.T) {
		source, current, _ := followed(t, path)
		write(t, path, three)
		source.Reread()
		synctest.Wait()
		if got := current.Load().Topic("a").Partitions; got != 3 {
			t.Errorf("%d partitions, want 3", got)
		}
	})
}

// Kubernetes replaces a link to a folder, which changes neither the path nor the link that is
// opened.
func TestSwappedLinkIsReloaded(t *testing.T) {
	dir := t.TempDir()
	for folder, document := range map[string]string{"v1": two, "v2": three} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, folder), 0o700))
		write(t, filepath.Join(dir, folder, "policies.yaml"), document)
	}
	link := func(to, name string) {
		require.NoError(t, os.Symlink(to, filepath.Join(dir, name)))
	}
	link("v1", "..data")
	link("..data/policies.yaml", "policies.yaml")
	synctest.Test(t, func(t *testing.T) {
		current, _ := follow(t, filepath.Join(dir, "policies.yaml"))
		link("v2", "..data_tmp")
		require.NoError(t, os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
		pause(takesEffect)
		if got := current.Load().Topic("a").Partitions; got != 3 {
			t.Errorf("%d partitions, want 3", got)
		}
	})
}

func TestInvalidChangeKeepsWhatIsInForce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policies.yaml")
	write(t, path, two)
	synctest.Test(t, func(t *testing.T) {
		current, logged := follow(t, path)
		first := current.Load()
		write(t, path, "[{name: '*', partitions: 0, colour: blue}]")
		pause(2 * takesEffect)
		if current.Load() != first {
			t.Error("an invalid file took effect")
		}
		for _, field := range []string{"policies[0].partitions", "policies[0].colour"} {
			if got := strings.Count(logged.String(), "field="+field); got != 1 {
				t.Errorf("%s was logged %d times, want once:\n%s", field, got, logged)
			}
		}
		write(t, path, three)
		pause(takesEffect)
		if got := current.Load().Topic("a").Partitions; got != 3 {
			t.Errorf("after the correction %d partitions, want 3", got)
		}
	})
}

func TestRemovedFileIsLoggedOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policies.yaml")
	write(t, path, two)
	synctest.Test(t, func(t *testing.T) {
		current, logged := follow(t, path)
		first := current.Load()
		require.NoError(t, os.Remove(path))
		pause(3 * takesEffect)
		if current.Load() != first {
			t.Error("a removed file took effect")
		}
		if got := strings.Count(logged.String(), "cannot be read"); got != 1 {
			t.Errorf("logged %d times, want once:\n%s", got, logged)
		}
	})
}

func TestHalfWrittenFileIsNotTaken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policies.yaml")
	write(t, path, "- {name: a, partitions: 2}\n- {name: b, partitions: 2}\n")
	synctest.Test(t, func(t *testing.T) {
		current, logged := follow(t, path)
		first := current.Load()
		pause(400 * time.Millisecond) // just before a look, with
		write(t, path, "- {name: a, partitions: 3}\n")
		pause(200 * time.Millisecond)
		write(t, path, "- {name: a, partitions: 3}\n- {name: b, partitions: 3}\n")
		pause(600 * time.Millisecond)
		if current.Load() != first {
			t.Error("the first half took effect by itself")
		}
		pause(takesEffect - 600*time.Millisecond)
		s := current.Load()
		if s.Topic("a").Partitions != 3 || s.Topic("b").Partitions != 3 {
			t.Errorf("the whole file did not take effect:\n%s", logged)
		}
	})
}

func TestFileHasToBeRightAtStart(t *testing.T) {
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.yaml")
	write(t, bad, "[{name: a, partitions: 0}]")
	for path, message := range map[string]string{
		bad:                             "policies[0].partitions: line 1: must be a whole number from 1 to 1024, not 0",
		filepath.Join(dir, "none.yaml"): "no such file",
		dir:                             "not a regular file",
	} {
		_, _, err := policyfile.Open(path, slog.New(slog.DiscardHandler))
		if err == nil || !strings.Contains(err.Error(), message) {
			t.Errorf("%s: got %v, want %q", path, err, message)
		}
	}
}

package testkit

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/test/require"
)

// TestWhatIsNeededCanBeInstalled holds the tools against the list that `make deps` installs.
func TestWhatIsNeededCanBeInstalled(t *testing.T) {
	list, err := os.ReadFile("../../deploy/dev/deps.sh")
	require.NoError(t, err)
	for _, tool := range Tools {
		if !strings.Contains(string(list), "\n"+string(tool)+" | ") {
			t.Errorf("deploy/dev/deps.sh does not know %s", tool)
		}
	}
}

func TestNeed(t *testing.T) {
	bin := t.TempDir()
	t.Setenv("PATH", bin)
	t.Setenv("CI", "")
	for _, test := range []struct {
		strict          string
		skipped, failed bool
	}{{"", true, false}, {"0", true, false}, {"false", true, false}, {"1", false, true}} {
		t.Setenv("STRICT", test.strict)
		if r := need(Chromium); r.skipped != test.skipped || r.failed != test.failed || !strings.Contains(r.said, "sudo make deps") {
			t.Errorf("STRICT=%s: %+v", test.strict, r)
		}
	}
	// Any name will do.
	browser := filepath.Join(bin, "google-chrome")
	require.NoError(t, os.WriteFile(browser, nil, 0o700))
	if r := need(Chromium); r.path != browser || r.skipped || r.failed {
		t.Errorf("%+v", r)
	}
}

// recorder stands for a test. It differs in what ends it: no deferred functions of it have to run.
type recorder struct {
	testing.TB
	skipped, failed bool
	said, path      string
}

func (r *recorder) Helper() {}

func (r *recorder) Skipf(format string, args ...any) {
	r.skipped, r.said = true, fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.failed, r.said = true, fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func need(tool Tool) *recorder {
	r := &recorder{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.path = Need(r, tool)
	}()
	<-done
	return r
}

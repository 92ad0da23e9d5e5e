package deploytest

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/test/require"
)

// machine is a folder that stands for all programs of a machine. It differs in that nothing of it
// does anything but write down that it was called: make and go fail in the step of $FAILS, apt-get
// in all unless $ONLINE, where it brings the program that a package is named after.
type machine struct {
	t   *testing.T
	bin string
}

const stub = `#!/bin/bash
echo "${0##*/} $*; known: ${TESTINPUT_X:-}" >>"${0%/*}/calls"
case ${0##*/} in
  id) echo "$USERID" ;;
  go | make)
    if [ "$*" = "list -e work" ]; then
      for package in a test/fleet sidecar/internal/simulation c; do echo "github.com/sluice-bus/sluice/$package"; done
    fi
    if [ "$*" = "run -trimpath ./test/testkit/testinputs" ]; then echo export TESTINPUT_X=abc; fi
    if [ "$*" = "run -trimpath ./test/testreport" ]; then cat; fi
    if [[ " $* " == *" $FAILS "* ]]; then echo "$FAILS is wrong"; exit 1; fi ;;
  apt-get)
    if [ -z "$ONLINE" ]; then echo "no network" >&2; exit 100; fi
    if [[ $* == *--assume-no* ]]; then echo "Need to get 7 MB of archives."; exit 1; fi
    if [[ $* == *-y* ]]; then ln -sf go "${0%/*}/gcc"; ln -sf go "${0%/*}/chromium-headless-shell"; fi ;;
esac
`

func newMachine(t *testing.T, without ...string) *machine {
	t.Helper()
	m := &machine{t, t.TempDir()}
	for _, name := range []string{"bash", "cat", "cut", "dirname", "getconf", "grep", "ln", "mktemp", "paste", "rm", "sed", "sort", "tail",
		"tee", "tr"} {
		path, err := exec.LookPath(name)
		require.NoError(t, err)
		require.NoError(t, os.Symlink(path, filepath.Join(m.bin, name)))
	}
	for _, name := range []string{"go", "make", "id", "apt-get", "gcc", "curl", "node", "npm", "chromium-headless-shell", "prometheus",
		"promtool", "openssl", "systemd-analyze"} {
		if !slices.Contains(without, name) {
			require.NoError(t, os.WriteFile(filepath.Join(m.bin, name), []byte(stub), 0o700))
		}
	}
	return m
}

// test runs what `make test` does, and returns whether it is content, what it says, and which
// programs it has called.
func (m *machine) test(env ...string) (ok bool, said, calls string) {
	m.t.Helper()
	cmd := exec.CommandContext(m.t.Context(), "../dev/test.sh")
	cmd.Env = append([]string{"PATH=" + m.bin, "USERID=1000"}, env...)
	out, err := cmd.CombinedOutput()
	if _, exited := err.(*exec.ExitError); err != nil && !exited {
		m.t.Fatal(err)
	}
	log, err := os.ReadFile(filepath.Join(m.bin, "calls"))
	if err != nil {
		m.t.Fatalf("%v\n%s", err, out)
	}
	return cmd.ProcessState.Success(), string(out), string(log)
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return lines[len(lines)-1]
}

const leftOut = "the console in a browser. What they need comes with: sudo make deps"

func TestMakeTest(t *testing.T) {
	for _, test := range []struct {
		name     string
		without  []string
		env      []string
		ok       bool
		last     string   // of what is said, its beginning
		says     []string // in this order
		installs bool
	}{
		{
			name: "nothing is missing", ok: true, last: "  tests        ok ",
			says: []string{"=== modules", "=== format", "=== programs", "=== tests", " s in all"},
		},
		{name: "nothing is missing to root", env: []string{"USERID=0"}, ok: true, last: "  tests        ok "},
		{name: "a user", without: []string{"gcc", "chromium-headless-shell"}, ok: true, last: "Left out: " + leftOut},
		{
			name: "a user who wants all", without: []string{"gcc", "chromium-headless-shell"}, env: []string{"STRICT=1"},
			last: "Left out, which is a failure here: " + leftOut,
		},
		{
			name: "CI", without: []string{"gcc", "chromium-headless-shell"}, env: []string{"CI=true"},
			last: "Left out, which is a failure here: " + leftOut,
		},
		{
			name: "root", without: []string{"gcc", "chromium-headless-shell"}, env: []string{"USERID=0", "ONLINE=1", "CI=true"},
			ok: true, installs: true, last: "  tests        ok ",
			says: []string{"Missing Debian packages: chromium-headless-shell gcc libc6-dev\n", "Need to get 7 MB", "=== modules"},
		},
		{
			name: "root offline", without: []string{"gcc", "chromium-headless-shell"}, env: []string{"USERID=0"},
			ok: true, installs: true, last: "Left out: " + leftOut, says: []string{"no network", "Going on without them.", "=== modules"},
		},
		{
			name: "a step that fails", env: []string{"FAILS=check-fmt"}, last: "  tests        ok ",
			says: []string{"check-fmt is wrong", "=== tests", "--- format\ncheck-fmt is wrong\n", "  format       failed"},
		},
		{name: "tests that fail", env: []string{"FAILS=-json"}, last: "  tests        failed "},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			ok, said, calls := newMachine(t, test.without...).test(test.env...)
			if last := lastLine(said); ok != test.ok || !strings.HasPrefix(last, test.last) {
				t.Errorf("ok: %t, want %t; the last line: %q, want %q…", ok, test.ok, last, test.last)
			}
			rest := said
			for _, want := range test.says {
				_, after, found := strings.Cut(rest, want)
				if !found {
					t.Errorf("it does not say %q, or not in this place", want)
				}
				rest = after
			}
			order := []string{"", "sidecar/internal/simulation", "test/fleet", "a", "c"}
			if !strings.Contains(calls, strings.Join(order, " github.com/sluice-bus/sluice/")+"; known: abc\n") {
				t.Error("the tests do not run, those that take long first, or do not know their inputs")
			}
			if installs := strings.Contains(calls, "apt-get "); installs != test.installs {
				t.Errorf("it installs packages: %t", installs)
			}
			if t.Failed() {
				t.Logf("it says:\n%s\nit calls:\n%s", said, calls)
			}
		})
	}
}

package program

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/test/require"
)

func TestFileErrorsNameKeyAndLine(t *testing.T) {
	for name, test := range map[string]struct{ file, want string }{
		"unknown key": {"# head\nlimit: 3\nlistn: x\n",
			`config.yaml:3: unknown setting "listn" (did you mean "listen"?)`},
		"underscores": {"data_dir: /d\n",
			`config.yaml:1: unknown setting "data_dir" (did you mean "data-dir"?)`},
		"nothing alike":      {"colour: red\n", `config.yaml:1: unknown setting "colour"`},
		"no setting: help":   {"help: true\n", `config.yaml:1: unknown setting "help"`},
		"no setting: man":    {"man: true\n", `config.yaml:1: unknown setting "man"`},
		"no setting: config": {"config: other.yaml\n", `config.yaml:1: unknown setting "config"`},
		"number":             {"\nlimit: many\n", `config.yaml:2: limit: expected a valid 64 bit int but got "many"`},
		"fraction":           {"limit: 1.5\n", `config.yaml:1: limit: expected a valid 64 bit int but got "1.5"`},
		"duration":           {"wait: 30\n", `config.yaml:1: wait: expected duration but got "30": time: missing unit in duration "30"`},
		"switch":             {"insecure: maybe\n", `config.yaml:1: insecure: bool value must be true, 1, yes, false, 0 or no but got "maybe"`},
		"choice":             {"mode: slow\n", `config.yaml:1: mode: must be one of fast, safe, not "slow"`},
		"text, a switch":     {"listen: true\n", `config.yaml:1: listen: expected text, not the truth value true (quote it if that is meant)`},
		"text, a list":       {"listen: [a, b]\n", `config.yaml:1: listen: expected one value, not a list`},
		"text, a mapping":    {"listen:\n  host: x\n", `config.yaml:1: listen: expected a value, not a mapping`},
		"list, a mapping":    {"peers: {a: b}\n", `config.yaml:1: peers: expected a value, not a mapping`},
		"list of lists":      {"peers:\n  - a\n  - [b]\n", `config.yaml:1: peers: element 2: expected a plain value`},
		"list of numbers":    {"sizes: [1, x]\n", `config.yaml:1: sizes: expected a valid 64 bit int but got "x"`},
		"no value":           {"limit: 1\nlisten:\n", `config.yaml:2: listen: has no value ("" is the empty text)`},
		"twice":              {"limit: 1\nmode: fast\nlimit: 2\n", `config.yaml:3: limit is set already in line 1`},
		"a list of settings": {"- limit\n", `config.yaml:1: settings are lines of the form "name: value"`},
		"a text":             {"limit 3\n", `config.yaml:1: settings are lines of the form "name: value"`},
		"two documents":      {"limit: 1\n---\nlimit: 2\n", `config.yaml:2: a second document; all settings belong in the first`},
		"not YAML":           {"limit: 1\nmode: a: b\n", `config.yaml:2: not valid YAML: mapping values are not allowed in this context`},
	} {
		t.Run(name, func(t *testing.T) {
			wantRefused(t, start(t, nil, test.file), test.want)
		})
	}
}

// A wrong file is refused even where flags leave none of it in force.
func TestUnknownKeyIsRefusedWhateverElseIsGiven(t *testing.T) {
	got := start(t, []string{"SLUICE_LISTEN=x"}, "listn: y\n", "--listen=z")
	wantRefused(t, got, `config.yaml:1: unknown setting "listn" (did you mean "listen"?)`)
}

func TestFilesWithoutSettings(t *testing.T) {
	for _, file := range []string{"\n", "# nothing yet\n", "---\n", "{}\n", "null\n"} {
		wantRan(t, start(t, nil, file))
	}
}

func TestFileKeepsTextAsWritten(t *testing.T) {
	got := start(t, nil, "listen: 0x10\npeers: [\"a,b\", 'c\\', 1e3]\n")
	wantRan(t, got)
	if got.settings.Listen != "0x10" {
		t.Errorf("listen = %q", got.settings.Listen)
	}
	if want := []string{"a,b", `c\`, "1e3"}; !slices.Equal(got.settings.Peers, want) {
		t.Errorf("peers = %q, want %q", got.settings.Peers, want)
	}
}

func TestEmptyListInFile(t *testing.T) {
	got := start(t, nil, "peers: []\nsizes: []\n")
	wantRan(t, got)
	if len(got.settings.Peers) != 0 || len(got.settings.Sizes) != 0 {
		t.Errorf("peers %q, sizes %v, want none", got.settings.Peers, got.settings.Sizes)
	}
}

func TestAnchors(t *testing.T) {
	got := start(t, nil, "listen: &here unix:/s\npeers: [*here]\ndata-dir: *here\n")
	wantRan(t, got)
	if got.settings.DataDir != "unix:/s" || !slices.Equal(got.settings.Peers, []string{"unix:/s"}) {
		t.Errorf("settings = %+v", got.settings)
	}
}

// FuzzConfigFile: whatever the file holds, the program runs or refuses it with one line that names
// the file.
func FuzzConfigFile(f *testing.F) {
	for _, seed := range []string{
		"listen: a\nlimit: 3\n", "listn: x", "peers: [a, b]", "labels: {a: b}", "a: &a [*a]", "<<: {limit: 1}",
		"? [a]\n: b", "limit: !!binary aGk=", "\xff", "limit: 1\n---\n", "\"\\0\": 1", "listen: |\n  two\n  lines\n",
	} {
		f.Add([]byte(seed))
	}
	path := filepath.Join(f.TempDir(), "config.yaml")
	f.Fuzz(func(t *testing.T, content []byte) {
		require.NoError(t, os.WriteFile(path, content, 0o600))
		var stderr bytes.Buffer
		status := Run(Spec{
			Name:     "sluice-test",
			Settings: new(serverSettings),
			Run:      func(context.Context, *App) error { return nil },
		}, Process{Args: []string{"--config", path}, LookupEnv: lookup(nil), Stdout: &stderr, Stderr: &stderr})
		line := stderr.String()
		if status == StatusOK && line == "" {
			return
		}
		if status != StatusUsage || !strings.HasPrefix(line, "sluice-test: "+path) || strings.Count(line, "\n") != 1 {
			t.Errorf("status %d, stderr %q", status, line)
		}
	})
}

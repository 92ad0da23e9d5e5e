package deploytest

import (
	"bytes"
	"context"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.yaml.in/yaml/v3"

	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

// client is the command-line client.
var client = testkit.ClientProgram

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// commandTimeout is how long a tool may take on a loaded machine.
const commandTimeout = 2 * time.Minute

// read is a file of deploy/.
func read(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", name))
	require.NoError(t, err)
	return string(data)
}

// run runs a tool in a folder and returns what it prints.
func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), commandTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// promtool runs Prometheus's own tool in a folder.
func promtool(t *testing.T, dir string, args ...string) {
	t.Helper()
	run(t, dir, testkit.Need(t, testkit.Promtool), args...)
}

// object is a mapping of YAML or JSON.
type object = map[string]any

// documents are the YAML documents of a file; one key twice is an error.
func documents(t *testing.T, text string) []object {
	t.Helper()
	var docs []object
	dec := yaml.NewDecoder(strings.NewReader(text))
	for {
		var doc object
		err := dec.Decode(&doc)
		if err == io.EOF {
			return docs
		}
		require.NoError(t, err)
		docs = append(docs, doc)
	}
}

// at is what is under the keys, one in the other; nil if there is nothing.
func at(v any, keys ...string) any {
	for _, k := range keys {
		m, _ := v.(object)
		v = m[k]
	}
	return v
}

// list is a sequence; nil if it is none.
func list(v any) []any {
	l, _ := v.([]any)
	return l
}

// TestEveryYAMLFileParses finds what an editor broke in any of them. It opens the other files, too:
// go test then runs this package's tests again when one has changed that a tool reads or a shell
// runs.
func TestEveryYAMLFileParses(t *testing.T) {
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() == "templates" { // Helm makes YAML of them
			return fs.SkipDir
		}
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		switch filepath.Ext(path) {
		case ".yaml", ".yml":
			dec, n := yaml.NewDecoder(bytes.NewReader(data)), 0
			for ; ; n++ {
				var doc any
				if err = dec.Decode(&doc); err != nil {
					break
				}
			}
			if err != io.EOF || n == 0 {
				t.Errorf("%s: %d documents, then %v", path, n, err)
			}
		}
		return nil
	})
	require.NoError(t, err)
}

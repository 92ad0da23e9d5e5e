package deploytest

import (
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/sluice-bus/sluice/internal/schema"
	"github.com/sluice-bus/sluice/test/testkit"
)

// schemaFiles are the files of schemas/, and who prints them.
var schemaFiles = map[string]struct {
	program *testkit.Program
	flag    string
}{
	"policies.json":                        {testkit.SidecarProgram, "policies"},
	"push.json":                            {testkit.SidecarProgram, "push"},
	"sluice-sidecar.config.json":           {testkit.SidecarProgram, "config"},
	"sluice-sidecar.auth-config.json":      {testkit.SidecarProgram, "auth-config"},
	"sluice-controlplane.config.json":      {testkit.ControlPlaneProgram, "config"},
	"sluice-controlplane.auth-config.json": {testkit.ControlPlaneProgram, "auth-config"},
}

func TestSchemasAreWhatTheProgramsPrint(t *testing.T) {
	for name, of := range schemaFiles {
		out, err := exec.Command(of.program.Binary(t), "--schema", of.flag).Output()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if read(t, "schemas/"+name) != string(out) {
			t.Errorf("schemas/%s is not what %s --schema %s prints: run make schemas", name, of.program.Name, of.flag)
		}
	}
	files, err := filepath.Glob("../schemas/*.json")
	if err != nil || len(files) != len(schemaFiles) {
		t.Errorf("schemas/ has %d files, want %d (%v)", len(files), len(schemaFiles), err)
	}
}

// valid checks a YAML text with a schema of schemas/.
func valid(t *testing.T, where, name, text string) {
	t.Helper()
	compiled, err := schema.Compile(read(t, "schemas/"+name))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	var value any
	if err := yaml.Unmarshal([]byte(text), &value); err != nil {
		t.Errorf("%s: %v", where, err)
		return
	}
	document, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	if wrong := compiled.Check(document); wrong != nil {
		t.Errorf("%s does not follow %s: %+v", where, name, *wrong)
	}
}

var (
	schemaComment = regexp.MustCompile(`^# yaml-language-server: \$schema=(\S+)\n`)
	yamlFence     = regexp.MustCompile("(?s)```yaml\n(.*?)```")
	policyItem    = regexp.MustCompile(`(?m)^- name:`)
)

// TestExamplesFollowTheirSchemas: every file of policies names its schema, so that editors complete it, and follows it, as do the
// examples in the documents.
func TestExamplesFollowTheirSchemas(t *testing.T) {
	const root = "../.."
	files, fences := 0, 0
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			if err == nil && slices.Contains([]string{".git", "node_modules", "testdata", "out", "templates"}, entry.Name()) {
				return fs.SkipDir
			}
			return err
		}
		extension := filepath.Ext(path)
		if extension != ".yaml" && extension != ".md" {
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if extension == ".md" {
			for _, fence := range yamlFence.FindAllStringSubmatch(string(data), -1) {
				if name := schemaOf(fence[1]); name != "" {
					fences++
					valid(t, path, name, fence[1])
				}
			}
			return nil
		}
		named := schemaComment.FindStringSubmatch(string(data))
		switch {
		case named != nil:
			files++
			if _, err := os.Stat(filepath.Join(filepath.Dir(path), named[1])); err != nil {
				t.Errorf("%s: its schema: %v", path, err)
				return nil
			}
			valid(t, path, filepath.Base(named[1]), string(data))
		case entry.Name() == "policies.yaml":
			t.Errorf("%s does not name its schema in its first line", path)
		}
		return nil
	})
	if err != nil || files < 4 || fences < 5 {
		t.Errorf("%d files and %d examples in documents were checked: %v", files, fences, err)
	}
}

// schemaOf is the schema of an example in a document; "": it is of another program.
func schemaOf(example string) string {
	switch {
	case policyItem.MatchString(example):
		return "policies.json"
	case strings.Contains(example, "\n    role: "):
		return "sluice-controlplane.auth-config.json"
	case strings.HasPrefix(example, "tokens:"), strings.HasPrefix(example, "jwt:"):
		return "sluice-sidecar.auth-config.json"
	}
	return ""
}

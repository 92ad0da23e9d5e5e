package program

import (
	"encoding/json"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/sluice-bus/sluice/internal/schema"
)

func TestConfigSchema(t *testing.T) {
	printed := start(t, []string{"SLUICE_SCHEMA=x"}, "", "--schema", "config")
	if printed.status != StatusOK || printed.ran {
		t.Fatalf("status %d, ran %v: %s", printed.status, printed.ran, printed.stderr)
	}
	compiled, err := schema.Compile(printed.stdout)
	if err != nil {
		t.Fatal(err)
	}
	takes := func(file string) bool {
		var value any
		if err := yaml.Unmarshal([]byte(file), &value); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		text, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		return compiled.Check(text) == nil
	}
	for _, file := range []string{
		"", "listen: a\nlimit: 3\nratio: 0.25\nwait: 1m30s\ninsecure: true\nmode: fast\nlog-level: debug\n", "wait: 0\n", "listen: 7\n",
		"peers: [a, b]\nsizes: [1, 2]\nlabels: {a: b}\n", "peers: a,b\n",
	} {
		if got := start(t, nil, file+"\n"); !got.ran {
			t.Errorf("%q is refused: %s", file, got.stderr)
		}
		if !takes(file) {
			t.Errorf("the schema refuses %q", file)
		}
	}
	for _, file := range []string{"listn: x\n", "limit: many\n", "wait: 30\n", "mode: slow\n", "listen: {host: x}\n",
		"help: true\n", "schema: x\n"} {
		if takes(file) {
			t.Errorf("the schema takes %q", file)
		}
	}
}

func TestSchemaOfAnUnknownFile(t *testing.T) {
	got := start(t, nil, "", "--schema=policy")
	if got.status != StatusUsage || !strings.Contains(got.stderr, `--schema: must be one of config, not "policy"`) {
		t.Errorf("status %d: %s", got.status, got.stderr)
	}
}

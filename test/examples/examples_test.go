//go:build unix

package examples

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/test/mongotest"
	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

// patience is how long one example may take on a loaded machine, the building of its program
// included.
const patience = 3 * time.Minute

// needs are what examples run beside Go and a shell.
var needs = map[string][]testkit.Tool{
	"curl": {testkit.Curl}, "typescript": {testkit.Node, testkit.NPM}, "dapr": {testkit.Curl, testkit.Node, testkit.NPM},
	"push": {testkit.Curl, testkit.Node},
}

// Every example ends by itself and checks its own results. This test looks for the lines that the
// example tells its reader to look at, in any order: much of it goes on at the same time.
func TestExamples(t *testing.T) {
	dependOnFiles(t)
	bin := programs(t)
	if _, found := testkit.NPM.Path(); found {
		testkit.BuildJS(t) // which those in TypeScript use
	}
	for name, want := range map[string][]string{
		"curl": {
			`201 \n{"id":"[^"]+",.*"durability":"store"}`, `"duplicate":true`, `\n409 \n`, `"results":\[`, `429 Retry-After: \d+\n`,
			`"lease":"`, `"code":"stale_lease"`, `"lag":0`, `"deliver_at":\d+`, `"id":"in-a-moment"`,
			`"scope":"tenant"`, `"tenant":"calm"`, `\ndata: {"id":"order-20"`, `All as expected\.\n$`,
		},
		"typescript": {
			`120 events published and durable\n`, `order-3: step 5 fails, attempt 2`, `120 steps handled, each order's in order; 2 failed`,
			`the history has the 12 steps of order-3`,
		},
		"dapr": {
			`checkout: published order 10\n`, `order 3 fails, and comes again\n`, `order 7 is not for us\n`, `order 7 is a dead letter\n`,
			`10 orders: 9 handled, and 1 in the topic for dead letters\n`,
		},
		"fleet-limits": {
			`now 100/s for all sidecars together`, `\n +5 .*\| +\d+ of 100\n`, `\n\d+ passed in .* the limit is 100/s`,
			`now 30/s for all sidecars together`, `\n +5 .*\| +\d+ of 30\n`, `\n\d+ passed in .* the limit is 30/s`,
		},
		"heartbeat": {
			`starts without a snapshot`, `Round 10: the projector is killed`, `starts with its snapshot at map`,
			`Round 25: the emitter is killed`, `4 processes have sent`, `Round 47: the viewer is killed`,
			`\nmailer-1 +stopped +40 +2\n`, `each of the 240 heartbeats once, and the same 4 states`,
		},
		"push": {
			`waits, since nothing listens yet\n(?s:.*)attempt 1: { order: 1 }\n`, `attempt 1: { order: 2 }\n`, `both orders are delivered`,
			`somebody else posts: not signed\n$`,
		},
		"schemas": {
			`schema_violation`, `\ncompatible\n`, `\nversion 1: {"order":17,"total":99.5}\nversion 2: {"order":18,"currency":"EUR"}\n`,
			`\nincompatible:\n +at "/properties/order", .*\n +the new schema requires the property "currency"`,
			`\n +schema\.json_schema: the new schema requires .*\nsluice: invalid_policy: 1 field is not valid`,
			`"asyncapi": "3\.0\.0"`, `All as expected\.\n$`,
		},
		"tracing": {
			`billing +handles it in attempt 1|shipping +handles it in attempt 2`, `\nsend orders\.created \(producer\)`,
			`append orders\.created`, `process orders\.created .*group=`, `settle orders\.created`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, tool := range needs[name] {
				testkit.Need(t, tool)
			}
			contains(t, run(t, bin, name), want)
		})
	}
	t.Run("go-exactly-once", func(t *testing.T) {
		t.Parallel()
		contains(t, run(t, bin, "go-exactly-once", mongotest.URIVariable+"="), []string{
			`MONGODB_URI is not set`, `40 payments published, 40 of them again`, `the consumer dies`, `disconnected`, `The sum is 820:`,
		})
	})
	t.Run("go-exactly-once on MongoDB", func(t *testing.T) {
		t.Parallel()
		uri := mongotest.Shared(t).URI("")
		contains(t, run(t, bin, "go-exactly-once", mongotest.URIVariable+"="+uri), []string{
			`kept in MongoDB`, `the consumer dies`, `signal: killed`, `The sum is 820:`,
		})
	})
	t.Run("mongodb-view", func(t *testing.T) {
		t.Parallel()
		uri := mongotest.Shared(t).URI("")
		contains(t, run(t, bin, "mongodb-view", mongotest.URIVariable+"="+uri), []string{
			`The collection has 30 customers`, `no document moved back`, `Rebuilt: 300 events read, 0 refused\. Of the 30 customers`,
		})
	})
	t.Run("outbox", func(t *testing.T) {
		t.Parallel()
		server := mongotest.Shared(t)
		server.Needs(t, mongotest.Transactions)
		contains(t, run(t, bin, "outbox", mongotest.URIVariable+"="+server.URI("")), []string{
			`billing: order 19 of customer-3\n`, `16 orders are stored and billed, each customer's in order; 4 were declined`,
		})
	})
	t.Run("typescript-mongodb", func(t *testing.T) {
		t.Parallel()
		testkit.Need(t, testkit.NPM)
		server := mongotest.Shared(t)
		server.Needs(t, mongotest.Transactions)
		contains(t, run(t, bin, "typescript-mongodb", mongotest.URIVariable+"="+server.URI("")), []string{
			`the turnover is 40, of 8 orders\n`, `16 orders are stored and billed, each once; 4 were declined`,
		})
	})
	t.Run("capture", func(t *testing.T) {
		t.Parallel()
		server := mongotest.Shared(t)
		server.Needs(t, mongotest.Transactions) // a server with transactions has change streams
		contains(t, run(t, bin, "capture", mongotest.URIVariable+"="+server.URI("")), []string{
			`bread costs 4\n`, `The table has the 3 products of the shop`,
		})
	})
}

// programs is a folder with the programs that examples start.
func programs(t *testing.T) string {
	t.Helper()
	bin := t.TempDir()
	for _, program := range []string{testkit.SidecarProgram.Binary(t), testkit.ControlPlaneProgram.Binary(t)} {
		require.NoError(t, os.Symlink(program, filepath.Join(bin, filepath.Base(program))))
	}
	return bin
}

// run runs an example with further variables in its environment, and returns what it has printed.
func run(t *testing.T, bin, name string, env ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "./run", name)
	// As make build has it: most of what is compiled is there already.
	cmd.Env = append(append(os.Environ(), "SLUICE_BIN="+bin, "CGO_ENABLED=0", "GOFLAGS=-trimpath"), env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	// An example that takes too long is killed with all processes that it has started.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Run(); err != nil {
		t.Fatalf("examples/run %s: %v\n%s\n%s", name, err, stdout.String(), stderr.String())
	}
	return stdout.String()
}

func contains(t *testing.T, out string, patterns []string) {
	t.Helper()
	for _, p := range patterns {
		if !regexp.MustCompile(p).MatchString(out) {
			t.Errorf("expected %q in the output:\n%s", p, out)
		}
	}
}

// dependOnFiles opens all files that the examples are made of, so that go test runs them again when
// any of these has changed: it cannot know what a started program reads. Packages that Go programs
// import have a digest.
func dependOnFiles(t *testing.T) {
	t.Helper()
	if _, err := testkit.Input("examples"); err != nil {
		t.Fatal(err)
	}
	err := filepath.WalkDir(".", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && (entry.Name() == "node_modules" || entry.Name() == "dist") {
			return fs.SkipDir
		}
		if err != nil || entry.IsDir() {
			return err
		}
		_, err = os.ReadFile(name)
		return err
	})
	require.NoError(t, err)
}

// Each example has a page that says how to run it, and the folder's own page names it.
func TestPages(t *testing.T) {
	index, err := os.ReadFile("README.md")
	require.NoError(t, err)
	starts, err := filepath.Glob("*/start.sh")
	if err != nil || len(starts) == 0 {
		t.Fatalf("no examples were found: %v", err)
	}
	for _, start := range starts {
		name := filepath.Dir(start)
		page, err := os.ReadFile(filepath.Join(name, "README.md"))
		if err != nil {
			t.Error(err)
			continue
		}
		if !strings.Contains(string(page), "examples/run "+name+"\n") {
			t.Errorf("%s/README.md does not say how to run it", name)
		}
		if lines := bytes.Count(page, []byte("\n")); lines > 30 {
			t.Errorf("%s/README.md has %d lines; 30 are allowed", name, lines)
		}
		if !strings.Contains(string(index), "("+name+"/README.md)") {
			t.Errorf("README.md does not name %s", name)
		}
	}
}

package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/sluice-bus/sluice/internal/program"
	"github.com/sluice-bus/sluice/test/sluicetest"
)

func TestMain(m *testing.M) {
	os.Setenv("XDG_CONFIG_HOME", "/nowhere") // the contexts of whoever runs the tests are not theirs
	goleak.VerifyTestMain(m)
}

// outcome is what a command left behind.
type outcome struct {
	status         int
	stdout, stderr string
}

func process(sidecar *sluicetest.Sidecar, stdin io.Reader, args ...string) program.Process {
	return program.Process{
		Args: args,
		LookupEnv: func(name string) (string, bool) {
			switch name {
			case "SLUICE_URL", "SLUICE_REPLAY_URL", "SLUICE_OPS_URL":
				return sidecar.URL, sidecar.URL != ""
			}
			return "", false
		},
		Stdin: stdin,
	}
}

// run runs a command to its end.
func run(t *testing.T, sidecar *sluicetest.Sidecar, stdin string, args ...string) outcome {
	t.Helper()
	var stdout, stderr bytes.Buffer
	p := process(sidecar, strings.NewReader(stdin), args...)
	p.Stdout, p.Stderr = &stdout, &stderr
	status := program.Run(spec(), p)
	return outcome{status, stdout.String(), stderr.String()}
}

func (o outcome) wantOK(t *testing.T) outcome {
	t.Helper()
	if o.status != 0 || o.stderr != "" {
		t.Fatalf("status %d, stderr %q", o.status, o.stderr)
	}
	return o
}

func (o outcome) wantFailure(t *testing.T, status int, sentence string) outcome {
	t.Helper()
	if o.status != status || !strings.Contains(o.stderr, sentence) {
		t.Fatalf("status %d, stderr %q; want %d and %q", o.status, o.stderr, status, sentence)
	}
	return o
}

func start(t *testing.T, opts sluicetest.Options) *sluicetest.Sidecar {
	t.Helper()
	sidecar := sluicetest.Start(opts)
	t.Cleanup(sidecar.Close)
	return sidecar
}

// fill publishes {"n":0}, {"n":1}, … with the ids e0, e1, …
func fill(t *testing.T, sidecar *sluicetest.Sidecar, topic string, count int) {
	t.Helper()
	for i := range count {
		run(t, sidecar, "", "pub", topic, fmt.Sprintf(`{"n":%d}`, i), "--id", fmt.Sprint("e", i)).wantOK(t)
	}
}

func TestUnreachableSidecarIsOneSentence(t *testing.T) {
	sidecar := start(t, sluicetest.Options{})
	for _, args := range [][]string{
		{"pub", "t", "1", "--url", "http://127.0.0.1:1"},
		{"sub", "t", "--url", "http://127.0.0.1:1"},
		{"topics", "--url", "http://127.0.0.1:1"},
		{"replay", "t", "--replay-url", "http://127.0.0.1:1"},
		{"status", "--ops-url", "http://127.0.0.1:1"},
	} {
		got := run(t, sidecar, "", args...).wantFailure(t, 1, "http://127.0.0.1:1")
		if strings.Count(got.stderr, "\n") != 1 || !strings.Contains(got.stderr, "refused") {
			t.Errorf("%v: %q", args, got.stderr)
		}
	}
}

func TestReplay(t *testing.T) {
	sidecar := start(t, sluicetest.Options{})
	fill(t, sidecar, "orders", 5)
	got := run(t, sidecar, "", "replay", "orders", "--max", "3").wantFailure(t, 0,
		"stopped after 3 events, and there are more: --from afterId --after-id e2")
	if lines := strings.Split(strings.TrimSpace(got.stdout), "\n"); len(lines) != 3 || !strings.HasSuffix(lines[2], `0/3  e2  {"n":2}`) {
		t.Errorf("got %q", got.stdout)
	}
	got = run(t, sidecar, "", "replay", "orders", "--max", "0", "-o", "json").wantOK(t)
	if strings.Count(got.stdout, "\n") != 5 || !strings.HasPrefix(got.stdout, `{"id":"e0",`) {
		t.Errorf("got %q", got.stdout)
	}
	if got = run(t, sidecar, "", "replay", "orders", "--from", "1h", "--until", "2d").wantOK(t); got.stdout != "" {
		t.Errorf("got %q", got.stdout)
	}
	if got = run(t, sidecar, "", "replay", "orders", "--from", "1h").wantOK(t); strings.Count(got.stdout, "\n") != 5 {
		t.Errorf("got %q", got.stdout)
	}
	run(t, sidecar, "", "replay", "orders", "--from", "ts").wantFailure(t, 2, "--from ts: write earliest")
	run(t, sidecar, "", "replay", "orders", "--replay-url", "nowhere").wantFailure(t, 2, "--replay-url: \"nowhere\" is no address")
	run(t, sidecar, "", "replay", "orders", "--after-id", "x").wantFailure(t, 2, "afterId with --after-id")
	run(t, sidecar, "", "replay", "orders", "--from", "afterId", "--after-id", "x").wantFailure(t, 3, "not_found")
}

func TestExport(t *testing.T) {
	sidecar := start(t, sluicetest.Options{})
	fill(t, sidecar, "orders", 3)
	t.Chdir(t.TempDir())
	got := run(t, sidecar, "", "export", "orders", "out.ndjson").wantOK(t)
	if got.stdout != "exported 3 events to out.ndjson\n" {
		t.Errorf("got %q", got.stdout)
	}
	text, err := os.ReadFile("out.ndjson")
	if err != nil || bytes.Count(text, []byte("\n")) != 3 {
		t.Errorf("%q, %v", text, err)
	}
	if got := run(t, sidecar, "", "export", "orders", "-").wantOK(t); got.stdout != string(text) {
		t.Errorf("on standard output: %q", got.stdout)
	}
}

// A broken export leaves the file as it was, and beside it what came.
func TestBrokenExportLeavesWhatWasThere(t *testing.T) {
	sidecar := start(t, sluicetest.Options{BreakExportAfter: 2})
	fill(t, sidecar, "orders", 5)
	name := file(t, "old\n")
	run(t, sidecar, "", "export", "orders", name).wantFailure(t, 1, "stopped after 2 events, which are in "+name+".partial")
	want(t, read(t, name), "old\n")
	if got := read(t, name+".partial"); strings.Count(got, "\n") != 2 || !strings.HasSuffix(got, "}\n") {
		t.Errorf("%q", got)
	}
	run(t, sidecar, "", "export", "orders", "-").wantFailure(t, 1, "broke off")
	run(t, sidecar, "", "export", "orders", "-", "--resume").wantFailure(t, 2, "--resume needs a file")
}

// Wherever an export was cut off, --resume makes it whole.
func TestExportIsResumed(t *testing.T) {
	sidecar := start(t, sluicetest.Options{})
	var lines strings.Builder
	for i, ts := range []int{1, 2, 2, 2, 3, 3, 4} { // some at one time
		fmt.Fprintf(&lines, `{"id":"e%d","ts":%d,"topic":"orders","payload":%d}`+"\n", 9-i, ts, i)
	}
	run(t, sidecar, lines.String(), "import", "-").wantOK(t)
	whole := run(t, sidecar, "", "export", "orders", "-").wantOK(t).stdout
	for cut := 0; cut <= len(whole); cut += 13 {
		for _, end := range []string{"", ".partial"} {
			name := file(t, "")
			if err := os.WriteFile(name+end, []byte(whole[:cut]), 0o600); err != nil {
				t.Fatal(err)
			}
			got := run(t, sidecar, "", "export", "orders", name, "--resume").wantOK(t)
			there := strings.Count(whole[:cut], "\n")
			want(t, got.stdout, fmt.Sprintf("exported %d events to %s, behind the %d that were there\n", 7-there, name, there))
			want(t, read(t, name), whole)
		}
	}
	for text, says := range map[string]string{
		"{}\n": "line 1 is not an event of topic orders",
		`{"id":"a","ts":2,"topic":"orders"}` + "\n" + `{"id":"a","ts":1,"topic":"orders"}` + "\n": "line 2 is older than the one before",
	} {
		run(t, sidecar, "", "export", "orders", file(t, text), "--resume").wantFailure(t, 1, says)
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// varying are the figures that are others each time.
var (
	varying = regexp.MustCompile(`((?:bytes|first_ts|last_ts)"?: ?)\d+`)
	seconds = regexp.MustCompile(`\d+s ago`)
)

func TestTables(t *testing.T) {
	sidecar := start(t, sluicetest.Options{})
	fill(t, sidecar, "orders", 3)
	run(t, sidecar, "", "sub", "orders", "--group", "billing", "--from", "earliest", "--max", "2").wantOK(t)
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"topics": {[]string{"topics"}, "TOPIC   PARTITIONS  EVENTS  LAST EVENT\norders  1           3       Ns ago\n"},
		"topics JSON": {[]string{"topics", "-o", "json"},
			`{"topics":[{"topic":"orders","partitions":[{"partition":0,"first":1,"head":3}],"events":3,"bytes":N,"first_ts":N,"last_ts":N,` +
				`"groups":["billing"]}]}` + "\n"},
		"topics YAML": {[]string{"topics", "-o", "yaml"}, "---\ntopics:\n  - topic: orders\n    partitions:\n" +
			"      - partition: 0\n        first: 1\n" +
			"        head: 3\n    events: 3\n    bytes: N\n    first_ts: N\n    last_ts: N\n    groups:\n      - billing\n"},
		"groups": {[]string{"groups", "orders"}, "GROUP    LAG  INFLIGHT  MEMBERS  BLOCKED BY\nbilling  1    0         0        -\n"},
		"group": {[]string{"groups", "show", "orders", "billing"},
			"billing of orders: lag 1, in flight 0\n\nPARTITION  CURSOR  HEAD  LAG  INFLIGHT  OWNER\n0          3       3     1    " +
				"0         sluicetest\n\nno members\n"},
		"group JSON": {[]string{"groups", "show", "orders", "billing", "-o", "json"},
			`{"topic":"orders","group":"billing","lag":1,"inflight":0,"partitions":[{"partition":0,"owner":"sluicetest","cursor":3,` +
				`"head":3,"lag":1,"inflight":0}],"members":[]}` + "\n"},
		"status": {[]string{"status"},
			"node           sluicetest\nversion        test\nstore          embedded:  ok since Ns ago\npolicies       * (version 50127240bab7, " +
				"file)\nconnections    0\nsubscriptions  0\nqueues         0 events, 0 bytes\nspool          0 events, 0 bytes\n"},
	} {
		t.Run(name, func(t *testing.T) {
			got := run(t, sidecar, "", test.args...).wantOK(t)
			if name == "status" {
				got.stdout = strings.Replace(got.stdout, "connections    1", "connections    0", 1) // one may not be gone yet
			}
			got.stdout = seconds.ReplaceAllString(varying.ReplaceAllString(got.stdout, "${1}N"), "Ns ago")
			if got.stdout != test.want {
				t.Errorf("got\n%s\nwant\n%s", got.stdout, test.want)
			}
		})
	}
	run(t, sidecar, "", "groups", "show", "orders", "none").wantFailure(t, 3, "not_found")
}

// TestChangesAreAskedFor: nothing is deleted or moved by somebody who is at no terminal and has not
// given --yes.
func TestChangesAreAskedFor(t *testing.T) {
	sidecar := start(t, sluicetest.Options{})
	fill(t, sidecar, "orders", 3)
	run(t, sidecar, "", "sub", "orders", "--group", "billing", "--from", "earliest", "--max", "2").wantOK(t)
	run(t, sidecar, "y\n", "groups", "delete", "orders", "billing").wantFailure(t, 2, "--yes")
	run(t, sidecar, "", "groups", "delete", "orders", "billing", "--dry-run").wantOK(t)
	for _, args := range [][]string{
		{"--from", "ts"}, {"--from", "latest", "--ts", "1"}, {"--from", "afterId"}, {"--from", "positions"},
		{"--from", "positions", "--position", "0"}, {"--from", "nowhere"},
		{}, {"--to", "latest", "--from", "latest"}, {"--to", "latest", "--ts", "1"},
	} {
		run(t, sidecar, "", append([]string{"groups", "seek", "orders", "billing", "--yes"}, args...)...).wantFailure(t, 2, "--")
	}
	got := run(t, sidecar, "", "groups", "show", "orders", "billing").wantOK(t)
	if !strings.HasPrefix(got.stdout, "billing of orders: lag 1") {
		t.Errorf("got %s", got.stdout)
	}
	second := sidecar.Events("orders")[1].ID
	for to, want := range map[string]string{
		"earliest": "2 events are replayed, 0 skipped", "latest": "0 events are replayed, 1 skipped", "0": "2 events are replayed, 0 skipped",
		"2099-01-01T00:00:00Z": "0 events are replayed, 1 skipped", second: "0 events are replayed, 0 skipped",
	} {
		got := run(t, sidecar, "", "groups", "seek", "orders", "billing", "--dry-run", "--to", to).wantOK(t)
		if !strings.HasPrefix(got.stdout, want) {
			t.Errorf("--to %s: %s", to, got.stdout)
		}
	}
}

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/bench/internal/latency"
	"github.com/sluice-bus/sluice/bench/report"
	"github.com/sluice-bus/sluice/internal/program"
	"github.com/sluice-bus/sluice/test/require"
)

// command runs the program and returns what it wrote.
func command(args ...string) (stdout, stderr string, status int) {
	var out, log bytes.Buffer
	status = program.Run(spec(), program.Process{
		Args: args, LookupEnv: func(string) (string, bool) { return "", false }, Stdout: &out, Stderr: &log,
	})
	return out.String(), log.String(), status
}

func TestMisuseIsNamed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "cases.yaml")
	require.NoError(t, os.WriteFile(file, []byte("publish:\n  - {name: ours, conections: 3}\n"), 0o600))
	for args, want := range map[string]string{
		"run publihs":                           `"publihs" (did you mean "publish"?)`,
		"run --find-max p99=10ms":               "such as p99<10ms",
		"run --find-max p98<10ms":               "such as p99<10ms",
		"run --rounds 0":                        "--rounds is 0",
		"run --for 0s":                          "--for is 0s",
		"run --target http://h --store mongodb": "give one of the two",
		"run --file " + file:                    `it does not use conections (did you mean "connections"?)`,
		"run soak --file " + file:               "give it or their names",
		"run --size 3":                          "--size is 3",
		"compare " + file + " " + file:          "cases.yaml",
	} {
		_, stderr, status := command(strings.Fields(args)...)
		wantStatus := program.StatusUsage
		if strings.HasPrefix(args, "compare") {
			wantStatus = program.StatusFailure
		}
		if status != wantStatus || !strings.Contains(stderr, want) {
			t.Errorf("%s: status %d, %s", args, status, stderr)
		}
	}
}

func TestListNamesEveryScenario(t *testing.T) {
	out, _, status := command("list")
	if status != 0 || !strings.Contains(out, "roundtrip") || !strings.Contains(out, "- 64 publishers") {
		t.Errorf("status %d:\n%s", status, out)
	}
}

func TestCompareEndsWithItsOwnStatus(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, events int) string {
		row := &report.Row{Scenario: "publish", Case: "one by one"}
		row.Fill([]*report.Round{{Events: events, Published: true, Took: time.Second}})
		var out bytes.Buffer
		require.NoError(t, (&report.Results{Rows: []*report.Row{row}}).JSON(&out))
		file := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(file, out.Bytes(), 0o600))
		return file
	}
	fast, slow := write("fast.json", 1000), write("slow.json", 700)
	const worse = "| 1,000 | 700 | 0.70 | **worse** |"
	if out, _, status := command("compare", fast, slow); status != statusWorse || !strings.Contains(out, worse) {
		t.Errorf("status %d:\n%s", status, out)
	}
	if _, _, status := command("compare", fast, slow, "--threshold", "0.5"); status != 0 {
		t.Errorf("within the threshold: status %d", status)
	}
	if out, _, status := command("compare", slow, fast, "--json"); status != 0 || !strings.Contains(out, `"beyond_spread":true`) {
		t.Errorf("better: status %d, %s", status, out)
	}
}

func TestABoundIsOfTheLatencyAndTheRate(t *testing.T) {
	b, err := parseBound("p99<10ms")
	require.NoError(t, err)
	round := func(ms, events int) *report.Round {
		h := latency.New()
		h.RecordN(time.Duration(ms)*time.Millisecond, events)
		return &report.Round{Events: events, Took: time.Second, Latency: h}
	}
	if !b.kept(round(9, 1000), 1000) || b.kept(round(11, 1000), 1000) || b.kept(round(9, 900), 1000) {
		t.Error("the bound is wrong")
	}
}

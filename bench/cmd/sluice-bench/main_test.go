package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-bus/sluice/internal/program"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/test/sluicetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// outcome is what a run left behind.
type outcome struct {
	status int
	report map[string]any
	stderr string
}

func run(t *testing.T, sidecar *sluicetest.Sidecar, args ...string) outcome {
	t.Helper()
	var stdout, stderr bytes.Buffer
	status := program.Run(spec(), program.Process{
		Args: args,
		LookupEnv: func(name string) (string, bool) {
			if name == "SLUICE_URL" {
				return sidecar.URL, true
			}
			return "", false
		},
		Stdout: &stdout, Stderr: &stderr,
	})
	o := outcome{status: status, stderr: stderr.String()}
	if stdout.Len() > 0 {
		if err := json.Unmarshal(stdout.Bytes(), &o.report); err != nil {
			t.Fatalf("%v in %q", err, stdout.String())
		}
	}
	return o
}

func start(t *testing.T, opts sluicetest.Options) *sluicetest.Sidecar {
	t.Helper()
	sidecar := sluicetest.Start(opts)
	t.Cleanup(sidecar.Close)
	return sidecar
}

func TestRuns(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		want map[string]float64
	}{
		"publish":       {[]string{"publish", "--events", "500"}, map[string]float64{"published": 500, "n": 500}},
		"publish http":  {[]string{"publish", "--events", "50", "--transport", "http"}, map[string]float64{"published": 50, "n": 50}},
		"publish batch": {[]string{"publish", "--events", "505", "--batch", "10"}, map[string]float64{"published": 505, "n": 505}},
		"subscribe": {[]string{"subscribe", "--events", "100", "--publish-rate", "5000"},
			map[string]float64{"consumed": 100, "n": 100}},
		"plain": {[]string{"subscribe", "--events", "100", "--publish-rate", "5000", "--no-group", "--connections", "2"},
			map[string]float64{"consumed": 200, "n": 200}},
		"drain": {[]string{"subscribe", "--events", "500", "--drain", "--max-batch", "10"}, map[string]float64{"consumed": 500}},
	} {
		t.Run(name, func(t *testing.T) {
			got := run(t, start(t, sluicetest.Options{}), test.args...)
			if got.status != 0 || got.stderr != "" {
				t.Fatalf("status %d, stderr %q", got.status, got.stderr)
			}
			for field, want := range test.want {
				if got.report[field] != want {
					t.Errorf("%s is %v, want %v", field, got.report[field], want)
				}
			}
			for _, field := range []string{"ms", "mps", "failed", "errors", "duplicates", "parameters"} {
				if _, ok := got.report[field]; !ok {
					t.Errorf("%s is missing", field)
				}
			}
			if _, ok := got.report["p999"]; ok == (name == "drain") {
				t.Errorf("p999 is %v", got.report["p999"])
			}
		})
	}
}

func TestARateLimitIsExplained(t *testing.T) {
	sidecar := start(t, sluicetest.Options{Refuse: func(*wire.Event) *wire.Error {
		return &wire.Error{Code: wire.RateLimited, Msg: "slow down", RetryAfter: time.Second}
	}})
	for _, args := range [][]string{{"publish"}, {"subscribe", "--drain"}, {"subscribe", "--publish-rate", "1000"}} {
		got := run(t, sidecar, args...)
		if got.status != 1 || !strings.Contains(got.stderr, "--policies bench/policies.yaml") || strings.Count(got.stderr, "\n") != 1 {
			t.Errorf("%v: status %d, stderr %q", args, got.status, got.stderr)
		}
	}
}

func TestFailedEventsFailTheRun(t *testing.T) {
	sidecar := start(t, sluicetest.Options{Refuse: func(e *wire.Event) *wire.Error {
		if e.Key == "key-1" {
			return wire.Errorf(wire.TopicPaused, "paused")
		}
		return nil
	}})
	got := run(t, sidecar, "publish", "--events", "100", "--keys", "4")
	if got.status != 1 || !strings.Contains(got.stderr, "25 events failed") || got.report["failed"] != 25.0 ||
		got.report["published"] != 75.0 {
		t.Errorf("status %d, stderr %q, report %v", got.status, got.stderr, got.report)
	}
}

func TestFlagsThatMakeNoSense(t *testing.T) {
	sidecar := start(t, sluicetest.Options{})
	for want, args := range map[string][]string{
		"--events is 0":          {"publish", "--events", "0"},
		"--size is 3":            {"publish", "--size", "3"},
		"--batch is 0":           {"publish", "--batch", "0"},
		"use --connections":      {"publish", "--transport", "http", "--depth", "2"},
		"--rate is -1":           {"publish", "--rate=-1"},
		"--window is 0":          {"subscribe", "--window", "0"},
		"can't be used together": {"subscribe", "--drain", "--publish-rate", "1"},
	} {
		if got := run(t, sidecar, args...); got.status != 2 || !strings.Contains(got.stderr, want) {
			t.Errorf("%v: status %d, stderr %q", args, got.status, got.stderr)
		}
	}
}

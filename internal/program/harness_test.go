package program

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/test/require"
)

// serverSettings has a flag of every kind that settings are made of.
type serverSettings struct {
	Listen   string            `default:"127.0.0.1:7070" help:"Where applications connect."`
	DataDir  string            `default:"${data_dir}" placeholder:"DIR" help:"Where the data lies."`
	Limit    int               `default:"7" help:"A number."`
	Ratio    float64           `default:"0.5" help:"A fraction."`
	Wait     time.Duration     `default:"30s" help:"A duration."`
	Insecure bool              `help:"A switch."`
	Durable  bool              `default:"true" negatable:"" help:"A switch that is on."`
	Mode     string            `enum:"fast,safe" default:"safe" help:"A choice."`
	Peers    []string          `help:"A list."`
	Sizes    []int             `help:"A list of numbers."`
	Header   []string          `sep:"none" help:"A list without a separator."`
	Labels   map[string]string `help:"A map."`
}

// outcome is what a program left behind.
type outcome struct {
	status         int
	stdout, stderr string
	settings       serverSettings
	ran            bool
}

// start runs a server with the given environment ("NAME=value"), configuration file ("" for none)
// and arguments.
func start(t *testing.T, env []string, file string, args ...string) outcome {
	t.Helper()
	if file != "" {
		args = append(args, "--config", writeFile(t, file))
	}
	var (
		got            outcome
		stdout, stderr bytes.Buffer
	)
	got.status = Run(Spec{
		Name:        "sluice-test",
		Description: "A program for tests.",
		Examples:    "sluice-test --listen 127.0.0.1:0\nsluice-test --config sluice.yaml",
		Settings:    &got.settings,
		Run: func(context.Context, *App) error {
			got.ran = true
			return nil
		},
	}, Process{Args: args, LookupEnv: lookup(env), Stdout: &stdout, Stderr: &stderr})
	got.stdout, got.stderr = stdout.String(), stderr.String()
	return got
}

func lookup(env []string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for _, variable := range env {
			if value, ok := strings.CutPrefix(variable, name+"="); ok {
				return value, true
			}
		}
		return "", false
	}
}

// writeFile writes config.yaml into a folder that becomes the working one, so that messages name it
// by that alone.
func writeFile(t *testing.T, content string) string {
	t.Helper()
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile("config.yaml", []byte(content), 0o600))
	return filepath.Clean("config.yaml")
}

func wantRan(t *testing.T, got outcome) {
	t.Helper()
	if !got.ran || got.status != StatusOK {
		t.Fatalf("ran %v, status %d, stderr %q", got.ran, got.status, got.stderr)
	}
}

// wantRefused checks for a configuration error: status 2 and exactly the given line.
func wantRefused(t *testing.T, got outcome, line string) {
	t.Helper()
	if got.ran || got.status != StatusUsage {
		t.Errorf("ran %v, status %d, want it refused with status 2", got.ran, got.status)
	}
	if want := "sluice-test: " + line + "\n"; got.stderr != want {
		t.Errorf("stderr\n got %q\nwant %q", got.stderr, want)
	}
}

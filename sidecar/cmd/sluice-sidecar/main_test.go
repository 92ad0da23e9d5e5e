package main

import (
	"bytes"
	"context"
	"log/slog"
	"reflect"
	"slices"
	"testing"

	"github.com/sluice-bus/sluice/internal/program"
	"github.com/sluice-bus/sluice/sidecar"
)

// configOf is the configuration by an environment and flags.
func configOf(t *testing.T, environment map[string]string, args ...string) (got sidecar.Config) {
	t.Helper()
	var s settings
	var stderr bytes.Buffer
	status := program.Run(program.Spec{
		Name: "sluice-sidecar", Description: "d", Settings: &s,
		Run: func(_ context.Context, app *program.App) (err error) {
			got, err = s.config(app)
			return err
		},
	}, program.Process{Args: args, Stdout: &stderr, Stderr: &stderr, LookupEnv: func(name string) (string, bool) {
		value, given := environment[name]
		return value, given
	}})
	if status != program.StatusOK {
		t.Fatalf("status %d: %s", status, stderr.String())
	}
	return got
}

// The defaults stand in the flags, for --help, and in sidecar.DefaultConfig.
func TestFlagDefaultsAreTheSidecars(t *testing.T) {
	got := configOf(t, nil)
	want := sidecar.DefaultConfig()
	want.DataDir, want.NodeID, want.Version = got.DataDir, got.NodeID, got.Version // of the machine
	want.Logger, got.Logger = slog.Default(), slog.Default()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("without settings:\n%+v\nwant the defaults:\n%+v", got, want)
	}
}

// An outbox and a captured collection on a replica set are given with all its servers.
func TestSourcesOnSeveralServers(t *testing.T) {
	const one, two = "mongodb://a,b,c/shop?replicaSet=rs0#outbox", "mongodb://d,e/shop#events"
	want := []string{one, two}
	for name, got := range map[string]sidecar.Config{
		"flags":       configOf(t, nil, "--outbox", one, "--outbox", two, "--capture", one, "--capture", two),
		"environment": configOf(t, map[string]string{"SLUICE_OUTBOX": one + " " + two, "SLUICE_CAPTURE": one + " " + two}),
	} {
		if !slices.Equal(got.Outboxes, want) || !slices.Equal(got.Captures, want) {
			t.Errorf("%s: outboxes %q and captures %q, want %q", name, got.Outboxes, got.Captures, want)
		}
		if err := got.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

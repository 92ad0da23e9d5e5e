package main

import (
	"bytes"
	"context"
	"reflect"
	"slices"
	"testing"

	"github.com/sluice-bus/sluice/internal/program"
	"github.com/sluice-bus/sluice/sidecar"
)

// configOf is the configuration by an environment and flags.
func configOf(t *testing.T, environment map[string]string, args ...string) (got sidecar.Config) {
	t.Helper()
	var stderr bytes.Buffer
	status := program.Run(program.Spec{
		Name: "sluice-sidecar", Description: "d", Settings: &got,
		Run: func(context.Context, *program.App) error { return nil },
	}, program.Process{Args: args, Stdout: &stderr, Stderr: &stderr, LookupEnv: func(name string) (string, bool) {
		value, given := environment[name]
		return value, given
	}})
	if status != program.StatusOK {
		t.Fatalf("status %d: %s", status, stderr.String())
	}
	return got
}

func TestDefaultsAreThoseOfTheFlags(t *testing.T) {
	got := configOf(t, nil)
	var want sidecar.Config
	program.Defaults(&want)
	want.DataDir, want.NodeID = got.DataDir, got.NodeID // of the machine
	if !reflect.DeepEqual(got, want) {
		t.Errorf("without settings:\n%+v\nwant the defaults:\n%+v", got, want)
	}
	if err := got.Validate(); err != nil {
		t.Errorf("the defaults are refused: %v", err)
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

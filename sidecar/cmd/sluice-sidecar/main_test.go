package main

import (
	"bytes"
	"context"
	"log/slog"
	"reflect"
	"testing"

	"github.com/sluice-bus/sluice/internal/program"
	"github.com/sluice-bus/sluice/sidecar"
)

// The defaults stand in the flags, for --help, and in sidecar.DefaultConfig.
func TestFlagDefaultsAreTheSidecars(t *testing.T) {
	var s settings
	var got sidecar.Config
	var stderr bytes.Buffer
	status := program.Run(program.Spec{
		Name: "sluice-sidecar", Description: "d", Settings: &s,
		Run: func(_ context.Context, app *program.App) (err error) {
			got, err = s.config(app)
			return err
		},
	}, program.Process{LookupEnv: func(string) (string, bool) { return "", false }, Stdout: &stderr, Stderr: &stderr})
	if status != program.StatusOK {
		t.Fatalf("status %d: %s", status, stderr.String())
	}
	want := sidecar.DefaultConfig()
	want.DataDir, want.NodeID, want.Version = got.DataDir, got.NodeID, got.Version // of the machine
	want.Logger, got.Logger = slog.Default(), slog.Default()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("without settings:\n%+v\nwant the defaults:\n%+v", got, want)
	}
}

// Command sluice-controlplane is the control plane: settings, signals, the ready line and the exit
// status around package controlplane.
package main

import (
	"context"

	"github.com/sluice-bus/sluice/controlplane"
	"github.com/sluice-bus/sluice/internal/access"
	"github.com/sluice-bus/sluice/internal/grpclogs"
	"github.com/sluice-bus/sluice/internal/otlp"
	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/internal/program"
)

const examples = `  sluice-controlplane
      One control plane with its policies in the default folder; the console is at http://127.0.0.1:7080/.
  sluice-controlplane --policies policies.yaml
      The same, which starts with the policies of a file.
  sluice-controlplane --store mongodb://db1,db2,db3/sluice?replicaSet=rs0
      One of several that serve the same policies.
  sluice-controlplane --auth-config auth.yaml --http-listen 0.0.0.0:7080 --xds-listen 0.0.0.0:18000
      For other machines too.
  sluice-sidecar --control-plane 127.0.0.1:18000
      A sidecar that takes its policies from here.`

func main() {
	var cfg controlplane.Config
	program.Main(program.Spec{
		Name: "sluice-controlplane",
		Description: "The control plane: keeps the policies of all topics, pushes them to every sidecar, " +
			"divides fleet-wide limits among them, and shows which sidecars refuse publishes to which topic.",
		Examples: examples,
		Settings: &cfg,
		Schemas: map[string]func() map[string]any{
			"policies":    policy.JSONSchema,
			"auth-config": func() map[string]any { return access.JSONSchema(access.ControlPlane) },
		},
		Server: true,
		Run:    func(ctx context.Context, app *program.App) error { return run(ctx, app, cfg) },
	})
}

func run(ctx context.Context, app *program.App, cfg controlplane.Config) (err error) {
	grpclogs.Redirect()
	cfg.Version, cfg.Hangups = app.Version, app.Hangups
	cfg.Exports, err = otlp.Open(ctx, otlp.Config{
		Service: app.Name, Version: app.Version, Instance: cfg.Name, Log: app.Logger, Console: app.Stderr,
	})
	if err != nil {
		return err
	}
	defer cfg.Exports.Close()
	cfg.Logger = cfg.Exports.Logger(app.Logger)
	cp, err := controlplane.New(ctx, cfg)
	if err != nil {
		return err
	}
	xds, http := cp.Addresses()
	return cp.Run(ctx, func() error {
		return app.Ready(program.Field{Name: "xds", Value: xds}, program.Field{Name: "http", Value: http})
	})
}

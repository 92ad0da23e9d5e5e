// Command sluice-injector is the webhook that adds a sidecar to Kubernetes pods: settings, signals,
// the ready line and the exit status around package injector.
package main

import (
	"context"

	"github.com/sluice-bus/sluice/controlplane/internal/injector"
	"github.com/sluice-bus/sluice/internal/program"
)

const examples = `  sluice-injector --tls-cert tls.crt --tls-key tls.key --image sluice-sidecar:1.0.0
      The webhook on loopback; deploy/helm/sluice runs it in a cluster.`

func main() {
	var cfg injector.Config
	program.Main(program.Spec{
		Name: "sluice-injector",
		Description: "A mutating webhook for Kubernetes: adds a sidecar to pods with the label sluice.dev/inject: \"true\", " +
			"with settings by their annotations.",
		Examples: examples,
		Settings: &cfg,
		Server:   true,
		Run: func(ctx context.Context, app *program.App) error {
			cfg.Version, cfg.Logger = app.Version, app.Logger
			return cfg.Run(ctx, func(address string) error { return app.Ready(program.Field{Name: "listen", Value: address}) })
		},
	})
}

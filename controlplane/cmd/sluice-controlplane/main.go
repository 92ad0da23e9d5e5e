// Command sluice-controlplane is the control plane: settings, signals, the ready line and the exit
// status around package controlplane.
package main

import (
	"context"
	"os"
	"time"

	"github.com/sluice-bus/sluice/controlplane"
	"github.com/sluice-bus/sluice/internal/otlp"
	"github.com/sluice-bus/sluice/internal/program"
	"github.com/sluice-bus/sluice/internal/setting"
)

// settings are the flags; each is also an environment variable and a key of the configuration file.
type settings struct {
	XDSListen  string `name:"xds-listen" default:"127.0.0.1:18000" placeholder:"ADDR" help:"gRPC for sidecars (xDS and rate limit quotas): host:port (port 0 picks one) or unix:/path."`
	HTTPListen string `name:"http-listen" default:"127.0.0.1:7080" placeholder:"ADDR" help:"REST API, console, health and metrics."`

	DataDir   string `default:"${data_dir}" placeholder:"DIR" help:"Folder of the embedded store."`
	Store     string `secret:"--store-file, or SLUICE_STORE" default:"embedded:" placeholder:"URL" help:"Policies and their history: embedded: keeps them in --data-dir; mongodb://… or mongodb+srv://… shares them with other control planes."`
	StoreFile string `placeholder:"FILE" help:"Read the URL of --store from this file: for URLs with a password."`
	Name      string `placeholder:"NAME" help:"Name of this control plane. Default: the host's name."`
	Policies  string `placeholder:"FILE" help:"YAML file with the policies of the first start; later starts leave the store as it is."`

	AuthConfig     string   `placeholder:"FILE" help:"YAML file with tokens, roles and TLS certificates; needed to listen beyond loopback."`
	AllowedOrigins []string `placeholder:"ORIGIN" help:"Web origins (https://host[:port]) beside the console's own whose pages may use the REST API."`
	Insecure       bool     `help:"Listen beyond loopback without authentication: everyone who reaches the port may change every limit."`

	DrainTimeout time.Duration `default:"5s" placeholder:"D" help:"Longest time that a graceful stop may take."`
	StoreTimeout time.Duration `default:"5s" placeholder:"D" help:"Longest time of one operation of a store in MongoDB."`
}

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
	var s settings
	program.Main(program.Spec{
		Name:        "sluice-controlplane",
		Description: "The control plane: keeps the policies of all topics, pushes them to every sidecar, divides fleet-wide limits among them, and shows which sidecars refuse publishes to which topic.",
		Examples:    examples,
		Settings:    &s,
		Run:         func(ctx context.Context, app *program.App) error { return run(ctx, app, &s) },
	})
}

func run(ctx context.Context, app *program.App, s *settings) error {
	store, err := setting.StoreOf(s.Store, s.StoreFile)
	if err != nil {
		return err
	}
	cfg := controlplane.Config{
		XDSListen: s.XDSListen, HTTPListen: s.HTTPListen,
		DataDir: s.DataDir, Store: store, Name: s.Name,
		Policies: s.Policies, AuthConfig: s.AuthConfig, AllowedOrigins: s.AllowedOrigins, Insecure: s.Insecure,
		DrainTimeout: s.DrainTimeout, StoreTimeout: s.StoreTimeout,
		Version: app.Version, Logger: app.Logger,
	}
	if cfg.Name == "" {
		host, err := os.Hostname()
		if err != nil {
			return program.Usagef("name: the host has no name to take as default: %w", err)
		}
		cfg.Name = host
	}
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
		return program.Ready(app.Stdout, program.Field{Name: "xds", Value: xds}, program.Field{Name: "http", Value: http})
	})
}

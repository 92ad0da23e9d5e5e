// Command sluice-sidecar is the sidecar: settings, signals, the ready line and the exit status
// around package sidecar.
package main

import (
	"context"
	"os"
	"sync"

	"github.com/sluice-bus/sluice/internal/access"
	"github.com/sluice-bus/sluice/internal/gcpace"
	"github.com/sluice-bus/sluice/internal/grpclogs"
	"github.com/sluice-bus/sluice/internal/otlp"
	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/internal/program"
	"github.com/sluice-bus/sluice/sidecar"
)

const examples = `  sluice-sidecar
      One sidecar with its log in the default folder.
  sluice-sidecar --data-dir /var/lib/sluice --policies policies.yaml
      Limits from a file, which may change while it runs.
  sluice-sidecar --control-plane 127.0.0.1:18000
      Limits from a control plane, tuned for all sidecars at once.
  sluice-sidecar --peers 10.0.0.2:8083,10.0.0.3:8083
      History of all of them from any of them, with scope=fleet.
  sluice-sidecar --store mongodb://db1,db2,db3/events?replicaSet=rs0
      One of many sidecars that share a log in MongoDB.
  sluice-sidecar --listen unix:/run/sluice.sock
      The app API on a socket that only this machine can reach.
  curl -d '{"hello":"world"}' http://127.0.0.1:7070/v1/topics/greetings/events
      Publish, once it is ready.
  sluice-sidecar verify|backup|restore --help
      Look for damage in a data folder, take a backup of it while it is used, and make a new one of that.`

func main() {
	if len(os.Args) > 1 {
		if command, ok := folderCommands()[os.Args[1]]; ok {
			command.Name = "sluice-sidecar"
			os.Args = append(os.Args[:1], os.Args[2:]...)
			program.Main(command)
		}
	}
	var cfg sidecar.Config
	program.Main(program.Spec{
		Name: "sluice-sidecar",
		Description: "The sidecar beside an application: takes its events over HTTP and WebSocket, " +
			"limits, deduplicates and stores them, and delivers them to consumer groups.",
		Examples: examples,
		Settings: &cfg,
		Schemas: map[string]func() map[string]any{
			"policies":    policy.JSONSchema,
			"push":        sidecar.PushSchema,
			"auth-config": func() map[string]any { return access.JSONSchema(access.Sidecar) },
		},
		Server: true,
		Run:    func(ctx context.Context, app *program.App) error { return run(ctx, app, cfg) },
	})
}

func run(ctx context.Context, app *program.App, cfg sidecar.Config) (err error) {
	grpclogs.Redirect()
	cfg.Version, cfg.Hangups = app.Version, app.Hangups
	cfg.DaprAppToken = os.Getenv("APP_API_TOKEN")
	cfg.Exports, err = otlp.Open(ctx, otlp.Config{
		Service: app.Name, Version: app.Version, Instance: cfg.NodeID, Log: app.Logger, Console: app.Stderr,
	})
	if err != nil {
		return err
	}
	defer cfg.Exports.Close()
	cfg.Logger, cfg.Recent = cfg.Exports.Logger(app.Logger), app.Recent
	sc, err := sidecar.New(ctx, cfg)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil // a signal arrived before it had started
	case err != nil:
		return err
	}
	if os.Getenv("GOGC") == "" {
		defer paceCollector(sc)()
	}
	listen, replay, ops, dapr := sc.Addresses()
	addresses := []program.Field{{Name: "listen", Value: listen}, {Name: "replay", Value: replay}, {Name: "ops", Value: ops}}
	if dapr != "" {
		addresses = append(addresses, program.Field{Name: "dapr_grpc", Value: dapr})
	}
	ready := func() error { return app.Ready(addresses...) }
	return sc.Run(ctx, ready)
}

// paceCollector keeps the garbage collector's headroom free of the memory that the log keeps for
// good, until end is called.
func paceCollector(sc *sidecar.Sidecar) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var pacing sync.WaitGroup
	pacing.Go(func() { gcpace.Follow(ctx, sc.HeapBytes) })
	return func() {
		cancel()
		pacing.Wait()
	}
}

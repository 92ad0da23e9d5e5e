package main

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/sluice-bus/sluice/internal/program"
	"github.com/sluice-bus/sluice/internal/setting"
	"github.com/sluice-bus/sluice/internal/terminal"
	"github.com/sluice-bus/sluice/sidecar/internal/store/shared"
)

// migrateSettings are the flags of sluice-sidecar migrate.
type migrateSettings struct {
	Store    string `secret:"" default:"embedded:" placeholder:"URL" help:"The store: mongodb://… or mongodb+srv://…"`
	Policies string `placeholder:"FILE" help:"YAML file with policies, whose dedupe.window says when remembered ids expire."`
	DryRun   bool   `help:"Change nothing, and list the changes."`
	JSON     bool   `name:"json" help:"Print the report as JSON."`
}

const migrateExamples = `  sluice-sidecar migrate --store mongodb://db1/events --dry-run
      What an upgrade would change in the database.
  sluice-sidecar migrate --store mongodb://db1/events --policies policies.yaml
      Indexes, and the times at which remembered ids expire.`

func migrateSpec() program.Spec {
	var s migrateSettings
	return program.Spec{
		Name: "migrate",
		Description: "Bring the indexes of a store in MongoDB, and the times at which its documents expire, as this version and the policies " +
			"require. Safe to run twice, and next to sidecars that use the store. Exit status 1: it could not be done or finished; " +
			"2: a setting has to change.",
		Examples: migrateExamples,
		Settings: &s,
		Run:      func(ctx context.Context, app *program.App) error { return migrate(ctx, app, &s) },
	}
}

func migrate(ctx context.Context, app *program.App, s *migrateSettings) error {
	bars := steps{app: app}
	report, err := shared.Migrate(ctx, shared.MigrateConfig{
		Store: s.Store, Policies: s.Policies, DryRun: s.DryRun, Progress: bars.show, Logger: app.Logger,
	})
	bars.end()
	var wrong *setting.Error
	if errors.As(err, &wrong) || report.Server == "" { // it was not reached
		return err
	}
	if s.JSON {
		enc := json.NewEncoder(app.Stdout)
		enc.SetIndent("", "  ")
		return errors.Join(err, enc.Encode(report))
	}
	return errors.Join(err, report.WriteTable(app.Stdout))
}

// steps shows a bar for one step after the other.
type steps struct {
	app  *program.App
	name string
	bar  *terminal.Progress
	done int64
}

func (b *steps) show(step string, done, total int64) {
	if b.bar == nil || step != b.name {
		b.end()
		b.name, b.bar, b.done = step, terminal.NewProgress(b.app.Stderr, step, total), 0
	}
	b.bar.Add(done - b.done)
	b.done = done
}

func (b *steps) end() {
	if b.bar != nil {
		b.bar.Finish()
		b.bar = nil
	}
}

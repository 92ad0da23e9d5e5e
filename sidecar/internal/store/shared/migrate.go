package shared

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/sluice-bus/sluice/internal/setting"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog"
	"github.com/sluice-bus/sluice/sidecar/internal/policyfile"
	"github.com/sluice-bus/sluice/sidecar/internal/retention"
)

// MigrateConfig is what a migration of a store in MongoDB needs.
type MigrateConfig struct {
	Store    string // a MongoDB connection string
	Policies string // a file; "": times that depend on policies stay
	DryRun   bool
	// Progress is called with the progress of a step; it may be nil.
	Progress func(step string, done, total int64)
	Logger   *slog.Logger
}

var errNotShared = errors.New("store: only a store in MongoDB is migrated (mongodb://… or mongodb+srv://…); " +
	"an embedded log migrates itself when it is opened")

// MigrateReport lists the changes that a migration made, or would make.
type MigrateReport = mongolog.MigrateReport

// Migrate gives the documents and collections of a store in MongoDB the indexes and expiry times
// that this version and the policies require. It is safe to run twice, and while sidecars use the
// store. An error about wrong settings is a *setting.Error.
func Migrate(ctx context.Context, cfg MigrateConfig) (MigrateReport, error) {
	if !setting.IsMongoDB(cfg.Store) {
		return MigrateReport{}, &setting.Error{Err: errNotShared}
	}
	o := mongolog.MigrateOptions{DryRun: cfg.DryRun, Progress: cfg.Progress}
	if cfg.Policies != "" {
		_, policies, err := policyfile.Open(cfg.Policies, cfg.Logger)
		if err != nil {
			return MigrateReport{}, &setting.Error{Err: fmt.Errorf("policies: %w", err)}
		}
		o.Retention = func(topic string) eventlog.Retention { return retention.Rules(policies.Load().Topic(topic)) }
	}
	log, err := mongolog.Open(mongolog.Options{URL: cfg.Store, NodeID: "migrate", Logger: cfg.Logger})
	if err != nil {
		return MigrateReport{}, &setting.Error{Err: err}
	}
	report, err := log.Migrate(ctx, o)
	if unsupported, is := errors.AsType[*mongolog.UnsupportedError](err); is {
		err = &setting.Error{Err: unsupported}
	}
	return report, errors.Join(err, log.Close())
}

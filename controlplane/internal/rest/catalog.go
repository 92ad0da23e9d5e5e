package rest

import (
	"context"

	"github.com/sluice-bus/sluice/controlplane/internal/catalog"
	"github.com/sluice-bus/sluice/internal/policy"
)

// Catalog is the policies and the ways to change them; a *[catalog.Catalog] is
// one. It is safe for concurrent use. A change is made whole or not at all, and
// its errors are *wire.Error where they are for the one who asked for it.
type Catalog interface {
	State() *catalog.State
	// Get returns a policy as it is now; the error is not_found.
	Get(name string) (catalog.Entry, error)
	// Put, Delete and Rollback ask permits before they change a policy, as of
	// the very state that they change: what it returns is their error.
	Put(ctx context.Context, by catalog.Author, p policy.Policy, permits catalog.Permits) (entry catalog.Entry, created bool, err error)
	Delete(ctx context.Context, by catalog.Author, name string, permits catalog.Permits) error
	Rollback(ctx context.Context, by catalog.Author, name string, version int64, permits catalog.Permits) (catalog.Entry, error)
	// PlanPut and PlanDelete say what Put and Delete would do.
	PlanPut(ctx context.Context, by catalog.Author, p policy.Policy, permits catalog.Permits) (catalog.Applied, error)
	PlanDelete(ctx context.Context, by catalog.Author, name string, permits catalog.Permits) (catalog.Applied, error)
	Apply(ctx context.Context, by catalog.Author, policies []policy.Policy, prune, dryRun bool) (catalog.Applied, error)
	NewSeries(ctx context.Context, by catalog.Author) (*catalog.State, error)
	// CheckSchema says why a schema could not become that of a policy; "" is the
	// compatibility in force.
	CheckSchema(ctx context.Context, name, text string, how policy.Compatibility) (reasons []string, err error)
	// History, Schemas and Audit are newest first.
	History(ctx context.Context, name string) ([]catalog.Version, error)
	Schemas(ctx context.Context, name string) ([]catalog.Schema, error)
	Audit(ctx context.Context, before int64, limit int) (records []catalog.Record, next int64, err error)
}

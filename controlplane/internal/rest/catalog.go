package rest

import (
	"context"
	"encoding/json"

	"github.com/sluice-bus/sluice/controlplane/internal/catalog"
	"github.com/sluice-bus/sluice/internal/policy"
)

// Catalog reads and changes the policies; a *[catalog.Catalog] is one. It is safe for concurrent
// use. A change is made completely or not at all, and its errors are *wire.Error if they are meant
// for the client.
type Catalog interface {
	State() *catalog.State
	// Get returns a policy as it is now; the error is not_found.
	Get(name string) (catalog.Entry, error)
	// Put, PutGroup, Delete and Rollback evaluate permits for the state that they change, and fail with its
	// error.
	Put(ctx context.Context, by catalog.Author, p policy.Policy, permits catalog.Permits, dryRun bool) (catalog.Applied, error)
	PutGroup(ctx context.Context, by catalog.Author, name, group string, limits json.RawMessage, permits catalog.Permits) (
		catalog.Applied, error)
	Delete(ctx context.Context, by catalog.Author, name string, permits catalog.Permits, dryRun bool) (catalog.Applied, error)
	Rollback(ctx context.Context, by catalog.Author, name string, version int64, permits catalog.Permits) (catalog.Entry, error)
	Apply(ctx context.Context, by catalog.Author, policies []policy.Policy, prune, dryRun bool) (catalog.Applied, error)
	NewSeries(ctx context.Context, by catalog.Author) (*catalog.State, error)
	// CheckSchema returns the reasons why a schema would be incompatible; "" is the compatibility
	// in force.
	CheckSchema(ctx context.Context, name, text string, how policy.Compatibility) (reasons []string, err error)
	// History, Schemas and Audit are newest first.
	History(ctx context.Context, name string) ([]catalog.Version, error)
	Schemas(ctx context.Context, name string) ([]catalog.Schema, error)
	Audit(ctx context.Context, before int64, limit int) (records []catalog.Record, next int64, err error)
}

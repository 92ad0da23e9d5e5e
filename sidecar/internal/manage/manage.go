// Package manage lets clients see and change what a store has: topics, groups, dead letters,
// scheduled events, single events, schemas and retention.
package manage

import (
	"context"
	"log/slog"
	"net/http"

	"github.com/sluice-bus/sluice/internal/access"
	"github.com/sluice-bus/sluice/internal/httpapi"
	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/group"
	"github.com/sluice-bus/sluice/sidecar/internal/group/deadletter"
	"github.com/sluice-bus/sluice/sidecar/internal/receive"
	"github.com/sluice-bus/sluice/sidecar/internal/session"
	"github.com/sluice-bus/sluice/sidecar/internal/topics"
)

// Log is what the routes need of the event log.
type Log interface {
	eventlog.Reader
	eventlog.Deleter
	eventlog.Redrives
	eventlog.Scheduler
	EnsureTopic(ctx context.Context, name string, partitions int) (eventlog.Topic, error)
}

// Spool has events that are not in the Log yet.
type Spool interface {
	// Holds reports whether the spool has events of a topic, and Waits whether it has a given
	// event.
	Holds(topic string) bool
	Waits(ctx context.Context, topic, id string) (bool, error)
	// Erase erases events here, and makes other sidecars erase theirs, and returns how many were
	// here.
	Erase(ctx context.Context, e eventlog.Erasure, r eventlog.Retention) (int, error)
}

// Config is what the routes need; every field but Spool is required.
type Config struct {
	Log      Log
	Spool    Spool // nil: events go directly into the Log
	Groups   *group.Manager
	Topics   *topics.Catalog
	Policies *policy.Current
	Bodies   *receive.Bodies
	Logger   *slog.Logger
	NodeID   string
	// Lookup finds events, including those that are not in the Log yet. StoreID identifies the Log.
	Lookup  deadletter.Lookup
	StoreID func() string
	// Erased drops the events of a topic from memory after some were erased, here and at other
	// sidecars. It does not affect Groups.
	Erased func(topic string)
	// LeavePulls ends the unused members that serve pulls from a topic, or from one of its groups.
	LeavePulls func(topic, group string)
	// Reread makes the capture to a topic publish all documents of its collection once more; the
	// error is not_found if there is none.
	Reread func(ctx context.Context, topic string) error
	// Context ends long changes.
	Context context.Context
}

type handlers struct{ Config }

// mayJoin reports whether the caller may subscribe to the topic in the path, with the group in the
// path.
func mayJoin(caller *session.Session, r *httpapi.Request) error {
	return caller.May(access.Subscribe, r.PathValue("topic"), r.PathValue("group"))
}

// reread begins a re-read of the collection that is captured to the topic in the path.
func (m *handlers) reread(caller *session.Session, w http.ResponseWriter, r *httpapi.Request) error {
	topic := r.PathValue("topic")
	if err := caller.May(access.Admin, topic, ""); err != nil {
		return err
	}
	if err := m.Reread(r.Context(), topic); err != nil {
		return err
	}
	w.WriteHeader(http.StatusAccepted)
	return nil
}

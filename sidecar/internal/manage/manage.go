// Package manage lets clients see and change what a store has: topics, groups, dead letters,
// scheduled events, single events, schemas and retention.
package manage

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"unicode/utf8"

	"golang.org/x/sync/semaphore"

	"github.com/sluice-bus/sluice/internal/access"
	"github.com/sluice-bus/sluice/internal/httpapi"
	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sdk/wire"
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

type handlers struct {
	Config
	plans *semaphore.Weighted // topics being counted
}

// Routes returns the routes.
func Routes(cfg Config) []session.Route {
	m := &handlers{cfg, semaphore.NewWeighted(maxPlans)}
	return []session.Route{
		{Pattern: "GET /v1/topics", Handler: session.Answer(m.listTopics), WhileStopping: true},
		{Pattern: "PUT /v1/topics/{topic}", Handler: m.makeTopic},
		{Pattern: "DELETE /v1/topics/{topic}", Handler: session.Answer(m.deleteTopic)},
		{Pattern: "GET /v1/topics/{topic}/schema", Handler: m.showSchema, WhileStopping: true},
		{Pattern: "GET /v1/topics/{topic}/retention", Handler: session.Answer(m.planRetention)},
		{Pattern: "GET /v1/topics/{topic}/events/{id}", Handler: session.Answer(m.showEvent), WhileStopping: true},
		{Pattern: "DELETE /v1/topics/{topic}/events", Handler: m.deleteEvents},
		{Pattern: "GET /v1/topics/{topic}/groups", Handler: session.Answer(m.listGroups), WhileStopping: true},
		{Pattern: "GET /v1/topics/{topic}/groups/{group}", Handler: session.Answer(m.showGroup), WhileStopping: true},
		{Pattern: "DELETE /v1/topics/{topic}/groups/{group}", Handler: session.Answer(m.deleteGroup), WhileStopping: true},
		{Pattern: "PUT /v1/topics/{topic}/groups/{group}/cursor", Handler: session.Answer(m.moveGroup)},
		{Pattern: "GET /v1/topics/{topic}/scheduled", Handler: session.Answer(m.listScheduled), WhileStopping: true},
		{Pattern: "DELETE /v1/topics/{topic}/scheduled/{id}", Handler: m.cancelScheduled},
		{Pattern: "GET /v1/topics/{topic}/dlq", Handler: session.Answer(m.listDeadLetters), WhileStopping: true},
		{Pattern: "POST /v1/topics/{topic}/dlq/redrive", Handler: m.changeDead(m.planRedrive)},
		{Pattern: "POST /v1/topics/{topic}/dlq/discard", Handler: m.changeDead(m.planDiscard)},
		{Pattern: "POST /v1/captures/{topic}/reread", Handler: m.reread},
	}
}

// mayJoin reports whether the caller may subscribe to the topic in the path, with the group in the
// path.
func mayJoin(caller *session.Session, r *http.Request) error {
	return caller.May(access.Subscribe, r.PathValue("topic"), r.PathValue("group"))
}

// reread begins a re-read of the collection that is captured to the topic in the path.
func (m *handlers) reread(caller *session.Session, w http.ResponseWriter, r *http.Request) error {
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

// dryRun reports whether the request must not change anything.
func dryRun(r *http.Request) (bool, error) {
	p, err := httpapi.ParseParams(r.URL.RawQuery)
	if err != nil {
		return false, err
	}
	return p.DryRun()
}

// decodeBody reads a body that is a JSON object. Its errors use kinds, the type of each member, and
// object, a description of the whole.
func decodeBody(content []byte, to any, object string, kinds map[string]string) *wire.Error {
	if !utf8.Valid(content) {
		return wire.Errorf(wire.BadJSON, "the body is not JSON: it is not valid UTF-8")
	}
	err := json.Unmarshal(content, to)
	if err == nil {
		return nil
	}
	wrong, is := errors.AsType[*json.UnmarshalTypeError](err)
	if !is {
		return wire.Errorf(wire.BadJSON, "the body is not JSON: %v", err)
	}
	field, _, _ := strings.Cut(wrong.Field, ".")
	if kinds[field] == "" {
		return wire.Errorf(wire.BadRequest, "the body must be a JSON object with %s", object)
	}
	return wire.Errorf(wire.BadRequest, "%s must be a %s, and not a %s", field, kinds[field], wrong.Value)
}

package manage

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/sluice-bus/sluice/internal/access"
	"github.com/sluice-bus/sluice/internal/httpapi"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/session"
)

// life is the body of GET /v1/topics/{topic}/events/{id}: an event, where it is stored, and its
// fate in each group.
type life struct {
	Event      json.RawMessage  `json:"event" schema:"Event"`
	AcceptedAt string           `json:"accepted_at"`
	Stored     *storedAt        `json:"stored,omitempty"`  // either, or
	Spooled    *spooledAt       `json:"spooled,omitempty"` // in the spool, on its way to the store
	Groups     []wire.EventFate `json:"groups"`
	TraceID    string           `json:"trace_id,omitempty"`
}

// storedAt is the store that has an event, and the sidecar that was asked.
type storedAt struct {
	StoreID   string `json:"store_id"`
	NodeID    string `json:"node_id"`
	Partition int    `json:"partition"`
	Seq       uint64 `json:"seq"`
}

// spooledAt is the sidecar that has an event in its spool.
type spooledAt struct {
	NodeID string `json:"node_id"`
}

// showEvent answers with the life of an event so far.
func (m *handlers) showEvent(caller *session.Session, _ http.ResponseWriter, r *httpapi.Request) (any, error) {
	topic, id := r.PathValue("topic"), r.PathValue("id")
	if bad := codec.CheckID(id); bad != nil {
		return nil, bad
	}
	if err := caller.MayRead(topic); err != nil {
		return nil, err
	}
	rec, err := m.Lookup(r.Context(), topic, id)
	if errors.Is(err, eventlog.ErrNotFound) {
		return nil, wire.Errorf(wire.NotFound, "topic %s has no event %q: it never had, or it is scheduled, or retention or compaction "+
			"removed it", topic, id)
	}
	if err != nil {
		return nil, err
	}
	l := life{
		Event:      codec.AppendEventJSON(nil, &rec.Event),
		AcceptedAt: time.UnixMilli(rec.AcceptedAt).UTC().Format("2006-01-02T15:04:05.000Z07:00"),
		Groups:     []wire.EventFate{}, // [] rather than null
		TraceID:    traceID(rec.Headers),
	}
	if rec.Spooled {
		l.Spooled = &spooledAt{NodeID: m.NodeID} // no group gets it from the spool
		return l, nil
	}
	l.Stored = &storedAt{StoreID: m.StoreID(), NodeID: m.NodeID, Partition: rec.Partition, Seq: rec.Seq}
	sees := func(name string) bool { return caller.May(access.Subscribe, topic, name) == nil }
	l.Groups, err = m.Groups.Fates(r.Context(), rec, sees, m.Lookup)
	return l, err
}

// traceID is the trace that an event belongs to, "" if to none: the second part of its traceparent.
func traceID(h wire.Headers) string {
	parent, _ := h.Get("traceparent")
	parts := strings.Split(parent, "-")
	if len(parts) < 4 || len(parts[1]) != 32 {
		return ""
	}
	return parts[1]
}

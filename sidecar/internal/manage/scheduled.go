package manage

import (
	"context"
	"net/http"

	"github.com/sluice-bus/sluice/internal/access"
	"github.com/sluice-bus/sluice/internal/httpapi"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/session"
)

// scheduledInfo is a scheduled event in the answer to GET …/scheduled.
type scheduledInfo struct {
	ID        string `json:"id"`
	Key       string `json:"key,omitempty"`
	DeliverAt int64  `json:"deliver_at"`
}

type scheduledList struct {
	Total     int64           `json:"total"`
	Scheduled []scheduledInfo `json:"scheduled"`
	Next      string          `json:"next,omitempty"`
}

// listScheduled lists the events of a topic that are not due yet.
func (m *handlers) listScheduled(caller *session.Session, _ http.ResponseWriter, r *httpapi.Request) (any, error) {
	if err := mayJoin(caller, r); err != nil {
		return nil, err
	}
	topic := r.PathValue("topic")
	limit, cursor, err := limitAndCursor(r)
	if err != nil {
		return nil, err
	}
	after := pointIn(cursor)
	if cursor != "" && after == nil {
		return nil, errCursor()
	}
	l := scheduledList{Scheduled: []scheduledInfo{}} // [] rather than null
	found, err := m.Log.ListScheduled(r.Context(), topic, after, limit+1)
	if err == nil {
		var all eventlog.Waiting
		all, err = m.Log.CountScheduled(r.Context(), topic)
		l.Total = all.Events
	}
	if notFound(err) {
		return l, nil
	}
	for _, e := range found[:min(len(found), limit)] {
		info := scheduledInfo{ID: e.ID, DeliverAt: e.DeliverAt}
		if caller.SeesContent() {
			info.Key = e.Key
		}
		l.Scheduled = append(l.Scheduled, info)
	}
	if len(found) > limit {
		last := &found[limit-1]
		l.Next = nextCursor(pointText(last.DeliverAt, last.ID))
	}
	return l, err
}

// cancelScheduled cancels a scheduled event.
func (m *handlers) cancelScheduled(caller *session.Session, w http.ResponseWriter, r *httpapi.Request) error {
	topic, id := r.PathValue("topic"), r.PathValue("id")
	if bad := codec.CheckTopic(topic); bad != nil {
		return bad
	}
	if bad := codec.CheckID(id); bad != nil {
		return bad
	}
	if err := caller.May(access.Publish, topic, ""); err != nil {
		return err
	}
	// The spool would store a cancelled event again.
	if m.Spool != nil {
		if waits, err := m.Spool.Waits(r.Context(), topic, id); err != nil {
			return err
		} else if waits {
			return errOnItsWay(topic)
		}
	}
	err := m.Log.Cancel(r.Context(), topic, id)
	switch {
	case notFound(err) && m.Spool != nil && m.Spool.Holds(topic):
		return errOnItsWay(topic)
	case notFound(err):
		return wire.Errorf(wire.NotFound, "no event %q is scheduled for topic %s: it is in the log already, was cancelled, or never was",
			id, topic)
	}
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
	}
	return err
}

// eraseScheduled cancels the selected events that are scheduled, and returns their number.
func (m *handlers) eraseScheduled(ctx context.Context, e eventlog.Erasure) (n int, err error) {
	cancel := func(id string) error {
		err := m.Log.Cancel(ctx, e.Topic, id)
		if err == nil {
			n++
		} else if notFound(err) {
			return nil // it is in the log by now, or was cancelled
		}
		return err
	}
	if e.By == eventlog.ErasedByID {
		err = cancel(e.Value)
		return n, err
	}
	var after *eventlog.Point
	for {
		page, err := m.Log.ListScheduled(ctx, e.Topic, after, maxPage)
		if notFound(err) || err == nil && len(page) == 0 {
			return n, nil
		}
		if err != nil {
			return n, err
		}
		for _, w := range page {
			if w.Key == e.Value {
				if err := cancel(w.ID); err != nil {
					return n, err
				}
			}
			after = &eventlog.Point{TS: w.DeliverAt, ID: w.ID}
		}
	}
}

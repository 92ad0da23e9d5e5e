package gateway

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-bus/sluice/internal/access"
	"github.com/sluice-bus/sluice/internal/httpapi"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/refusal"
)

// The extensions that set the delivery time of a CloudEvent.
const (
	ceDeliverAt = "deliverat"
	ceDelay     = "delayms"
)

// laterOf reads the delivery time of an event from the request's headers.
func laterOf(h http.Header) (l wire.Later, err *wire.Error) {
	for name, to := range map[string]**int64{headerDeliverAt: &l.DeliverAt, headerDelay: &l.DelayMS} {
		value, given, err := singleHeader(h, name)
		if err != nil {
			return l, err
		}
		if !given {
			continue
		}
		if *to = wholeMS(value); *to == nil {
			return l, wire.Errorf(wire.BadRequest, "header %s is %q; a whole number of milliseconds is allowed", name, refusal.Shorten(value))
		}
	}
	return l, nil
}

// wholeMS is a whole number of milliseconds, nil if the text is none.
func wholeMS(text string) *int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > wire.MaxTS || text[0] == '+' {
		return nil
	}
	return &n
}

// timeMS is a time in milliseconds since the epoch, from a number or the format of RFC 3339.
func timeMS(text string) *int64 {
	if t, err := time.Parse(time.RFC3339Nano, strings.ToUpper(text)); err == nil && t.UnixMilli() >= 0 {
		ms := t.UnixMilli()
		return &ms
	}
	return wholeMS(text)
}

// later reads the delivery time of a CloudEvent.
func (a attributes) later(l *wire.Later) *wire.Error {
	for _, of := range []struct {
		name, kind string
		read       func(string) *int64
		to         **int64
	}{
		{ceDeliverAt, "a time, in milliseconds since the epoch or as RFC 3339 writes it, is", timeMS, &l.DeliverAt},
		{ceDelay, "a whole number of milliseconds is", wholeMS, &l.DelayMS},
	} {
		value, given := a[of.name]
		if !given {
			continue
		}
		at := of.read(value)
		if at == nil {
			return wire.Errorf(wire.BadRequest, "the CloudEvent's attribute %s is %q; %s allowed", of.name, refusal.Shorten(value), of.kind)
		}
		if *of.to != nil && **of.to != *at {
			return wire.Errorf(wire.BadRequest, "the CloudEvent's attribute %s and the request's header for the same differ: an event is due once", of.name)
		}
		*of.to = at
	}
	return nil
}

// setLater reads the delivery time of an event, by the names that Dapr uses for it with other
// brokers.
func (m *daprMetadata) setLater(name, value string) *wire.Error {
	if strings.EqualFold(name, "deliverAt") {
		if m.later.DeliverAt = timeMS(value); m.later.DeliverAt == nil {
			return wire.Errorf(wire.BadRequest, "metadata.deliverAt is %q; a time as RFC 3339 writes it, or in milliseconds since the epoch, is allowed", refusal.Shorten(value))
		}
		return nil
	}
	d, err := time.ParseDuration(value)
	if err != nil || d < 0 {
		return wire.Errorf(wire.BadRequest, "metadata.deliverAfter is %q; a duration like 1h30m is allowed", refusal.Shorten(value))
	}
	ms := d.Milliseconds()
	m.later.DelayMS = &ms
	return nil
}

// scheduledInfo is a scheduled event in the answer to GET …/scheduled.
type scheduledInfo struct {
	ID        string `json:"id"`
	Key       string `json:"key,omitempty"`
	DeliverAt int64  `json:"deliver_at"`
}

// listScheduled lists the events of a topic that are not due yet.
func (g *Gateway) listScheduled(_ http.ResponseWriter, r *http.Request) (any, error) {
	if err := g.mayJoin(r); err != nil {
		return nil, err
	}
	topic := r.PathValue("topic")
	p, err := httpapi.ParseParams(r.URL.RawQuery)
	if err != nil {
		return nil, err
	}
	limit, cursor, err := limitAndCursor(p)
	if err != nil {
		return nil, err
	}
	after := pointIn(cursor)
	if cursor != "" && after == nil {
		return nil, errCursor()
	}
	l := struct {
		Total     int64           `json:"total"`
		Scheduled []scheduledInfo `json:"scheduled"`
		Next      string          `json:"next,omitempty"`
	}{Scheduled: []scheduledInfo{}} // [] rather than null
	found, err := g.cfg.Log.ListScheduled(r.Context(), topic, after, limit+1)
	if err == nil {
		l.Total, err = g.cfg.Log.CountScheduled(r.Context(), topic)
	}
	if notFound(err) {
		return l, nil
	}
	for _, e := range found[:min(len(found), limit)] {
		l.Scheduled = append(l.Scheduled, scheduledInfo{ID: e.ID, Key: e.Key, DeliverAt: e.DeliverAt})
	}
	if len(found) > limit {
		last := &found[limit-1]
		l.Next = nextCursor(pointText(last.DeliverAt, last.ID))
	}
	return l, err
}

// cancelScheduled cancels a scheduled event.
func (g *Gateway) cancelScheduled(w http.ResponseWriter, r *http.Request) error {
	topic, id := r.PathValue("topic"), r.PathValue("id")
	if bad := codec.CheckTopic(topic); bad != nil {
		return bad
	}
	if bad := codec.CheckID(id); bad != nil {
		return bad
	}
	if err := g.may(r, access.Publish, topic, ""); err != nil {
		return err
	}
	// The spool would store a cancelled event again.
	if g.cfg.Spool != nil {
		if waits, err := g.cfg.Spool.Waits(r.Context(), topic, id); err != nil {
			return err
		} else if waits {
			return errOnItsWay(topic)
		}
	}
	err := g.cfg.Log.Cancel(r.Context(), topic, id)
	switch {
	case notFound(err) && g.cfg.Spool != nil && g.cfg.Spool.Holds(topic):
		return errOnItsWay(topic)
	case notFound(err):
		return wire.Errorf(wire.NotFound, "no event with this id is scheduled: it is in the log already, was cancelled, or never was")
	}
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
	}
	return err
}

// eraseScheduled cancels the selected events that are scheduled, and returns their number.
func (g *Gateway) eraseScheduled(ctx context.Context, e eventlog.Erasure) (n int, err error) {
	cancel := func(id string) error {
		err := g.cfg.Log.Cancel(ctx, e.Topic, id)
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
		page, err := g.cfg.Log.ListScheduled(ctx, e.Topic, after, maxPage)
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

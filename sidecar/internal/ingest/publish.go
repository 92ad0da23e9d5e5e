package ingest

import (
	"context"

	"github.com/sluice-bus/sluice/internal/access"
	"github.com/sluice-bus/sluice/internal/httpapi"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/admit"
	"github.com/sluice-bus/sluice/sidecar/internal/audit"
	"github.com/sluice-bus/sluice/sidecar/internal/receive"
	"github.com/sluice-bus/sluice/sidecar/internal/session"
)

// Config is what the routes need; every field but About and AppID is required.
type Config struct {
	Publisher *admit.Publisher
	Bodies    *receive.Bodies
	Limits    wire.Limits
	Ready     func() bool // publishes are accepted
	AppID     string      // of the application that was written for Dapr; "" where it has none
	About     httpapi.About
}

type handlers struct{ Config }

// publish admits the items of a request, all of the path's topic, and waits for their results. bad
// is why the request was refused before; publish counts that. If the client leaves first, the
// events may be stored nevertheless.
func (h *handlers) publish(caller *session.Session, r *httpapi.Request, items []wire.PublishItem, bad *wire.Error) (
	results []wire.ResultItem, err error,
) {
	return h.Publish(r.Context(), caller, r.PathValue("topic"), items, bad)
}

// Publish is publish for the items of a call.
func (h Config) Publish(ctx context.Context, caller *session.Session, topic string, items []wire.PublishItem, bad *wire.Error) (
	results []wire.ResultItem, err error,
) {
	audit.WritesLines(ctx)
	who := caller.Identity()
	if bad != nil {
		h.Publisher.Refused(topic, bad.Code, 1)
		caller.NotePublished(who, Undecoded(topic), nil, bad)
		return nil, bad
	}
	if err := caller.May(access.Publish, topic, ""); err != nil {
		h.Publisher.Refused(topic, wire.AsError(err).Code, max(len(items), 1))
		if len(items) == 0 {
			items = Undecoded(topic)
		}
		caller.NotePublished(who, items, nil, err)
		return nil, err
	}
	if len(items) == 0 {
		caller.Note(who, audit.Publish, topic, "", nil)
		return nil, nil
	}
	answered := make(chan []wire.ResultItem, 1)
	done := func(results []wire.ResultItem) { // also after the client has left: the events are stored
		caller.NotePublished(who, items, results, nil)
		answered <- results
	}
	if bad := h.Publisher.Publish(caller.Attribute(ctx), caller.Publishes, items, done); bad != nil {
		caller.NotePublished(who, items, nil, bad)
		return nil, bad
	}
	select {
	case results := <-answered:
		return results, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Undecoded stands in the access log for the events of a publish that could not be read.
func Undecoded(topic string) []wire.PublishItem {
	return []wire.PublishItem{{Event: wire.Event{Topic: topic}}}
}

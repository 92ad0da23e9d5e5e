package ingest

import (
	"context"
	"net/http"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/sidecar/internal/session"
)

// DaprCall is what a client of Dapr publishes by a call.
type DaprCall struct {
	Topic    string
	Trace    http.Header // traceparent, tracestate and baggage, if the call has them
	Metadata map[string]string
	Entries  []DaprCallEntry
}

// DaprCallEntry is one event of it.
type DaprCallEntry struct {
	Data        []byte
	ContentType string
	Metadata    map[string]string
}

// PublishCall publishes the events of a call, as the routes for clients of Dapr do, and returns a result for each. An
// error refuses all of them.
func (h Config) PublishCall(ctx context.Context, caller *session.Session, call *DaprCall) ([]wire.ResultItem, error) {
	items, bad := h.readCall(call)
	return h.Publish(ctx, caller, call.Topic, items, bad)
}

func (h Config) readCall(call *DaprCall) (items []wire.PublishItem, bad *wire.Error) {
	if bad := codec.CheckTopic(call.Topic); bad != nil {
		return nil, bad
	}
	switch n := len(call.Entries); {
	case n == 0:
		return nil, errEmptyBatch()
	case n > h.Limits.BatchEvents:
		return nil, errBatchTooLarge(h.Limits)
	}
	meta := daprMetadata{appID: h.AppID}
	if bad := meta.setAll(call.Metadata); bad != nil {
		return nil, bad
	}
	for i := range call.Entries {
		it, bad := h.readEntry(call, meta, &call.Entries[i])
		if bad != nil {
			it = wire.PublishItem{Event: wire.Event{Topic: call.Topic}, Err: bad}
		}
		items = append(items, it)
	}
	return items, nil
}

func (h Config) readEntry(call *DaprCall, meta daprMetadata, en *DaprCallEntry) (it wire.PublishItem, bad *wire.Error) {
	if bad := meta.setAll(en.Metadata); bad != nil {
		return it, bad
	}
	header := http.Header{}
	if en.ContentType != "" {
		header.Set("Content-Type", en.ContentType)
	}
	for name, values := range call.Trace {
		header[name] = values
	}
	head, bad := readHead(header)
	if bad != nil {
		return it, bad
	}
	head.defaultToText()
	if most := meta.kind(&head).maxBytes(h.Limits); len(en.Data) > most {
		return it, wire.Errorf(wire.PayloadTooLarge, "the event has %d bytes; at most %d are allowed (--limits payload)", len(en.Data), most)
	}
	return meta.item(call.Topic, head, en.Data, h.Limits)
}

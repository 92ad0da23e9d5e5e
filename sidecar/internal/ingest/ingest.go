// Package ingest makes events of what HTTP clients send, and publishes them: payloads of any type
// with headers beside them, NDJSON, CloudEvents, and what applications with Dapr's API send.
package ingest

import (
	"net/http"

	"github.com/sluice-bus/sluice/internal/httpapi"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/sidecar/internal/session"
)

// publishHTTP publishes the body as one event, or its parts as a batch.
func (h *handlers) publishHTTP(caller *session.Session, w http.ResponseWriter, r *httpapi.Request) error {
	kind, items, bad := h.read(caller, w, r)
	results, err := h.publish(caller, r, items, bad)
	switch {
	case err != nil:
		return err
	case kind.isBatch():
		httpapi.WriteJSON(w, http.StatusOK, codec.AppendResultsBody(nil, results))
		return nil
	case results[0].Err != nil:
		return results[0].Err
	}
	receipt := &results[0].Receipt
	httpapi.WriteJSON(w, statusOf(receipt), codec.AppendReceiptBody(nil, receipt))
	return nil
}

// statusOf is the status of a publish that was accepted.
func statusOf(r *wire.Receipt) int {
	switch {
	case r.Spooled, r.DeliverAt != 0 && !r.Duplicate:
		return http.StatusAccepted
	case r.Duplicate:
		return http.StatusOK
	}
	return http.StatusCreated
}

// read makes the events of a request.
func (h *handlers) read(caller *session.Session, w http.ResponseWriter, r *httpapi.Request) (kind, []wire.PublishItem, *wire.Error) {
	topic := r.PathValue("topic")
	if bad := codec.CheckTopic(topic); bad != nil {
		return 0, nil, bad
	}
	head, bad := readHead(r.Header)
	if bad != nil {
		return 0, nil, bad
	}
	content, bad := h.Bodies.Read(caller.Share(), w, r.Request, head.kind.maxBytes(h.Limits))
	if bad != nil {
		return 0, nil, bad
	}
	items, bad := itemsOf(topic, &head, content, h.Limits)
	return head.kind, items, bad
}

package ingest

import (
	"bytes"
	"slices"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
)

// itemsOf makes the events of a request, within the limits.
func itemsOf(topic string, h *head, content []byte, lim wire.Limits) ([]wire.PublishItem, *wire.Error) {
	if h.kind.isBatch() {
		read := lineItems
		if h.kind == batchedBody {
			read = batchedItems
		}
		items, bad := read(topic, h, content, lim)
		shareTrace(items, h.trace(lim))
		return items, bad
	}
	it, bad := itemOf(topic, h, content, lim)
	if bad != nil {
		return nil, bad
	}
	return []wire.PublishItem{it}, nil
}

// trace is the trace of a request with a batch; nil: it has none.
func (h *head) trace(lim wire.Limits) wire.Headers {
	trace, bad := h.eventHeaders(lim)
	if bad != nil {
		return nil
	}
	return trace
}

// shareTrace lets the events of a batch that have no trace of their own continue the batch's.
func shareTrace(items []wire.PublishItem, trace wire.Headers) {
	if _, traced := trace.Get(ceTrace[0]); !traced {
		return
	}
	for i := range items {
		e := &items[i].Event
		if _, own := e.Headers.Get(ceTrace[0]); own || items[i].Err != nil {
			continue
		}
		for _, t := range trace {
			if _, own := e.Headers.Get(t.Name); !own {
				e.Headers = append(slices.Clip(e.Headers), t)
			}
		}
	}
}

// itemOf makes one event of a request that is no batch.
func itemOf(topic string, h *head, content []byte, lim wire.Limits) (it wire.PublishItem, bad *wire.Error) {
	it.Event.Topic = topic
	if bad = h.fill(&it, lim); bad != nil {
		return it, bad
	}
	switch h.kind {
	case binaryBody:
		return it, fillFromBinary(&it, h, content, lim)
	case structuredBody:
		return it, fillFromJSON(&it, content, lim)
	case bytesBody:
		it.Event.Payload, it.Event.Binary = content, true
		return it, codec.CheckPayloadBytes(content, lim)
	}
	it.Event.Payload, bad = codec.CompactPayload(content, lim)
	return it, bad
}

// FromFrame returns the events of a PUBLISH.
func FromFrame(req *codec.Request) ([]wire.PublishItem, *wire.Error) {
	switch {
	case !req.IsBatch:
		return []wire.PublishItem{req.Publish}, nil
	case len(req.Events) == 0:
		return nil, errEmptyBatch()
	}
	shareTrace(req.Events, req.Trace)
	return req.Events, nil
}

// lineItems makes an event of every line that is not blank.
func lineItems(topic string, h *head, content []byte, lim wire.Limits) (items []wire.PublishItem, bad *wire.Error) {
	if name := h.ofOneEvent(); name != "" {
		return nil, wire.Errorf(wire.BadRequest, "header %s is about one event: in a batch give each line its own opts", name)
	}
	for line := range bytes.Lines(content) {
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		if len(items) == lim.BatchEvents {
			return nil, errBatchTooLarge(lim)
		}
		it := codec.ParsePublishLine(line, lim)
		it.Event.Topic = topic
		items = append(items, it)
	}
	if len(items) == 0 {
		return nil, errEmptyBatch()
	}
	return items, nil
}

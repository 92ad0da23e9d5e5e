package ingest

import (
	"bytes"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/sidecar/internal/refusal"
)

// itemsOf makes the events of a request, within the limits.
func itemsOf(topic string, h *head, content []byte, lim wire.Limits) ([]wire.PublishItem, *wire.Error) {
	switch h.kind {
	case linesBody:
		return lineItems(topic, h, content, lim)
	case batchedBody:
		return batchedItems(topic, h, content, lim)
	}
	it, bad := itemOf(topic, h, content, lim)
	if bad != nil {
		return nil, bad
	}
	return []wire.PublishItem{it}, nil
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

func errBatchTooLarge(lim wire.Limits) *wire.Error {
	return wire.Errorf(wire.PayloadTooLarge, "the batch holds more than the %d events that are allowed", lim.BatchEvents)
}

// errEmptyBatch refuses a batch without events.
func errEmptyBatch() *wire.Error {
	return wire.Errorf(wire.BadRequest, "the batch is empty: at least one event is needed")
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

// ttlMS reads a ttl in units of so many milliseconds.
func ttlMS(name, value string, unit int64) (int64, *wire.Error) {
	n, err := strconv.ParseUint(value, 10, 63)
	if err != nil || n < 1 || n > uint64(wire.MaxTTLMS/unit) {
		return 0, wire.Errorf(wire.BadRequest, "%s is %q; a whole number from 1 to %d is allowed",
			name, refusal.Shorten(value), wire.MaxTTLMS/unit)
	}
	return int64(n) * unit, nil
}

package gateway

import (
	"bytes"
	"net/http"

	"github.com/sluice-bus/sluice/internal/access"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/sidecar/internal/refusal"
)

// jsonSlack is how many times as long as the compact payload its JSON text in a request may be.
const jsonSlack = 2

// publishHTTP publishes the body as one event, or its lines as a batch.
func (g *Gateway) publishHTTP(w http.ResponseWriter, r *http.Request) error {
	var kind body
	results, err := g.publish(r, func(topic string) (items []wire.PublishItem, bad *wire.Error) {
		if kind, bad = bodyOf(r.Header); bad != nil {
			return nil, bad
		}
		content, bad := g.readBody(w, r, kind)
		if bad != nil {
			return nil, bad
		}
		switch kind {
		case linesBody:
			return itemsOf(topic, r.Header, content, g.cfg.Limits)
		case batchedBody:
			return batchedItemsOf(topic, r.Header, content, g.cfg.Limits)
		}
		it, bad := itemOf(topic, r.Header, kind, content, g.cfg.Limits)
		return []wire.PublishItem{it}, bad
	})
	switch {
	case err != nil:
		return err
	case kind == linesBody || kind == batchedBody:
		writeJSON(w, http.StatusOK, codec.AppendResultsBody(nil, results))
		return nil
	case results[0].Err != nil:
		return results[0].Err
	}
	receipt := &results[0].Receipt
	writeJSON(w, statusOf(receipt), codec.AppendReceiptBody(nil, receipt))
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

// readBody reads the whole body, unless it is longer than its kind allows: then it does not read to
// the end.
func (g *Gateway) readBody(w http.ResponseWriter, r *http.Request, kind body) ([]byte, *wire.Error) {
	most := map[body]int{
		jsonBody: jsonSlack * g.cfg.Limits.PayloadBytes, bytesBody: g.cfg.Limits.PayloadBytes, linesBody: g.cfg.Limits.BatchBytes,
		binaryBody: jsonSlack * g.cfg.Limits.PayloadBytes, batchedBody: g.cfg.Limits.BatchBytes,
		structuredBody: jsonSlack * (g.cfg.Limits.PayloadBytes + g.cfg.Limits.HeaderBytes),
	}[kind]
	return g.readAtMost(w, r, most)
}

// itemsOf makes an event of every line that is not blank.
func itemsOf(topic string, h http.Header, content []byte, lim wire.Limits) ([]wire.PublishItem, *wire.Error) {
	if name := headerOfOne(h); name != "" {
		return nil, wire.Errorf(wire.BadRequest, "header %s is about one event: in a batch give each line its own opts", name)
	}
	var items []wire.PublishItem
	for line := range bytes.Lines(content) {
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		if len(items) == lim.BatchEvents {
			return nil, wire.Errorf(wire.PayloadTooLarge, "the batch holds more than the %d events that are allowed", lim.BatchEvents)
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

// headerOfOne is a header of the request that describes a single event; "": there is none.
func headerOfOne(h http.Header) string {
	for _, name := range []string{headerIdempotencyKey, headerID, headerKey, headerTS, headerDeliverAt, headerDelay} {
		if _, given := h[name]; given {
			return name
		}
	}
	return firstWithPrefix(h, headerPrefix)
}

// publish admits the events that read makes of a request, all of the path's topic, and waits for
// their results. If the client leaves first, the events may be stored nevertheless.
func (g *Gateway) publish(r *http.Request, read func(topic string) ([]wire.PublishItem, *wire.Error)) (results []wire.ResultItem, err error) {
	topic := r.PathValue("topic")
	items, bad := g.itemsToPublish(topic, read)
	if bad != nil {
		g.cfg.Publisher.Refused(topic, bad.Code, 1)
		return nil, bad
	}
	if g.cfg.Audit != nil {
		defer func() { g.cfg.Audit.Published(items, results, g.cfg.Access.From(r.Context()), r.RemoteAddr, err) }()
	}
	if err := g.may(r, access.Publish, topic, ""); err != nil {
		g.cfg.Publisher.Refused(topic, wire.AsError(err).Code, max(len(items), 1))
		return nil, err
	}
	if len(items) == 0 {
		return nil, nil
	}
	answered := make(chan []wire.ResultItem, 1)
	if bad := g.cfg.Publisher.Publish(g.madeFor(r), g.httpConn(r).publish, items, func(results []wire.ResultItem) { answered <- results }); bad != nil {
		return nil, bad
	}
	select {
	case results := <-answered:
		return results, nil
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

func (g *Gateway) itemsToPublish(topic string, read func(topic string) ([]wire.PublishItem, *wire.Error)) ([]wire.PublishItem, *wire.Error) {
	if g.refusing() {
		return nil, refusal.Stopping()
	}
	if bad := codec.CheckTopic(topic); bad != nil {
		return nil, bad
	}
	return read(topic)
}

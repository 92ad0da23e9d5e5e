package gateway

import (
	"bytes"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-bus/sluice/internal/access"
	"github.com/sluice-bus/sluice/internal/httpapi"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
)

// jsonSlack is how many times as long as the payload may be, once compact, its
// JSON text may be in a request.
const jsonSlack = 2

// publishHTTP publishes the body as one event, or its lines as a batch.
func (g *Gateway) publishHTTP(w http.ResponseWriter, r *http.Request) {
	topic := r.PathValue("topic")
	if err := g.publishRequest(w, r, topic); err != nil {
		httpapi.WriteError(w, r, err, g.cfg.Logger)
	}
}

// refused counts n events that were refused before they came to the publisher.
func (g *Gateway) refused(topic string, err *wire.Error) error {
	g.cfg.Publisher.Refused(topic, err.Code, 1)
	return err
}

func (g *Gateway) publishRequest(w http.ResponseWriter, r *http.Request, topic string) error {
	if g.refusing() {
		return g.refused(topic, errStopping())
	}
	if err := codec.CheckTopic(topic); err != nil {
		return g.refused(topic, err)
	}
	kind, bad := bodyOf(r.Header)
	if bad != nil {
		return g.refused(topic, bad)
	}
	content, bad := g.readBody(w, r, kind)
	if bad != nil {
		return g.refused(topic, bad)
	}
	switch kind {
	case linesBody:
		return g.publishLines(w, r, topic, content)
	case batchedBody:
		return g.publishBatched(w, r, topic, content)
	}
	it, bad := itemOf(topic, r.Header, kind, content, g.cfg.Limits)
	if bad != nil {
		return g.refused(topic, bad)
	}
	results, err := g.publish(r, []wire.PublishItem{it})
	if err != nil {
		return err
	}
	if results[0].Err != nil {
		return results[0].Err
	}
	receipt := &results[0].Receipt
	writeJSON(w, statusOf(receipt), codec.AppendReceiptBody(nil, receipt))
	return nil
}

// statusOf is the status of a publish that was accepted.
func statusOf(r *wire.Receipt) int {
	switch {
	case r.Spooled:
		return http.StatusAccepted
	case r.Duplicate:
		return http.StatusOK
	case r.DeliverAt != 0:
		return http.StatusAccepted
	}
	return http.StatusCreated
}

// readBody reads the whole body, unless it is longer than its kind may be:
// then it is not read to its end.
func (g *Gateway) readBody(w http.ResponseWriter, r *http.Request, kind body) ([]byte, *wire.Error) {
	most := map[body]int{
		jsonBody: jsonSlack * g.cfg.Limits.PayloadBytes, bytesBody: g.cfg.Limits.PayloadBytes, linesBody: g.cfg.Limits.BatchBytes,
		binaryBody: jsonSlack * g.cfg.Limits.PayloadBytes, batchedBody: g.cfg.Limits.BatchBytes,
		structuredBody: jsonSlack * (g.cfg.Limits.PayloadBytes + g.cfg.Limits.HeaderBytes),
	}[kind]
	return g.readAtMost(w, r, most)
}

// publishLines publishes a body of NDJSON.
func (g *Gateway) publishLines(w http.ResponseWriter, r *http.Request, topic string, content []byte) error {
	items, bad := itemsOf(topic, r.Header, content, g.cfg.Limits)
	if bad != nil {
		return g.refused(topic, bad)
	}
	return g.publishItems(w, r, items)
}

// publishItems publishes the events of a batch and answers for each.
func (g *Gateway) publishItems(w http.ResponseWriter, r *http.Request, items []wire.PublishItem) error {
	results, err := g.publish(r, items)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, codec.AppendResultsBody(nil, results))
	return nil
}

// itemsOf makes an event of every line that is not blank.
func itemsOf(topic string, h http.Header, content []byte, lim wire.Limits) ([]wire.PublishItem, *wire.Error) {
	if name := headerOfOne(h); name != "" {
		return nil, wire.Errorf(wire.BadRequest, "header %s speaks of one event: in a batch give each line its own opts", name)
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

// headerOfOne is a header of the request that is about a single event; "":
// there is none.
func headerOfOne(h http.Header) string {
	for _, name := range []string{headerIdempotencyKey, headerID, headerKey, headerTS, headerDeliverAt, headerDelay} {
		if _, given := h[name]; given {
			return name
		}
	}
	for _, name := range slices.Sorted(maps.Keys(h)) {
		if strings.HasPrefix(name, headerPrefix) {
			return name
		}
	}
	return ""
}

// publish admits events, all of one topic, and waits for what becomes of them.
// When the client goes away first, they may be stored all the same.
func (g *Gateway) publish(r *http.Request, items []wire.PublishItem) (results []wire.ResultItem, err error) {
	if g.cfg.Audit != nil {
		defer func() { g.cfg.Audit.Published(items, results, g.cfg.Access.From(r.Context()), r.RemoteAddr, err) }()
	}
	topic := items[0].Event.Topic
	if err := g.may(r, access.Publish, topic, ""); err != nil {
		g.cfg.Publisher.Refused(topic, wire.AsError(err).Code, len(items))
		return nil, err
	}
	answered := make(chan []wire.ResultItem, 1)
	if bad := g.cfg.Publisher.Publish(g.madeFor(r), g.connection(r), items, func(results []wire.ResultItem) { answered <- results }); bad != nil {
		return nil, bad
	}
	select {
	case results := <-answered:
		return results, nil
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

func writeJSON(w http.ResponseWriter, status int, content []byte) {
	content = append(content, '\n')
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(content)))
	w.WriteHeader(status)
	_, _ = w.Write(content) // a client that does not take its answer has gone
}

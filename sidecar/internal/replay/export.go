package replay

import (
	"errors"
	"net/http"

	"github.com/sluice-bus/sluice/internal/httpapi"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// exportRequest is one export.
type exportRequest struct {
	selection
	array    bool // one JSON array instead of one line per event
	progress bool // with lines of progress between the events
	limit    int  // of a part alone; 0: all
}

func (h *handler) parseExport(r *http.Request) (req exportRequest, err error) {
	p, err := httpapi.ParseParams(r.URL.RawQuery)
	if err != nil {
		return req, err
	}
	if req.topic, err = topicParam(p, "name the topic to export"); err != nil {
		return req, err
	}
	if err := req.parseForm(p); err != nil {
		return req, err
	}
	if req.query.Key, err = keyParam(p); err != nil {
		return req, err
	}
	if err := req.parseRange(p, h.Now().UnixMilli()); err != nil {
		return req, err
	}
	if err := req.parseOrder(p); err != nil {
		return req, err
	}
	if err := req.parsePart(p); err != nil {
		return req, err
	}
	if req.part != "" {
		if err := h.Access.PeerMayAsk(r); err != nil {
			return req, err
		}
	}
	return req, h.mayRead(r, req.topic)
}

// parseForm reads the scope, and the format of the answer.
func (r *exportRequest) parseForm(p httpapi.Params) error {
	scope, err1 := p.Choice("scope", scopeStore, scopeFleet)
	partial, err2 := partialParam(p)
	lines, err3 := p.Choice("ndjson", "1", "0")
	progress, err4 := p.Choice("progress", "0", "1")
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return err
	}
	r.scope, r.partial, r.array, r.progress = scope, partial, lines == "0", progress == "1"
	if r.progress && r.array {
		return httpapi.BadParam("progress", "progress is sent as lines between the events, which an array cannot hold")
	}
	return nil
}

// parseOrder reads the order, and the point after which to start: it need not be that of an event.
func (r *exportRequest) parseOrder(p httpapi.Params) error {
	order, err1 := p.Choice("order", orderAsc, orderDesc)
	ts, err2 := p.Whole("afterTs", 0, 0, wire.MaxTS)
	id, err3 := p.Text("afterId")
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	r.query.Descending = order == orderDesc
	switch has := p.Has("afterId"); {
	case has != p.Has("afterTs"):
		return httpapi.BadParam("afterTs", "it needs afterId; give both or neither")
	case has:
		r.query.After = &eventlog.Point{TS: ts, ID: id}
		r.continued = true // the earlier events are not known here
	}
	return nil
}

// parsePart reads which part of this sidecar to export, and how much of it.
func (r *exportRequest) parsePart(p httpapi.Params) (err error) {
	if !p.Has("part") {
		return nil
	}
	if r.part, err = p.Choice("part", PartLog, PartSpool); err != nil {
		return err
	}
	if r.scope != scopeStore {
		return httpapi.BadParam("part", "it is of one sidecar; leave it out with scope=fleet")
	}
	if r.array {
		return httpapi.BadParam("part", "it is handed out as lines; leave it out with ndjson=0")
	}
	limit, err := p.Whole("limit", 0, 1, wire.MaxTS)
	r.limit = int(limit)
	return err
}

// parseRange reads fromTs and toTs, both inclusive. A fromTs beyond now selects nothing with toTs=now, so a client may continue
// from the end of its last export.
func (r *exportRequest) parseRange(p httpapi.Params, now int64) error {
	from, err1 := p.Whole("fromTs", 0, 0, wire.MaxTS)
	given, err2 := p.Text("toTs")
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	r.query.MinTS = from
	switch given {
	case "":
		return nil
	case "now":
		r.query.MaxTS, r.query.HasMaxTS = now, true
		return nil
	}
	to, err := p.Whole("toTs", 0, 0, wire.MaxTS)
	if err != nil {
		return err
	}
	if from > to {
		return httpapi.BadParam("fromTs", "%d is after toTs %d; it must be the same or earlier", from, to)
	}
	r.query.MaxTS, r.query.HasMaxTS = to, true
	return nil
}

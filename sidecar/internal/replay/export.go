package replay

import (
	"github.com/sluice-bus/sluice/internal/httpapi"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// exportRequest is one export.
type exportRequest struct {
	selection
	array    bool // one JSON array instead of one line per event
	progress bool // with lines of progress between the events
	limit    int  // of a part alone; 0: all
}

func (h *handler) parseExport(r *httpapi.Request) (req exportRequest, err error) {
	if req.topic = r.Text("topic"); req.topic == "" {
		return req, httpapi.BadParam("topic", "it is missing; name the topic to export")
	}
	req.query.Key = keyOf(r)
	for _, parse := range []func(*httpapi.Request) error{req.parseForm, req.parseRange(h.Now().UnixMilli()), req.parseOrder, req.parsePart} {
		if err := parse(r); err != nil {
			return req, err
		}
	}
	if req.part != "" {
		if err := h.Access.PeerMayAsk(r.Request); err != nil {
			return req, err
		}
	}
	return req, h.mayRead(r, req.topic)
}

// parseForm reads the scope, and the format of the answer.
func (e *exportRequest) parseForm(r *httpapi.Request) error {
	e.scope, e.partial, e.array, e.progress = r.Text("scope"), r.Has("partial"), r.Text("ndjson") == "0", r.Text("progress") == "1"
	if e.progress && e.array {
		return httpapi.BadParam("progress", "progress is sent as lines between the events, which an array cannot hold")
	}
	return nil
}

// parseOrder reads the order, and the point after which to start: it need not be that of an event.
func (e *exportRequest) parseOrder(r *httpapi.Request) error {
	e.query.Descending = r.Text("order") == orderDesc
	switch has := r.Has("afterId"); {
	case has != r.Has("afterTs"):
		return httpapi.BadParam("afterTs", "it needs afterId; give both or neither")
	case has:
		e.query.After = &eventlog.Point{TS: r.Whole("afterTs"), ID: r.Text("afterId")}
		e.continued = true // the earlier events are not known here
	}
	return nil
}

// parsePart reads which part of this sidecar to export, and how much of it.
func (e *exportRequest) parsePart(r *httpapi.Request) error {
	switch e.part = r.Text("part"); {
	case e.part == "" && r.Has("limit"):
		return httpapi.BadParam("limit", "it is of a part; leave it out without part")
	case e.part == "":
		return nil
	case e.scope != scopeStore:
		return httpapi.BadParam("part", "it is of one sidecar; leave it out with scope=fleet")
	case e.array:
		return httpapi.BadParam("part", "it is handed out as lines; leave it out with ndjson=0")
	}
	e.limit = int(r.Whole("limit"))
	return nil
}

// parseRange reads fromTs and toTs, both inclusive. A fromTs beyond now selects nothing with toTs=now, so a client may continue
// from the end of its last export.
func (e *exportRequest) parseRange(now int64) func(*httpapi.Request) error {
	return func(r *httpapi.Request) error {
		from, to := r.Whole("fromTs"), r.Whole("toTs")
		e.query.MinTS = from
		switch r.Text("toTs") {
		case "":
			return nil
		case toNow:
			to = now
		default:
			if from > to {
				return httpapi.BadParam("fromTs", "%d is after toTs %d; it must be the same or earlier", from, to)
			}
		}
		e.query.MaxTS, e.query.HasMaxTS = to, true
		return nil
	}
}

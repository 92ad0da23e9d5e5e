package replay

import (
	"errors"
	"net/http"

	"github.com/sluice-bus/sluice/internal/access"
	"github.com/sluice-bus/sluice/internal/httpapi"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

const (
	defaultLimit = 1000
	maxLimit     = 10_000
)

// The values of scope and order; the first of each is the default.
const (
	scopeStore = "store"
	scopeFleet = "fleet"

	orderAsc  = "asc"
	orderDesc = "desc"
)

// selection is what is read: of one topic in one scope, the events that query
// selects down to the floor.
type selection struct {
	topic string
	scope string
	query eventlog.ScanQuery
	// floor ends a descending scan before this point: what After is to an
	// ascending one.
	floor *eventlog.Point
}

// aboveFloor is the part of a page that comes before the floor is reached.
func (s selection) aboveFloor(page []*eventlog.Record) []*eventlog.Record {
	if s.floor == nil {
		return page
	}
	for i, r := range page {
		if pointOf(r).Compare(*s.floor) <= 0 {
			return page[:i]
		}
	}
	return page
}

// view is what all pages of one replay share. Where it starts and in which
// order it goes are independent: from, ts and afterId select the events, order
// turns them round. So from=ts with order=desc goes from the newest event down
// to ts.
type view struct {
	topic string
	scope string
	key   string // "": every key
	desc  bool
	from  string // wire.FromEarliest, FromTS or FromAfterID
	// start is the ts of from=ts, and the event of from=afterId.
	start eventlog.Point
}

func (v view) selection() selection {
	s := selection{topic: v.topic, scope: v.scope, query: eventlog.ScanQuery{Descending: v.desc, MinTS: v.start.TS}}
	if v.key != "" {
		s.query.Key = &v.key
	}
	if v.from == wire.FromAfterID {
		if v.desc {
			s.floor = &v.start
		} else {
			s.query.After = &v.start
		}
	}
	return s
}

// replayRequest is one page that is asked for.
type replayRequest struct {
	selection
	view  view
	limit int
}

// cursorAt is the cursor of the page that follows the event at last.
func (r replayRequest) cursorAt(last eventlog.Point) cursor {
	return cursor{view: r.view, last: last}
}

func (h *handler) parseReplay(r *http.Request) (replayRequest, error) {
	p, err := httpapi.ParseParams(r.URL.RawQuery)
	if err != nil {
		return replayRequest{}, err
	}
	v, limit, err := parseView(p)
	if err != nil {
		return replayRequest{}, err
	}
	if p.Has("cursor") {
		c, err := parseCursor(p, v)
		if err == nil {
			err = h.mayRead(r, c.view.topic)
		}
		if err != nil {
			return replayRequest{}, err
		}
		req := replayRequest{view: c.view, selection: c.view.selection(), limit: limit}
		req.query.After = &c.last
		return req, nil
	}
	if v.topic == "" {
		return replayRequest{}, httpapi.BadParam("topic", "it is missing; name the topic to read")
	}
	if err := h.mayRead(r, v.topic); err != nil {
		return replayRequest{}, err
	}
	if v.from == wire.FromAfterID {
		rec, err := h.source(v.scope).Lookup(r.Context(), v.topic, v.start.ID)
		if errors.Is(err, eventlog.ErrNotFound) {
			return replayRequest{}, wire.Errorf(wire.NotFound, "afterId: topic %s has no event %q", v.topic, v.start.ID)
		}
		if err != nil {
			return replayRequest{}, sourceError(err)
		}
		v.start = pointOf(rec)
	}
	return replayRequest{view: v, selection: v.selection(), limit: limit}, nil
}

// parseView reads every parameter but cursor and checks each by itself. The
// start of from=afterId has only its ID yet.
func parseView(p httpapi.Params) (v view, limit int, err error) {
	if v.topic, err = topicParam(p); err != nil {
		return v, 0, err
	}
	if v.scope, err = p.Choice("scope", scopeStore, scopeFleet); err != nil {
		return v, 0, err
	}
	if v.key, err = p.Text("key"); err != nil {
		return v, 0, err
	}
	order, err := p.Choice("order", orderAsc, orderDesc)
	if err != nil {
		return v, 0, err
	}
	v.desc = order == orderDesc
	n, err := p.Whole("limit", defaultLimit, 1, maxLimit)
	if err != nil {
		return v, 0, err
	}
	if v.from, v.start, err = startParams(p); err != nil {
		return v, 0, err
	}
	return v, int(n), nil
}

// startParams reads from, ts and afterId. ts and afterId are checked whenever
// they are given, and count when from asks for them.
func startParams(p httpapi.Params) (from string, start eventlog.Point, err error) {
	from, err = p.Choice("from", wire.FromEarliest, wire.FromTS, wire.FromAfterID)
	if err != nil {
		return "", start, err
	}
	ts, err := p.Whole("ts", 0, 0, wire.MaxTS)
	if err != nil {
		return "", start, err
	}
	id, err := p.Text("afterId")
	if err != nil {
		return "", start, err
	}
	if p.Has("afterId") {
		if err := wire.CheckID(id); err != nil {
			return "", start, httpapi.BadParam("afterId", "%s", err.Msg)
		}
	}
	switch from {
	case wire.FromTS:
		if !p.Has("ts") {
			return "", start, httpapi.BadParam("ts", "it is missing; from=ts needs the time to start at, in milliseconds since the epoch")
		}
		start.TS = ts
	case wire.FromAfterID:
		if id == "" {
			return "", start, httpapi.BadParam("afterId", "it is missing; from=afterId needs the id to start after")
		}
		start.ID = id
	}
	return from, start, nil
}

// parseCursor reads the cursor and refuses parameters beside it that say
// something else than it does.
func parseCursor(p httpapi.Params, asked view) (cursor, error) {
	text, err := p.Text("cursor")
	if err != nil {
		return cursor{}, err
	}
	c, err := decodeCursor(text)
	if err != nil {
		return cursor{}, httpapi.BadParam("cursor", "it is not one that this API gave out as \"next\": %v", err)
	}
	for _, beside := range []struct {
		name string
		same bool
	}{
		{"topic", asked.topic == c.topic},
		{"scope", asked.scope == c.scope},
		{"key", asked.key == c.key},
		{"order", asked.desc == c.desc},
		{"from", asked.from == c.from},
		{"ts", c.from != wire.FromTS || asked.start.TS == c.start.TS},
		{"afterId", c.from != wire.FromAfterID || asked.start.ID == c.start.ID},
	} {
		if p.Has(beside.name) && !beside.same {
			return cursor{}, httpapi.BadParam(beside.name, "it contradicts the cursor; leave it out or repeat what the first page was asked for")
		}
	}
	return c, nil
}

// exportRequest is one export.
type exportRequest struct {
	selection
	array bool // one JSON array rather than a line for each event
}

func (h *handler) parseExport(r *http.Request) (req exportRequest, err error) {
	p, err := httpapi.ParseParams(r.URL.RawQuery)
	if err != nil {
		return req, err
	}
	if req.topic, err = topicParam(p); err != nil {
		return req, err
	}
	if req.topic == "" {
		return req, httpapi.BadParam("topic", "it is missing; name the topic to export")
	}
	if req.scope, err = p.Choice("scope", scopeStore, scopeFleet); err != nil {
		return req, err
	}
	lines, err := p.Choice("ndjson", "1", "0")
	if err != nil {
		return req, err
	}
	req.array = lines == "0"
	if p.Has("key") {
		key, err := p.Text("key")
		if err != nil {
			return req, err
		}
		req.query.Key = &key
	}
	req.query.MinTS, req.query.MaxTS, err = h.exportRange(p)
	req.query.HasMaxTS = true
	if err != nil {
		return req, err
	}
	return req, h.mayRead(r, req.topic)
}

// mayRead says whether the sender of a request may read a topic's past.
func (h *handler) mayRead(r *http.Request, topic string) error {
	return h.Access.From(r.Context()).May(access.Replay, topic, "")
}

// exportRange reads fromTs and toTs, both inclusive. toTs is by default the
// present, as it is when the export begins; a fromTs beyond that selects
// nothing, so that a client may go on from where its last export ended.
func (h *handler) exportRange(p httpapi.Params) (from, to int64, err error) {
	if from, err = p.Whole("fromTs", 0, 0, wire.MaxTS); err != nil {
		return 0, 0, err
	}
	given, err := p.Text("toTs")
	if err != nil {
		return 0, 0, err
	}
	if given == "" || given == "now" {
		return from, h.Now().UnixMilli(), nil
	}
	if to, err = p.Whole("toTs", 0, 0, wire.MaxTS); err != nil {
		return 0, 0, err
	}
	if from > to {
		return 0, 0, httpapi.BadParam("fromTs", "%d is after toTs %d; it must be the same or earlier", from, to)
	}
	return from, to, nil
}

// topicParam is the topic, or "" when it is not given.
func topicParam(p httpapi.Params) (string, error) {
	topic, err := p.Text("topic")
	if err != nil || topic == "" {
		return "", err
	}
	if err := wire.CheckReadTopic(topic); err != nil {
		return "", err
	}
	return topic, nil
}

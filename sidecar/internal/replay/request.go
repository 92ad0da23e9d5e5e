package replay

import (
	"context"
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

// selection selects events: of one topic in one scope, those that query selects, as far as the
// floor.
type selection struct {
	topic string
	scope string
	query eventlog.ScanQuery
	// floor ends a descending scan before this point, as After begins an ascending one after it.
	floor *eventlog.Point

	part string // "": all of it

	// Of scope=fleet alone; see FleetQuery.
	start     *eventlog.Point
	behind    []Behind
	partial   bool
	continued bool
}

// aboveFloor returns the events of a page before the floor.
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

// view has the parameters that all pages of one replay share. The start and the order are
// independent: from, ts and afterId select the events, and order sets their direction. So from=ts
// with order=desc goes from the newest event down to ts.
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
			s.query.After, s.start = &v.start, &v.start
		}
	}
	return s
}

// replayRequest is a request for one page.
type replayRequest struct {
	selection
	view  view
	limit int
}

// next is the cursor of the following page, before any event of this one.
func (r replayRequest) next() cursor {
	c := cursor{view: r.view}
	if r.continued {
		c.last = *r.query.After
	}
	return c
}

func (h *handler) parseReplay(r *httpapi.Request) (req replayRequest, err error) {
	v := parseView(r)
	limit, partial := int(r.Whole("limit")), r.Has("partial")
	if r.Has("cursor") {
		c, err := parseCursor(r, v)
		if err == nil {
			err = h.mayRead(r, c.view.topic)
		}
		if err != nil {
			return req, err
		}
		req = replayRequest{view: c.view, selection: c.view.selection(), limit: limit}
		req.query.After = &c.last
		req.behind, req.partial, req.continued = c.behind, partial, true
		return req, nil
	}
	if v.topic == "" {
		return req, httpapi.BadParam("topic", "it is missing; name the topic to read")
	}
	if err := v.checkStart(r); err != nil {
		return req, err
	}
	if err := h.mayRead(r, v.topic); err != nil {
		return req, err
	}
	if v.from == wire.FromAfterID {
		at, err := h.lookup(r.Context(), v, partial)
		if errors.Is(err, eventlog.ErrNotFound) {
			return req, wire.Errorf(wire.NotFound, "afterId: topic %s has no event %q", v.topic, v.start.ID)
		}
		if err != nil {
			return req, sourceError(err)
		}
		v.start = at
	}
	req = replayRequest{view: v, selection: v.selection(), limit: limit}
	req.partial = partial
	return req, nil
}

// lookup finds the event that a replay starts after.
func (h *handler) lookup(ctx context.Context, v view, partial bool) (eventlog.Point, error) {
	if v.scope == scopeFleet && h.Fleet != nil {
		return h.Fleet.Lookup(ctx, v.topic, v.start.ID, partial)
	}
	rec, err := h.Store.Lookup(ctx, v.topic, v.start.ID)
	if err != nil {
		return eventlog.Point{}, err
	}
	return pointOf(rec), nil
}

// parseView reads every parameter except cursor. The start of from=afterId has only its ID yet.
func parseView(r *httpapi.Request) view {
	return view{
		topic: r.Text("topic"), scope: r.Text("scope"), key: r.Text("key"), desc: r.Text("order") == orderDesc, from: r.Text("from"),
		start: eventlog.Point{TS: r.Whole("ts"), ID: r.Text("afterId")},
	}
}

// checkStart returns an error unless a first page has the ts or afterId that its from needs, and no other.
func (v view) checkStart(r *httpapi.Request) error {
	for _, place := range [...]struct{ name, what string }{ // the name in from, too
		{wire.FromTS, "the time to start at, in milliseconds since the epoch"}, {wire.FromAfterID, "the id to start after"},
	} {
		switch needed := v.from == place.name; {
		case needed && !r.Has(place.name):
			return httpapi.BadParam(place.name, "it is missing; from=%s needs %s", place.name, place.what)
		case r.Has(place.name) && !needed:
			return httpapi.BadParam(place.name, "it goes with from=%s, and from is %s", place.name, v.from)
		}
	}
	return nil
}

// TopicOf is the topic of a request for a page by its cursor, "" where it has none.
func TopicOf(r *http.Request) string {
	c, err := decodeCursor(r.URL.Query().Get("cursor"))
	if err != nil {
		return ""
	}
	return c.topic
}

// parseCursor reads the cursor and refuses parameters that contradict it.
func parseCursor(r *httpapi.Request, asked view) (cursor, error) {
	c, err := decodeCursor(r.Text("cursor"))
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
		{"ts", c.from == wire.FromTS && asked.start.TS == c.start.TS},
		{"afterId", c.from == wire.FromAfterID && asked.start.ID == c.start.ID},
	} {
		if r.Has(beside.name) && !beside.same {
			return cursor{}, httpapi.BadParam(beside.name, "it contradicts the cursor; leave it out or repeat the first page's value")
		}
	}
	return c, nil
}

// mayRead returns an error unless the sender of a request may read a topic's past.
func (h *handler) mayRead(r *httpapi.Request, topic string) error {
	return h.Access.From(r.Context()).May(access.Replay, topic, "")
}

// keyOf is the key, or nil if it is not given.
func keyOf(r *httpapi.Request) *string {
	if !r.Has("key") {
		return nil
	}
	return new(r.Text("key"))
}

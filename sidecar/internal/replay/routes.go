package replay

import (
	"errors"
	"net/http"
	"strconv"

	"github.com/sluice-bus/sluice/internal/access"
	"github.com/sluice-bus/sluice/internal/budget"
	"github.com/sluice-bus/sluice/internal/httpapi"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
)

// serveFunc answers a request, or returns the error to answer it with.
type serveFunc func(w http.ResponseWriter, r *httpapi.Request) error

// toNow is the toTs of the time when the request came.
const toNow = "now"

func (h *handler) routes() []httpapi.Route {
	peers := h.peers
	if h.Access.Authenticates() {
		peers = h.amongPeers(peers)
	}
	ok := func(doc string, content httpapi.Content, headers ...string) []httpapi.Answer {
		return []httpapi.Answer{{Status: http.StatusOK, Doc: doc, Content: content, Headers: headers}}
	}
	replay, export := h.within(budget.Replays, h.replay), h.within(budget.Replays, h.export)
	table := []httpapi.Route{
		{
			Pattern: "GET /replay", Summary: "a page of a topic's events, by ts and id", Query: replayQuery, Serve: h.answer(replay),
			Role:    string(access.RoleReader),
			Answers: ok("a page", httpapi.JSONOf[replayBody]()), Errors: []wire.Code{wire.NotFound, wire.PartialFleet},
		},
		{
			Pattern: "GET /export", Summary: "all events of a range of times, by ts and id", Query: exportQuery, Serve: h.answer(export),
			Role: string(access.RoleReader),
			Answers: ok("the events", httpapi.Content{
				"application/x-ndjson": {"anyOf": []httpapi.Schema{httpapi.Ref("Formatted"), httpapi.SchemaOf[progressLine]()}},
				"application/json":     httpapi.ArrayOf(httpapi.Ref("Formatted")),
			}, HeaderStoreID, HeaderNodeID, HeaderEmpty, HeaderMissing),
			Errors: []wire.Code{wire.PartialFleet},
		},
		{
			Pattern: "GET /peers", Summary: "the sidecars of the fleet", Serve: h.answer(peers),
			Answers: ok("the sidecars", httpapi.JSONOf[peersBody]()),
		},
		{
			Pattern: "GET /peer", Summary: "this sidecar, for others", Serve: h.answer(h.amongPeers(h.peer)),
			Answers: ok("the sidecar", httpapi.JSONOf[Peer]()),
		},
		{
			Pattern: "POST /peer/ids", Summary: "where ids are, for other sidecars", Serve: h.answer(h.amongPeers(h.peerIDs)),
			Query: []httpapi.Param{topic, key, part}, Body: httpapi.JSONOf[PeerIDs](), Answers: ok("their times", httpapi.JSONOf[PeerTimes]()),
		},
	}
	for i := range table {
		table[i].Errors = append(table[i].Errors, wire.StoreUnavailable, wire.Overloaded)
	}
	description := httpapi.Description{Title: "Sluice: the replay listener of a sidecar", Version: h.About.Version}
	return h.About.Add(httpapi.Describe(description, table))
}

// The parameters that several routes take.
var (
	topic   = httpapi.Text("topic", "the topic", codec.CheckReadTopic)
	key     = httpapi.Text("key", "only events with this key")
	scope   = httpapi.OneOf("scope", "this sidecar's store and spool, or all of the fleet's", scopeStore, scopeFleet).Or(scopeStore)
	order   = httpapi.OneOf("order", "by ts and id, ascending or descending", orderAsc, orderDesc).Or(orderAsc)
	format  = httpapi.OneOf("format", "of the events", wire.FormatEvent, wire.FormatCloudEvents).Or(wire.FormatEvent)
	partial = httpapi.OneOf("partial", "ok: without the parts of the fleet that cannot be asked", "ok")
	part    = httpapi.OneOf("part", "one part of this sidecar alone, for other sidecars", PartLog, PartSpool)
)

var replayQuery = []httpapi.Param{
	topic, key, scope, order, partial, format,
	httpapi.OneOf("from", "where to start", wire.FromEarliest, wire.FromTS, wire.FromAfterID).Or(wire.FromEarliest),
	httpapi.Whole("ts", "of from=ts: milliseconds since the epoch", 0, wire.MaxTS),
	httpapi.Text("afterId", "of from=afterId: an event's id", codec.CheckID),
	httpapi.Whole("limit", "the most that a page has", 1, maxLimit).Or(strconv.Itoa(defaultLimit)),
	httpapi.Text("cursor", "continues where an earlier page ended: its next"),
}

var exportQuery = []httpapi.Param{
	topic, key, scope, order, partial, format, part,
	httpapi.Whole("fromTs", "only events from this time on, in milliseconds since the epoch", 0, wire.MaxTS).Or("0"),
	httpapi.WholeOr(toNow, "toTs", "only events up to this time, or up to now", 0, wire.MaxTS),
	httpapi.OneOf("ndjson", "0 for one array instead of a line for each event", "0", "1").Or("1"),
	httpapi.OneOf("progress", "1 adds lines that count the events of each part", "0", "1").Or("0"),
	httpapi.Whole("afterTs", "continues after this time and afterId", 0, wire.MaxTS),
	httpapi.Text("afterId", "continues after afterTs and this id"),
	httpapi.Whole("limit", "the most events of a part", 1, wire.MaxTS),
}

// replayBody is the answer of GET /replay, as it is written bit by bit.
type replayBody struct {
	Topic   string     `json:"topic"`
	Events  []struct{} `json:"events" schema:"Events"`
	Count   int        `json:"count"`
	Next    string     `json:"next,omitempty"`
	Partial bool       `json:"partial,omitempty"`
	Missing []string   `json:"missing,omitempty"`
}

type progressLine struct {
	Progress []PartCount `json:"progress"`
}

// share is what the sender of a request may use.
func (h *handler) share(r *http.Request) *budget.Share {
	return h.Budget.Of(h.Access.From(r.Context()).Name)
}

// within gives a request a place.
func (h *handler) within(p budget.Place, next serveFunc) serveFunc {
	return func(w http.ResponseWriter, r *httpapi.Request) error {
		share := h.share(r.Request)
		if err := share.Enter(p); err != nil {
			return err
		}
		defer share.Leave(p)
		return next(w, r)
	}
}

// answer makes a route's Serve.
func (h *handler) answer(serve serveFunc) func(http.ResponseWriter, *httpapi.Request, error) {
	return func(w http.ResponseWriter, r *httpapi.Request, err error) {
		if err == nil {
			err = serve(w, r)
		}
		switch {
		case err == nil:
		case errors.Is(err, &wire.Error{Code: wire.Unauthorized}):
			h.Access.Challenge(w, r.Request, err)
		default:
			httpapi.WriteError(w, r.Request, err, h.Logger)
		}
	}
}

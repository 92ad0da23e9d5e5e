package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
)

// ReplayQuery selects the events to replay. Zero fields are not sent; the sidecar's defaults hold
// for them.
type ReplayQuery struct {
	Topic   string
	From    string // wire.FromEarliest, FromTS or FromAfterID
	TS      *int64 // milliseconds since the epoch, inclusive
	AfterID string
	Limit   int    // events of a page, 1 to 10,000
	Order   string // "asc" or "desc"
	Key     string
	Scope   string // "store" or "fleet"
	// Partial, with the scope fleet, lets a page leave out sidecars that cannot be asked; without
	// it that is an error with [wire.PartialFleet].
	Partial bool
	// Cursor is the Next of a page; the replay goes on behind that page. It contains the topic,
	// key, order and scope; From, TS and AfterID are then not sent.
	Cursor string
	// Missing, if set, is called after each page that leaves something out, with Missing of the
	// [ReplayPage]; [HTTP.Replay] does not call it.
	Missing func(names []string)
}

func (q ReplayQuery) path() string {
	if q.Cursor != "" {
		q.From, q.AfterID, q.TS = "", "", nil
	}
	return "/replay" + query("topic", q.Topic, "order", q.Order, "key", q.Key, "scope", q.Scope, "cursor", q.Cursor,
		"partial", onlyIf(q.Partial, "ok"), "limit", number(q.Limit), "from", q.From, "afterId", q.AfterID, "ts", optional(q.TS))
}

// ReplayPage is one page of a replay.
type ReplayPage struct {
	Events []wire.Event
	// Next is the Cursor of the page that follows; "" means that this is the last.
	Next string
	// Missing names the parts of the fleet that a partial answer leaves out. The events of a part
	// that is back by a later page are on that page.
	Missing []string
}

// Replay returns one page.
func (h *HTTP) Replay(ctx context.Context, q ReplayQuery) (ReplayPage, error) {
	type raw struct {
		Events  []json.RawMessage `json:"events"`
		Next    string            `json:"next"`
		Missing []string          `json:"missing"`
	}
	at, err := h.replay(ctx)
	if err != nil {
		return ReplayPage{}, err
	}
	answer, err := ask[raw](ctx, h, http.MethodGet, at, q.path(), nil)
	if err != nil {
		return ReplayPage{}, err
	}
	page := ReplayPage{Events: make([]wire.Event, len(answer.Events)), Next: answer.Next, Missing: answer.Missing}
	for i, text := range answer.Events {
		if page.Events[i], err = codec.ParseEvent(text); err != nil {
			return ReplayPage{}, fmt.Errorf("a replay's page: %w", err)
		}
	}
	return page, nil
}

// ReplayEvents yields the events of a replay, page by page: all that match the query, from its
// Cursor or start on. Limit is the size of a page. An error is the last that is yielded; without
// one the replay is complete.
func (h *HTTP) ReplayEvents(ctx context.Context, q ReplayQuery) iter.Seq2[wire.Event, error] {
	return func(yield func(wire.Event, error) bool) {
		for {
			page, err := h.Replay(ctx, q)
			if err != nil {
				yield(wire.Event{}, err)
				return
			}
			for _, e := range page.Events {
				if !yield(e, nil) {
					return
				}
			}
			if q.Missing != nil && len(page.Missing) > 0 {
				q.Missing(page.Missing)
			}
			if page.Next == "" {
				return
			}
			q.Cursor = page.Next
		}
	}
}

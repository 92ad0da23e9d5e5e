package sluice

import (
	"context"
	"errors"
	"iter"
)

// ReplayEvents yields the events of a replay, page by page: all that the query
// fits, from its Cursor or start on. Limit is the size of a page. An error is
// the last that is yielded; without one the replay is complete.
func (h *HTTP) ReplayEvents(ctx context.Context, q ReplayQuery) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		for {
			page, err := h.Replay(ctx, q)
			if err != nil {
				yield(Event{}, err)
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

var errNoReplayURL = errors.New("sluice: where the replay API is is not known; give it with WithReplayURL")

// Replay yields the history of a topic, ascending by (ts, id) unless the query
// says otherwise, page by page; nothing is held open between two pages, so the
// loop may take its time. An error is the last that is yielded; without one the
// replay is complete.
func (c *Client) Replay(ctx context.Context, q ReplayQuery) iter.Seq2[Event, error] {
	if c.http.ReplayURL == "" {
		return func(yield func(Event, error) bool) { yield(Event{}, errNoReplayURL) }
	}
	return c.http.ReplayEvents(ctx, q)
}

// Export yields the history of a topic as one stream, which is faster than
// [Client.Replay]; the sidecar waits for a slow loop. An error is the last that
// is yielded, one that matches [ErrTruncated] where the stream broke off;
// without one the export is complete.
func (c *Client) Export(ctx context.Context, q ExportQuery) iter.Seq2[Event, error] {
	if c.http.ReplayURL == "" {
		return func(yield func(Event, error) bool) { yield(Event{}, errNoReplayURL) }
	}
	return c.http.Export(ctx, q)
}

package sluice

import (
	"context"
	"errors"
	"iter"

	"github.com/sluice-bus/sluice/sdk/admin"
)

// The history's queries and its error, under this package's name.
type (
	// ReplayQuery says which events to replay.
	ReplayQuery = admin.ReplayQuery
	// ExportQuery says which events to export.
	ExportQuery = admin.ExportQuery
)

// ErrTruncated is matched by the error of an export whose stream broke off: events are missing.
var ErrTruncated = admin.ErrTruncated

var errNoReplayURL = errors.New("sluice: the address of the replay API is not known; give it with WithReplayURL")

// Replay yields the history of a topic, ascending by (ts, id) unless the query says otherwise, page
// by page; nothing is held open between two pages, so the loop may take its time. An error is the
// last that is yielded; without one the replay is complete.
func (c *Client) Replay(ctx context.Context, q ReplayQuery) iter.Seq2[Event, error] {
	if c.http.ReplayURL == "" {
		return func(yield func(Event, error) bool) { yield(Event{}, errNoReplayURL) }
	}
	return c.http.ReplayEvents(ctx, q)
}

// Export yields the history of a topic as one stream, which is faster than [Client.Replay]; the
// sidecar waits for a slow loop. An error is the last that is yielded, one that matches
// [ErrTruncated] where the stream broke off; without one the export is complete.
func (c *Client) Export(ctx context.Context, q ExportQuery) iter.Seq2[Event, error] {
	if c.http.ReplayURL == "" {
		return func(yield func(Event, error) bool) { yield(Event{}, errNoReplayURL) }
	}
	return c.http.Export(ctx, q)
}

package admin

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
)

// StreamQuery selects the events to stream.
type StreamQuery struct {
	Topic string
	// Group makes the stream a member of a consumer group: an event counts as acked once it is
	// written to the socket. Without it the stream alone gets every event.
	Group   string
	From    string // where to start: wire.FromLatest (where it is not said), FromEarliest, FromTS or FromAfterID
	TS      *int64 // milliseconds since the epoch, inclusive
	AfterID string
}

func (q *StreamQuery) path() string {
	return topicPath(q.Topic, "stream") + query("group", q.Group, "from", q.From, "afterId", q.AfterID, "ts", optional(q.TS))
}

// ErrStreamEnded is matched by the error that ends a stream: the sidecar stops, or the connection
// broke. Another stream with From wire.FromAfterID and the id of the last event goes on behind it.
var ErrStreamEnded = errors.New("sluice: the stream ended")

// maxStreamLine bounds one event of a stream.
const maxStreamLine = 64 << 20

// Stream yields the events of a topic as they come, for as long as the caller takes them. It makes
// one request and does not reconnect. The last element is an error.
func (h *HTTP) Stream(ctx context.Context, q StreamQuery) iter.Seq2[wire.Event, error] {
	return func(yield func(wire.Event, error) bool) {
		resp, err := h.call(ctx, http.MethodGet, h.AppURL, q.path(), nil, http.Header{"Accept": {"text/event-stream"}})
		if err != nil {
			yield(wire.Event{}, err)
			return
		}
		defer resp.Body.Close()
		lines := bufio.NewScanner(resp.Body)
		lines.Buffer(make([]byte, 0, 64<<10), maxStreamLine)
		var e wire.Event
		has := false
		for lines.Scan() {
			// The sidecar writes an event as one data line. The event is complete once an empty
			// line follows. This client needs neither the id lines nor the comments.
			switch data, isData := bytes.CutPrefix(lines.Bytes(), []byte("data: ")); {
			case isData:
				e, err = codec.ParseEvent(data)
				has = true
			case len(lines.Bytes()) == 0 && has:
				if !yield(e, err) || err != nil {
					return
				}
				has = false
			}
		}
		yield(wire.Event{}, streamEnd(ctx, lines.Err()))
	}
}

// streamEnd is the error of a stream that ended: the context's, if that has ended, or else one that
// matches ErrStreamEnded.
func streamEnd(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err == nil:
		err = io.EOF
	}
	return fmt.Errorf("%w: %w", ErrStreamEnded, err)
}

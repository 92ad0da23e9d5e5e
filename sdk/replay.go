package sluice

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// ReplayQuery says which events to replay. A field that is zero is not sent,
// and the sidecar's default holds.
type ReplayQuery struct {
	Topic   string
	From    string // wire.FromEarliest, FromTS or FromAfterID
	TS      *int64 // milliseconds since the epoch, inclusive
	AfterID string
	Limit   int    // events of a page, 1 to 10,000
	Order   string // "asc" or "desc"
	Key     string
	Scope   string // "store" or "fleet"
	// Cursor is the Next of a page: go on behind it. The page's topic, key, order
	// and scope are in it; From, TS and AfterID are then not sent.
	Cursor string
}

func (q *ReplayQuery) path() string {
	v := url.Values{}
	set := func(name, value string) {
		if value != "" {
			v.Set(name, value)
		}
	}
	set("topic", q.Topic)
	set("order", q.Order)
	set("key", q.Key)
	set("scope", q.Scope)
	set("cursor", q.Cursor)
	if q.Limit != 0 {
		set("limit", strconv.Itoa(q.Limit))
	}
	if q.Cursor == "" {
		set("from", q.From)
		set("afterId", q.AfterID)
		if q.TS != nil {
			set("ts", strconv.FormatInt(*q.TS, 10))
		}
	}
	return "/replay?" + v.Encode()
}

// ReplayPage is one page of a replay.
type ReplayPage struct {
	Events []wire.Event
	// Next is the Cursor of the page that follows; "" means that this is the last.
	Next string
}

// Replay returns one page.
func (h *HTTP) Replay(ctx context.Context, q ReplayQuery) (ReplayPage, error) {
	body, err := h.get(ctx, h.ReplayURL, q.path())
	if err != nil {
		return ReplayPage{}, err
	}
	var raw struct {
		Events []json.RawMessage `json:"events"`
		Next   string            `json:"next"`
	}
	if err := json.Unmarshal(body, &raw); err != nil {
		return ReplayPage{}, fmt.Errorf("a replay's page: %w", err)
	}
	page := ReplayPage{Events: make([]wire.Event, len(raw.Events)), Next: raw.Next}
	for i, text := range raw.Events {
		if page.Events[i], err = wire.ParseEvent(text); err != nil {
			return ReplayPage{}, fmt.Errorf("a replay's page: %w", err)
		}
	}
	return page, nil
}

// ExportQuery says which events to export: all that fit every part that is
// given.
type ExportQuery struct {
	Topic  string
	FromTS *int64 // milliseconds since the epoch, inclusive, as ToTS is
	ToTS   *int64
	Key    string
	Scope  string // "store" or "fleet"; "" is store
}

func (q *ExportQuery) path() string {
	v := url.Values{"topic": {q.Topic}, "ndjson": {"1"}}
	if q.FromTS != nil {
		v.Set("fromTs", strconv.FormatInt(*q.FromTS, 10))
	}
	if q.ToTS != nil {
		v.Set("toTs", strconv.FormatInt(*q.ToTS, 10))
	}
	if q.Key != "" {
		v.Set("key", q.Key)
	}
	if q.Scope != "" {
		v.Set("scope", q.Scope)
	}
	return "/export?" + v.Encode()
}

// ErrTruncated is matched by the error that ends an export whose stream broke
// off: what came is not all.
var ErrTruncated = errors.New("sluice: the export broke off before its end")

// ExportLines yields the events of an export as the sidecar sent them: JSON
// texts without a newline. A text is valid until the next one. An error is the
// last that is yielded; without one the export is complete.
func (h *HTTP) ExportLines(ctx context.Context, q ExportQuery) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		resp, err := h.call(ctx, http.MethodGet, h.ReplayURL, q.path(), nil, nil)
		if err != nil {
			yield(nil, err)
			return
		}
		defer resp.Body.Close()
		lines := bufio.NewReaderSize(resp.Body, 64<<10)
		var long []byte // the beginning of a line that is longer than the buffer
		for {
			piece, err := lines.ReadSlice('\n')
			switch {
			case errors.Is(err, bufio.ErrBufferFull):
				long = append(long, piece...)
				continue
			case errors.Is(err, io.EOF) && len(piece)+len(long) == 0:
				return
			case errors.Is(err, io.EOF):
				err = errors.New("its last line has no end")
			}
			if err != nil {
				yield(nil, broken(ctx, err))
				return
			}
			line := piece
			if len(long) > 0 {
				long = append(long, piece...)
				line = long
			}
			if !yield(line[:len(line)-1], nil) {
				return
			}
			long = long[:0]
		}
	}
}

// broken says why a stream ended early; the caller's own context is not the
// stream's fault.
func broken(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("%w: %w", ErrTruncated, err)
}

// Export yields the events of an export. An error is the last that is yielded;
// without one the export is complete.
func (h *HTTP) Export(ctx context.Context, q ExportQuery) iter.Seq2[wire.Event, error] {
	return func(yield func(wire.Event, error) bool) {
		for line, err := range h.ExportLines(ctx, q) {
			var e wire.Event
			if err == nil {
				e, err = wire.ParseEvent(line)
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

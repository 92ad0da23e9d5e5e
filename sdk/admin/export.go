package admin

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strings"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
)

// ExportQuery selects the events to export: those that match every field that is set.
type ExportQuery struct {
	Topic  string
	FromTS *int64 // milliseconds since the epoch, inclusive, as ToTS is
	ToTS   *int64
	Key    string
	Scope  string // "store" or "fleet"; "" is store
	// Partial, with the scope fleet, lets an export leave out sidecars that cannot be asked;
	// without it that is an error with [wire.PartialFleet].
	Partial bool
	// Missing, if set, is called once, at the end of an export that is complete except for some
	// parts of the fleet. Its argument names these parts. It is not called if no part is missing,
	// and not without Partial.
	Missing func(names []string)
	// Progress, if set, is called now and then during an export of the fleet, and at its end, with
	// how many events each part has given so far.
	Progress func(parts []PartCount)
}

// PartCount is how many events came from one part of the fleet.
type PartCount struct {
	Part   string `json:"part"`
	Events int64  `json:"events"`
}

func (q *ExportQuery) path() string {
	return "/export" + query("topic", q.Topic, "ndjson", "1", "fromTs", optional(q.FromTS), "toTs", optional(q.ToTS), "key", q.Key,
		"scope", q.Scope, "partial", onlyIf(q.Partial, "ok"), "progress", onlyIf(q.Progress != nil, "1"))
}

// ErrTruncated is matched by the error of an export, or another long answer, that broke off: events
// are missing.
var ErrTruncated = errors.New("sluice: the answer broke off before its end")

// ExportLines yields the events of an export as the sidecar sent them: JSON texts without a
// newline. A text is valid until the next one. An error is the last that is yielded; without one
// the export is complete, except for the parts that it passes to Missing of [ExportQuery].
func (h *HTTP) ExportLines(ctx context.Context, q ExportQuery) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		at, err := h.replay(ctx)
		var resp *http.Response
		if err == nil {
			resp, err = h.call(ctx, http.MethodGet, at, q.path(), nil, nil)
		}
		if err != nil {
			yield(nil, err)
			return
		}
		defer resp.Body.Close()
		lines := lineReader{in: bufio.NewReaderSize(resp.Body, 64<<10)}
		for {
			line, err := lines.next()
			switch {
			case errors.Is(err, io.EOF):
				q.tellMissing(resp)
				return
			case err == nil && q.Progress != nil && bytes.HasPrefix(line, []byte(progressPrefix)):
				err = q.tellProgress(line)
				if err == nil {
					continue
				}
			}
			if err != nil {
				yield(nil, broken(ctx, err))
				return
			}
			if !yield(line, nil) {
				return
			}
		}
	}
}

// progressPrefix begins the lines of progress. The lines of events begin with the id.
const progressPrefix = `{"progress":`

func (q *ExportQuery) tellProgress(line []byte) error {
	var told struct {
		Progress []PartCount `json:"progress"`
	}
	if err := json.Unmarshal(line, &told); err != nil {
		return fmt.Errorf("a line that tells progress: %w", err)
	}
	q.Progress(told.Progress)
	return nil
}

// missingHeader names the missing parts. The trailer has all of them; the header, for clients
// without trailers, has those that were known when the answer began.
const missingHeader = "Sluice-Missing"

func (q *ExportQuery) tellMissing(resp *http.Response) {
	text := cmp.Or(resp.Trailer.Get(missingHeader), resp.Header.Get(missingHeader))
	if text == "" || q.Missing == nil {
		return
	}
	names := strings.Split(text, ", ")
	for i, name := range names {
		if plain, err := url.PathUnescape(name); err == nil {
			names[i] = plain
		}
	}
	q.Missing(names)
}

// lineReader reads lines of any length.
type lineReader struct {
	in   *bufio.Reader
	long []byte // a line that is longer than the buffer
}

// next returns the next line without its newline, valid until it is called again; io.EOF means that
// the stream ended after a complete line.
func (l *lineReader) next() ([]byte, error) {
	l.long = l.long[:0]
	for {
		piece, err := l.in.ReadSlice('\n')
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			l.long = append(l.long, piece...)
			continue
		case errors.Is(err, io.EOF) && len(piece)+len(l.long) > 0:
			return nil, errors.New("its last line is incomplete")
		case err != nil:
			return nil, err
		}
		if len(l.long) > 0 {
			l.long = append(l.long, piece...)
			piece = l.long
		}
		return piece[:len(piece)-1], nil
	}
}

// broken is the error of a stream that ended early: the context's, if that has ended, or else one
// that matches ErrTruncated.
func broken(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("%w: %w", ErrTruncated, err)
}

// Export yields the events of an export. An error is the last that is yielded; without one the
// export is complete.
func (h *HTTP) Export(ctx context.Context, q ExportQuery) iter.Seq2[wire.Event, error] {
	return func(yield func(wire.Event, error) bool) {
		for line, err := range h.ExportLines(ctx, q) {
			var e wire.Event
			if err == nil {
				e, err = codec.ParseEvent(line)
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

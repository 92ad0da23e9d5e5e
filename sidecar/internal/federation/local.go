package federation

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/replay"
)

// local is this sidecar as a member, without HTTP.
type local struct {
	self  func() replay.Peer
	parts replay.Parts
	store replay.Source
}

func (l *local) hello(context.Context) (replay.Peer, error) { return l.self(), nil }

// open reads the first page, so that the caller learns at once if the store is away.
func (l *local) open(ctx context.Context, a ask) (text io.ReadCloser, empty bool, err error) {
	r := &pageReader{ctx: ctx, source: l.parts.Log, topic: a.topic, query: a.scan, began: time.Now().UnixMilli()}
	if a.part == replay.PartSpool {
		frozen, err := l.parts.Freeze(ctx, a.topic)
		if frozen == nil {
			r.ended = true
			return r, err == nil, err
		}
		r.source, r.release = frozen, frozen.Close
	}
	if err := r.turn(); err != nil {
		r.Close()
		return nil, false, err
	}
	return r, false, nil
}

func (l *local) times(ctx context.Context, part, topic string, key *string, ids []string) ([]*int64, error) {
	return l.parts.Times(ctx, l.store, part, topic, key, ids)
}

// pageBounds bounds one page that is read from this sidecar's own parts.
var pageBounds = eventlog.Bounds{Events: 1024, Bytes: 1 << 20}

// pageReader is events as the text that a peer would send.
type pageReader struct {
	ctx     context.Context
	source  replay.Scanner
	release func() // may be nil
	topic   string
	query   eventlog.ScanQuery
	began   int64

	page  []*eventlog.Record
	spill []byte // the rest of an event for which the last Read had no room
	ended bool
}

// turn reads the next page.
func (r *pageReader) turn() error {
	err := replay.EndAhead(&r.query, r.began, func(latest eventlog.ScanQuery) ([]*eventlog.Record, error) {
		return r.source.Scan(r.ctx, r.topic, latest, eventlog.Bounds{Events: 1})
	})
	var page []*eventlog.Record
	if err == nil {
		page, err = r.source.Scan(r.ctx, r.topic, r.query, pageBounds)
	}
	if errors.Is(err, eventlog.ErrNotFound) {
		page, err = nil, nil
	}
	if err != nil {
		return err
	}
	if r.ended = len(page) == 0; !r.ended {
		last := page[len(page)-1]
		r.query.After = &eventlog.Point{TS: last.TS, ID: last.ID}
	}
	r.page = page
	return nil
}

// Read fills b up to the end of the page.
func (r *pageReader) Read(b []byte) (int, error) {
	if len(r.page) == 0 && len(r.spill) == 0 && !r.ended {
		if err := r.turn(); err != nil {
			return 0, err
		}
	}
	n := copy(b, r.spill)
	r.spill = r.spill[n:]
	for ; len(r.page) > 0 && n < len(b); r.page = r.page[1:] {
		text := append(codec.AppendEventJSON(b[n:n:len(b)], &r.page[0].Event), '\n')
		if &text[0] == &b[n] {
			n += len(text)
			continue
		}
		// b had no room, so the text is in another buffer.
		copied := copy(b[n:], text)
		n, r.spill = n+copied, text[copied:]
	}
	if n == 0 && r.ended {
		return 0, io.EOF
	}
	return n, nil
}

func (r *pageReader) Close() error {
	if r.release != nil {
		r.release()
	}
	return nil
}

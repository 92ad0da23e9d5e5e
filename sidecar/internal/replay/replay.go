// Package replay answers questions about the past over HTTP: GET /replay hands
// out pages of a topic, GET /export all of a stretch of it, both by (ts, id).
// It reads events and turns them into JSON; it knows nothing of publishing, of
// consumer groups, or of how a store keeps its order.
//
// An answer is whole or visibly broken: an error before the first byte is an
// ordinary JSON error, one after it ends the body without its proper end.
package replay

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"time"

	"github.com/sluice-bus/sluice/internal/access"
	"github.com/sluice-bus/sluice/internal/httpapi"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// Source is where events are read from: an eventlog.Reader, or several stores
// merged into one order. Its methods may be called from many goroutines at
// once and keep the promises of eventlog.Reader's methods of the same name.
type Source interface {
	Scan(ctx context.Context, topic string, q eventlog.ScanQuery, b eventlog.Bounds) ([]*eventlog.Record, error)
	Lookup(ctx context.Context, topic, id string) (*eventlog.Record, error)
}

// Config is what a handler is built from.
type Config struct {
	// Store answers scope=store: this sidecar's store, with its spool where
	// there is one.
	Store Source
	// Fleet answers scope=fleet. nil says that this sidecar knows no others:
	// its store is the fleet.
	Fleet Source
	// Access says who may replay which topic; nil lets everybody replay all.
	Access *access.Access
	Logger *slog.Logger
	// Now is the clock behind toTs=now; nil means time.Now.
	Now func() time.Time
	// StallTimeout is how long a client may take to accept one write before
	// its connection is cut; 0 means the default of 5 minutes.
	StallTimeout time.Duration
}

const defaultStallTimeout = 5 * time.Minute

// One page that is read from a source: what an answer needs of memory beside
// its buffers, however long it is. 1,024 leaves room for a page of the default
// limit and the event that says whether more follow.
const (
	pageEvents = 1024
	pageBytes  = 1 << 20
)

// retryAfter is when to try again while a store cannot be reached.
const retryAfter = time.Second

// handler serves both routes.
type handler struct {
	Config
	encoders encoders
}

// New makes the handler of GET /replay and GET /export, behind Config.Access; it
// answers every other path and method with a JSON error.
func New(c Config) http.Handler {
	if c.Fleet == nil {
		c.Fleet = c.Store
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.StallTimeout == 0 {
		c.StallTimeout = defaultStallTimeout
	}
	h := &handler{Config: c}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /replay", h.replay)
	mux.HandleFunc("GET /export", h.export)
	return c.Access.Authenticate(httpapi.Routes(mux))
}

// replay answers one page: {"topic","events","count","next"}. The events come
// before their count, so that they need not be held until they are counted.
func (h *handler) replay(w http.ResponseWriter, r *http.Request) {
	req, err := h.parseReplay(r)
	if err != nil {
		httpapi.WriteError(w, r, err, h.Logger)
		return
	}
	out := h.newBody(w, r, "application/json")
	defer out.release()

	out.text(`{"topic":"`, req.topic, `","events":[`) // a topic needs no escaping
	count, last, more := 0, eventlog.Point{}, false
	// One event more than asked for tells whether a next page has any.
	for page, err := range h.pages(r.Context(), req.selection, req.limit+1) {
		if err != nil {
			out.fail(err)
			return
		}
		if out.headOnly() {
			break
		}
		for _, rec := range page {
			if more = count == req.limit; more {
				break
			}
			if count > 0 {
				out.text(",")
			}
			out.event(&rec.Event, "")
			last = pointOf(rec)
			count++
		}
	}
	out.text(`],"count":`)
	out.number(count)
	if more {
		out.text(`,"next":"`, req.cursorAt(last).encode(), `"`)
	}
	out.text("}\n")
	out.finish()
}

// export answers everything between two times, one event per line or as one
// array.
func (h *handler) export(w http.ResponseWriter, r *http.Request) {
	req, err := h.parseExport(r)
	if err != nil {
		httpapi.WriteError(w, r, err, h.Logger)
		return
	}
	mime, open, lead, trail, end := "application/x-ndjson", "", "", "\n", ""
	if req.array {
		mime, open, lead, trail, end = "application/json", "[\n", ",\n", "", "\n]\n"
	}
	out := h.newBody(w, r, mime)
	defer out.release()

	out.text(open)
	first := true
	for page, err := range h.pages(r.Context(), req.selection, 0) {
		if err != nil {
			out.fail(err)
			return
		}
		if out.headOnly() {
			break
		}
		for _, rec := range page {
			if !first {
				out.text(lead)
			}
			first = false
			out.event(&rec.Event, trail)
		}
		out.flush() // what is read is handed out before more is waited for
	}
	out.text(end)
	out.finish()
}

// pages reads what s selects, page by page; at most that many events, or all
// with 0. A topic that does not exist has none. Errors are *wire.Error where
// the client may know them, and the last thing that is yielded.
func (h *handler) pages(ctx context.Context, s selection, most int) iter.Seq2[[]*eventlog.Record, error] {
	source, q := h.source(s.scope), s.query
	return func(yield func([]*eventlog.Record, error) bool) {
		for read := 0; most == 0 || read < most; {
			b := eventlog.Bounds{Events: pageEvents, Bytes: pageBytes}
			if most > 0 {
				b.Events = min(b.Events, most-read)
			}
			page, err := source.Scan(ctx, s.topic, q, b)
			if errors.Is(err, eventlog.ErrNotFound) {
				return
			}
			if err != nil {
				yield(nil, sourceError(err))
				return
			}
			kept := s.aboveFloor(page)
			if len(kept) == 0 || !yield(kept, nil) || len(kept) < len(page) {
				return
			}
			read += len(page)
			last := pointOf(page[len(page)-1])
			q.After = &last
		}
	}
}

func (h *handler) source(scope string) Source {
	if scope == scopeFleet {
		return h.Fleet
	}
	return h.Store
}

// sourceError adds what a client is told to what a source says.
func sourceError(err error) error {
	if errors.Is(err, eventlog.ErrUnavailable) {
		told := &wire.Error{Code: wire.StoreUnavailable, Msg: "the store cannot be read right now; try again", RetryAfter: retryAfter}
		return fmt.Errorf("%w: %w", told, err)
	}
	return err
}

func pointOf(r *eventlog.Record) eventlog.Point { return eventlog.Point{TS: r.TS, ID: r.ID} }

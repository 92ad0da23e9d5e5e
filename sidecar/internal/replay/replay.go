// Package replay answers questions about the past over HTTP: GET /replay returns pages of a topic,
// GET /export all events of a range of times, both by (ts, id). It reads events and turns them into
// JSON. It reaches other sidecars through a Fleet. They ask this one for its identity and for single
// parts (peers.go).
//
// An answer is complete or visibly broken: an error before the first byte is an ordinary JSON
// error, a later one ends the body without its proper end.
package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/sluice-bus/sluice/internal/access"
	"github.com/sluice-bus/sluice/internal/budget"
	"github.com/sluice-bus/sluice/internal/httpapi"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/audit"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/refusal"
)

// Source is the origin of events: an eventlog.Reader, or several stores merged into one order. Its
// methods are safe for concurrent use and keep the promises of eventlog.Reader's methods of the
// same name.
type Source interface {
	Scanner
	Lookup(ctx context.Context, topic, id string) (*eventlog.Record, error)
}

// Scanner is a Source, or a snapshot of one.
type Scanner interface {
	Scan(ctx context.Context, topic string, q eventlog.ScanQuery, b eventlog.Bounds) ([]*eventlog.Record, error)
}

// Config is what a handler needs.
type Config struct {
	// Store answers scope=store: this sidecar's store, with its spool if there is one.
	Store Source
	// Parts are the store and the spool by themselves, for other sidecars.
	Parts Parts
	// Self is this sidecar's identity for the others; nil: none.
	Self func() Peer
	// Fleet answers scope=fleet. nil means that this sidecar knows no others: its store is the
	// fleet.
	Fleet Fleet
	About httpapi.About
	// Access says which topics a client may replay; nil lets every client replay all.
	Access *access.Access
	// Budget bounds what clients make the sidecar hold; nil: no bounds.
	Budget *budget.Budget
	// PeerKey verifies the signed tokens of other sidecars; nil without a control plane.
	PeerKey *access.PeerKey
	Logger  *slog.Logger
	// Audit is the access log; nil is off.
	Audit *audit.Log
	// Now is the clock behind toTs=now; nil means time.Now.
	Now func() time.Time
	// StallTimeout is how long a client may take to accept one write before its connection is
	// closed; 0 means the default of 5 minutes.
	StallTimeout time.Duration
	// Beat is the time without an event after which a part's answer sends a sign of life; 0 means
	// the default of 5 seconds.
	Beat time.Duration
}

const (
	defaultStallTimeout = 5 * time.Minute
	defaultBeat         = 5 * time.Second
)

// The bounds of one page that is read from a source: the memory that an answer of any length needs
// in addition to its buffers. 1,024 events are enough for a page of the default limit and the event
// that shows whether more follow.
const (
	pageEvents = 1024
	pageBytes  = 1 << 20
)

// handler serves the routes.
type handler struct{ Config }

// New makes the handler of GET /replay and GET /export, and of the routes between sidecars, behind
// Config.Access; it answers every other path and method with a JSON error.
func New(c Config) http.Handler {
	h := withDefaults(c)
	routes := c.Audit.HTTP(c.Access.From, TopicOf, httpapi.NewRouter(h.routes()))
	held := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		release, err := httpapi.Hold(r)
		defer release()
		if err != nil {
			httpapi.WriteError(w, r, err, h.Logger)
			return
		}
		routes.ServeHTTP(w, r)
	})
	return c.Access.AuthenticatePeers(c.PeerKey, held, httpapi.AboutPath)
}

// Routes are the routes, for another listener.
func Routes(c Config) []httpapi.Route { return withDefaults(c).routes() }

func withDefaults(c Config) *handler {
	if c.Self == nil {
		c.Self = func() Peer { return Peer{} }
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	c.StallTimeout = cmp.Or(c.StallTimeout, defaultStallTimeout)
	c.Beat = cmp.Or(c.Beat, defaultBeat)
	return &handler{c}
}

// replay answers one page: {"topic","events","count","next"}. The events come before their count,
// so that replay need not hold them until they are counted.
func (h *handler) replay(w http.ResponseWriter, r *httpapi.Request) error {
	req, err := h.parseReplay(r)
	if err != nil {
		return err
	}
	out := h.newBody(w, r, "application/json")
	defer out.release()
	// One event more than requested shows whether a next page has any.
	in, err := h.open(r.Context(), out.share, req.selection, req.limit+1)
	if err != nil {
		out.fail(err)
		return nil
	}
	defer in.close()

	out.text(`{"topic":"`, req.topic, `","events":[`) // a topic needs no escaping
	count, next, more := 0, req.next(), false
	for it, err := range in.events() {
		if err != nil {
			out.fail(err)
			return nil
		}
		if more = count == req.limit; more || out.headOnly() {
			break
		}
		if count > 0 {
			out.text(",")
		}
		out.event(it, "")
		next.pass(it.at)
		if count++; count == req.limit {
			next.behind = in.behind()
		}
	}
	out.text(`],"count":`, strconv.Itoa(count))
	if more {
		cursor := next.encode()
		if len(cursor) > maxCursorBytes {
			out.fail(&wire.Error{Code: wire.PartialFleet, Missing: in.missing(),
				Msg: "too many parts of the fleet are missing for one cursor; export the topic, or ask again when they are back"})
			return nil
		}
		out.text(`,"next":"`, cursor, `"`)
	}
	if missing := in.missing(); len(missing) > 0 {
		out.text(`,"partial":true,"missing":`)
		out.json(missing)
	}
	out.text("}\n")
	out.finish(nil)
	return nil
}

// export answers with everything between two times, one event per line or as one array.
func (h *handler) export(w http.ResponseWriter, r *httpapi.Request) error {
	req, err := h.parseExport(r)
	if err != nil {
		return err
	}
	ctx, end := h.Access.While(r.Context(), access.Replay, req.topic, "")
	defer end()
	mime, open, before, after, tail := "application/x-ndjson", "", "", "\n", ""
	if req.array {
		mime, open, before, after, tail = "application/json", "[\n", ",\n", "", "\n]\n"
	}
	out := h.newBody(w, r, mime)
	defer out.release()
	defer context.AfterFunc(ctx, out.unblock)()
	in, err := h.open(ctx, out.share, req.selection, req.limit)
	if err != nil {
		out.fail(err)
		return nil
	}
	defer in.close()
	self := h.Self()
	w.Header().Set(HeaderStoreID, self.StoreID)
	w.Header().Set(HeaderNodeID, self.NodeID)
	if req.scope == scopeFleet {
		out.announce(in.missing())
	}
	if spool, ok := in.(*local); ok && spool.source == nil {
		w.Header().Set(HeaderEmpty, "1")
	}
	if req.part == PartSpool && !out.headOnly() {
		out.flush() // it shows that the spool is frozen
	}

	progress := h.newProgress(req)
	out.text(open)
	first := true
	for it, err := range in.events() {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		switch {
		case err != nil:
			out.fail(err)
			return nil
		case out.headOnly():
		case it.beat:
			out.text("\n")
		default:
			if !first {
				out.text(before)
			}
			first = false
			out.event(it, after)
			progress.write(out, in, it.wait)
		}
		if out.headOnly() {
			break
		}
		if it.wait {
			out.flush() // send what is read before waiting for more
		}
	}
	out.text(tail)
	progress.end(out, in)
	out.finish(in)
	return nil
}

// sourceError adds an answer for clients to a source's error.
func sourceError(err error) error {
	if errors.Is(err, eventlog.ErrUnavailable) {
		return fmt.Errorf("%w: %w", refusal.OfRead(err), err)
	}
	return err
}

func pointOf(r *eventlog.Record) eventlog.Point { return eventlog.Point{TS: r.TS, ID: r.ID} }

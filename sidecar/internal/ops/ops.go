// Package ops serves a sidecar's ops listener: health, metrics, status and profiles. It serves from
// the start, since opening the store may take long: on a full disk, until there is room.
package ops

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/pprof"
	"sync/atomic"
	"time"

	"github.com/sluice-bus/sluice/internal/budget"
	"github.com/sluice-bus/sluice/internal/httpapi"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/store"
)

// Server answers on the ops listener. Its methods are safe for concurrent use.
type Server struct {
	metrics http.Handler
	logger  *slog.Logger
	about   httpapi.About
	share   func(*http.Request) *budget.Share // of a client
	// parts is nil until the sidecar is assembled.
	parts             atomic.Pointer[Parts]
	serving, stopping atomic.Bool
}

// New makes a Server that reports only that the process is alive, until it is Assembled.
func New(metrics http.Handler, logger *slog.Logger, about httpapi.About, share func(*http.Request) *budget.Share) *Server {
	return &Server{metrics: metrics, logger: logger, about: about, share: share}
}

// Assembled says that the parts are there, so that they can be asked.
func (s *Server) Assembled(p Parts) { s.parts.Store(&p) }

// Serving says that applications are served.
func (s *Server) Serving() { s.serving.Store(true) }

// Stopping says that the sidecar has begun to stop.
func (s *Server) Stopping() { s.stopping.Store(true) }

// Handler serves the routes.
func (s *Server) Handler() http.Handler {
	profile := func(serve http.HandlerFunc) http.HandlerFunc { return s.within(budget.Profiles, profileTimeout, serve) }
	routes := httpapi.NewRouter(s.about.Add([]httpapi.Route{
		unchecked("/healthz", func(w http.ResponseWriter, _ *http.Request) { writeText(w, "ok\n") }),
		unchecked("/readyz", s.ready),
		unchecked("/metrics", s.within(budget.Scrapes, scrapeTimeout, s.metrics.ServeHTTP)),
		unchecked("/debug/pprof/", profile(pprof.Index)), // heap, goroutine and the like
		unchecked("/debug/pprof/profile", profile(pprof.Profile)),
		unchecked("/debug/pprof/trace", profile(pprof.Trace)),
		{Pattern: "GET /v1/status", Serve: s.answerStatus},
	}))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.parts.Load() == nil && r.URL.Path != "/healthz" && r.URL.Path != httpapi.AboutPath {
			httpapi.WriteError(w, r, errStarting, s.logger)
			return
		}
		routes.ServeHTTP(w, r)
	})
}

// How long a client may take to read an answer.
const (
	scrapeTimeout  = time.Minute
	profileTimeout = 10 * time.Minute
)

// within serves a route within a time, at a place of its client: each answer has the figures of all topics and groups
// in memory.
func (s *Server) within(p budget.Place, patience time.Duration, serve http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		share := s.share(r)
		if err := share.Enter(p); err != nil {
			httpapi.WriteError(w, r, err, s.logger)
			return
		}
		defer share.Leave(p)
		conn := http.NewResponseController(w)
		_ = conn.SetWriteDeadline(time.Now().Add(patience))
		defer func() { _ = conn.SetWriteDeadline(time.Time{}) }() // for the next answer on this connection
		serve(w, r)
		_ = conn.Flush()
	}
}

func unchecked(path string, serve http.HandlerFunc) httpapi.Route {
	return httpapi.Route{Pattern: "GET " + path, Unchecked: true, Serve: func(w http.ResponseWriter, r *httpapi.Request, _ error) {
		serve(w, r.Request)
	}}
}

func (s *Server) answerStatus(w http.ResponseWriter, r *httpapi.Request, bad error) {
	if bad != nil {
		httpapi.WriteError(w, r.Request, bad, s.logger)
		return
	}
	s.within(budget.Scrapes, scrapeTimeout, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		_ = enc.Encode(s.status()) // the client went away
	})(w, r.Request)
}

var errStarting = wire.Errorf(wire.StoreUnavailable,
	"the sidecar is starting: its store is not open yet; on a disk without room, that waits for room")

// ready answers whether publishes are accepted.
func (s *Server) ready(w http.ResponseWriter, r *http.Request) {
	st := s.storeStatus()
	if st.Err != nil {
		st.Detail += " (the last error: " + st.Err.Error() + ")"
	}
	switch why := unready(st); {
	case why != nil:
		httpapi.WriteError(w, r, why, s.logger)
	case st.State == store.StateAway:
		writeText(w, "ready: "+st.Detail+"\n")
	default:
		writeText(w, "ready\n")
	}
}

// Ready reports whether publishes are accepted.
func (s *Server) Ready() bool { return s.parts.Load() != nil && unready(s.storeStatus()) == nil }

// unready is why publishes are not accepted; nil: they are.
func unready(st store.Status) error {
	switch st.State {
	case store.StateDisk:
		return &wire.Error{Code: wire.Overloaded, Reason: "disk", Msg: st.Detail}
	case store.StateFailed, store.StateFull, store.StateStarting, stateStopping:
		return &wire.Error{Code: wire.StoreUnavailable, Msg: st.Detail}
	}
	return nil
}

const stateStopping store.State = "stopping"

// storeStatus is the store's status, with the state of a sidecar that does not serve.
func (s *Server) storeStatus() store.Status {
	st := s.parts.Load().Store.Status()
	if s.stopping.Load() {
		st.State, st.Detail = stateStopping, "the sidecar is stopping"
	} else if !s.serving.Load() {
		st.State, st.Detail = store.StateStarting, "the sidecar is starting"
	}
	return st
}

func writeText(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte(text)) // the client went away
}

// Package ops serves a sidecar's ops listener: health, metrics, status and profiles. It serves from
// the start, since opening the store may take long: on a full disk, until there is room.
package ops

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/pprof"
	"sync/atomic"

	"github.com/sluice-bus/sluice/internal/httpapi"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/store"
)

// Server answers on the ops listener. Its methods are safe for concurrent use.
type Server struct {
	metrics http.Handler
	logger  *slog.Logger
	about   httpapi.About
	// parts is nil until the sidecar is assembled.
	parts             atomic.Pointer[Parts]
	serving, stopping atomic.Bool
}

// New makes a Server that reports only that the process is alive, until it is Assembled.
func New(metrics http.Handler, logger *slog.Logger, about httpapi.About) *Server {
	return &Server{metrics: metrics, logger: logger, about: about}
}

// Assembled says that the parts are there, so that they can be asked.
func (s *Server) Assembled(p Parts) { s.parts.Store(&p) }

// Serving says that applications are served.
func (s *Server) Serving() { s.serving.Store(true) }

// Stopping says that the sidecar has begun to stop.
func (s *Server) Stopping() { s.stopping.Store(true) }

// Handler serves the routes.
func (s *Server) Handler() http.Handler {
	routes := httpapi.NewRouter(s.about.Add([]httpapi.Route{
		unchecked("/healthz", func(w http.ResponseWriter, _ *http.Request) { writeText(w, "ok\n") }),
		unchecked("/readyz", s.ready),
		unchecked("/metrics", s.metrics.ServeHTTP),
		unchecked("/debug/pprof/", pprof.Index), // heap, goroutine and the like
		unchecked("/debug/pprof/profile", pprof.Profile),
		unchecked("/debug/pprof/trace", pprof.Trace),
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
	w.Header().Set("Content-Type", "application/json")
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	_ = enc.Encode(s.status()) // the client went away
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

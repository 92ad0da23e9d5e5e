// Package rest is the HTTP API of the control plane, by which people and programs read and change
// policies and read the state of the fleet, and serves the console's files. It calls the catalog
// and answers in JSON.
package rest

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"strings"

	"github.com/sluice-bus/sluice/internal/httpapi"
)

// Config has the dependencies of a handler. Every field is required unless it says otherwise.
type Config struct {
	Catalog  Catalog
	Registry Registry
	Access   Access
	Console  http.Handler // "/" and all below it that is not the API's
	Metrics  http.Handler // GET /metrics
	Debug    http.Handler // "/debug/pprof/" and all below it
	// Status is the body of GET /v1/status.
	Status func() any
	// Ready returns why the control plane cannot serve, or nil; everyone may read the reason.
	Ready func() error
	// Forget removes a missing sidecar, and reports whether it was missing.
	Forget func(ctx context.Context, nodeID string) (bool, error)
	// Addr is the listener's bound address.
	Addr net.Addr
	// AllowedOrigins are the origins, beside the console's own, whose pages may use the API; it may
	// be empty.
	AllowedOrigins []string
	Logger         *slog.Logger
}

// handler serves the API.
type handler struct {
	Config
	gate gate
}

// New returns the handler of the control plane's HTTP listener, behind the guards against web pages
// of other origins.
func New(c Config) http.Handler {
	h := &handler{Config: c, gate: newGate()}
	api := secured(httpapi.Routes(h.routes()))
	all := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isAPI(r.URL.Path) {
			api.ServeHTTP(w, r)
			return
		}
		h.Console.ServeHTTP(w, r)
	})
	guard := httpapi.Guard{
		AllowedOrigins: c.AllowedOrigins, Addr: c.Addr, SameOrigin: true, Pages: func(path string) bool { return !isAPI(path) },
	}
	return guard.Handler(all)
}

// isAPI tells the API's paths from the console's, so that an unknown route is answered as one of
// the API.
func isAPI(path string) bool {
	switch path {
	case "/v1", "/healthz", "/readyz", "/metrics":
		return true
	}
	return strings.HasPrefix(path, "/v1/") || strings.HasPrefix(path, "/debug/")
}

func (h *handler) routes() *http.ServeMux {
	mux := http.NewServeMux()
	for pattern, serve := range map[string]func(http.ResponseWriter, *request) error{
		"GET /v1/policies":                       h.listPolicies,
		"GET /v1/policies/{name}":                h.getPolicy,
		"PUT /v1/policies/{name}":                h.putPolicy,
		"DELETE /v1/policies/{name}":             h.deletePolicy,
		"GET /v1/policies/{name}/history":        h.history,
		"POST /v1/policies/{name}/rollback":      h.rollback,
		"GET /v1/policies/{name}/schemas":        h.schemas,
		"POST /v1/apply":                         h.apply,
		"POST /v1/policies/{name}/schemas/check": h.checkSchema,
		"POST /v1/series":                        h.newSeries,
		"GET /v1/audit":                          h.audit,
		"GET /v1/sidecars":                       h.sidecars,
		"DELETE /v1/sidecars/{node_id}":          h.forget,
		"GET /v1/topics":                         h.topics,
		"GET /v1/whoami":                         h.whoami,
		"GET /v1/status":                         h.status,
		"GET /metrics":                           h.metrics,
		"GET /debug/pprof/":                      h.debug,
	} {
		mux.HandleFunc(pattern, h.known(serve))
	}
	// Requests for liveness and readiness are anonymous.
	mux.HandleFunc("GET /healthz", h.healthz)
	mux.HandleFunc("GET /readyz", h.readyz)
	return mux
}

// request is an authenticated request of a sender that may at least read.
type request struct {
	*http.Request
	sender Identity
	params httpapi.Params
}

// known serves senders that may read; serve checks further rights.
func (h *handler) known(serve func(http.ResponseWriter, *request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		sender, err := h.Access.Identify(r)
		if err != nil {
			h.Access.Challenge(w, r, err)
			return
		}
		in, err := readRequest(r, sender)
		if err == nil {
			err = serve(w, in)
		}
		if err != nil {
			h.fail(w, r, err)
		}
	}
}

func readRequest(r *http.Request, sender Identity) (*request, error) {
	sender, err := named(sender, r)
	if err != nil {
		return nil, err
	}
	if err := sender.may(viewer); err != nil {
		return nil, err
	}
	params, err := httpapi.ParseParams(r.URL.RawQuery)
	return &request{Request: r, sender: sender, params: params}, err
}

// secured sets headers that tell browsers to keep the answer private.
func secured(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Cache-Control", "no-store")
		header.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		header.Set("Cross-Origin-Resource-Policy", "same-origin")
		header.Set("X-Content-Type-Options", "nosniff")
		next.ServeHTTP(w, r)
	})
}

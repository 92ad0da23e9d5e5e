// Package rest is the HTTP API of the control plane, by which people and programs read and change
// policies and read the state of the fleet, and serves the console's files. It calls the catalog
// and answers in JSON.
package rest

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"strconv"
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
	api := secured(httpapi.NewRouter(h.routes()))
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

func (h *handler) routes() []httpapi.Route {
	route := func(pattern string, serve func(http.ResponseWriter, *request) error, query ...httpapi.Param) httpapi.Route {
		return httpapi.Route{
			Pattern: pattern, Query: query, Serve: h.known(serve),
			Headers: []httpapi.Param{httpapi.Text(userHeader, "the name of who sends this, where nobody authenticates")},
		}
	}
	unchecked := func(pattern string, serve func(http.ResponseWriter, *request) error) httpapi.Route {
		return httpapi.Route{Pattern: pattern, Serve: h.known(serve), Unchecked: true}
	}
	// Requests for liveness and readiness are anonymous.
	probe := func(pattern string, serve http.HandlerFunc) httpapi.Route {
		return httpapi.Route{Pattern: pattern, Unchecked: true, Serve: func(w http.ResponseWriter, r *httpapi.Request, _ error) {
			serve(w, r.Request)
		}}
	}
	return []httpapi.Route{
		route("GET /v1/policies", h.listPolicies),
		route("GET /v1/policies/{name}", h.getPolicy),
		route("PUT /v1/policies/{name}", h.putPolicy, httpapi.DryRun()),
		route("DELETE /v1/policies/{name}", h.deletePolicy, httpapi.DryRun()),
		route("GET /v1/policies/{name}/history", h.history),
		route("POST /v1/policies/{name}/rollback", h.rollback),
		route("GET /v1/policies/{name}/schemas", h.schemas),
		route("POST /v1/apply", h.apply),
		route("POST /v1/policies/{name}/schemas/check", h.checkSchema),
		route("POST /v1/series", h.newSeries),
		route("GET /v1/audit", h.audit,
			httpapi.Whole("limit", "how many entries", 1, maxAudit).Or(strconv.Itoa(defaultAudit)),
			httpapi.Whole("before", "only entries before this revision", 1, maxRevision).Or(strconv.Itoa(maxRevision))),
		route("GET /v1/sidecars", h.sidecars, append(sidecarList.params(),
			httpapi.Text("policy", "only sidecars that a change of this policy has to reach, each with its version of it"))...),
		route("DELETE /v1/sidecars/{node_id}", h.forget),
		route("GET /v1/topics", h.topics, append(topicList.params(),
			httpapi.OneOf("history", "1 adds the last 60 seconds", "0", "1").Or("0"))...),
		route("GET /v1/whoami", h.whoami),
		route("GET /v1/status", h.status),
		unchecked("GET /metrics", h.metrics),
		unchecked("GET /debug/pprof/", h.debug),
		probe("GET /healthz", h.healthz),
		probe("GET /readyz", h.readyz),
	}
}

// request is an authenticated request of a sender that may at least read.
type request struct {
	*http.Request
	httpapi.Params
	sender Identity
}

// known serves senders that may read; serve checks further rights.
func (h *handler) known(serve func(http.ResponseWriter, *request) error) func(http.ResponseWriter, *httpapi.Request, error) {
	return func(w http.ResponseWriter, r *httpapi.Request, bad error) {
		sender, err := h.Access.Identify(r.Request)
		if err != nil {
			h.Access.Challenge(w, r.Request, err)
			return
		}
		if bad == nil {
			sender, bad = named(sender, r.Request)
		}
		if bad == nil {
			bad = sender.may(viewer)
		}
		if bad == nil {
			bad = serve(w, &request{r.Request, r.Params, sender})
		}
		if bad != nil {
			h.fail(w, r.Request, bad)
		}
	}
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

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

	"github.com/sluice-bus/sluice/controlplane/internal/catalog"
	"github.com/sluice-bus/sluice/internal/budget"
	"github.com/sluice-bus/sluice/internal/httpapi"
)

// Config has the dependencies of a handler. Every field is required unless it says otherwise.
type Config struct {
	Catalog  Catalog
	Registry Registry
	Health   Health
	Usage    Usage
	Access   Access
	Budget   *budget.Budget // of the clients; nil: no bounds
	Console  http.Handler   // "/" and all below it that is not the API's
	Metrics  http.Handler   // GET /metrics
	Debug    http.Handler   // "/debug/pprof/" and all below it
	// Name is this control plane's, as sidecars' ControlPlane has it.
	Name string
	// About is the answer to GET / for JSON, without its routes.
	About About
	// Status is the body of GET /v1/status.
	Status func() any
	// Ready returns why the control plane cannot serve, or nil; everyone may read the reason.
	Ready func() error
	// Forward asks sidecars what is asked of a store.
	Forward Forwarder
	// Stopping is closed when the program begins to stop, so that watches end; nil: never.
	Stopping <-chan struct{}
	// Forget removes a missing sidecar, and reports whether it was missing.
	Forget func(ctx context.Context, nodeID string) (bool, error)
	// Addr is the listener's bound address.
	Addr net.Addr
	// AllowedOrigins are the origins, beside the console's own, whose pages may use the API; it may
	// be empty.
	AllowedOrigins []string
	// TraceURL is where the console finds a trace, with {trace_id} in place of its id; "": nowhere.
	TraceURL string
	Logger   *slog.Logger
}

// handler serves the API.
type handler struct {
	Config
	turns *catalog.Turns // for the document that is worked out
	lists policyLists
	feed  *feed
}

// New returns the handler of the control plane's HTTP listener, behind the guards against web pages
// of other origins.
func New(c Config) http.Handler {
	h := &handler{Config: c, turns: catalog.NewTurns()}
	h.feed = newFeed(h.watched())
	routes := h.routes()
	for _, route := range routes {
		h.About.Routes = append(h.About.Routes, route.Pattern)
	}
	api, about := secured(httpapi.NewRouter(routes)), secured(http.HandlerFunc(h.about))
	all := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case isAPI(r.URL.Path):
			api.ServeHTTP(w, r)
		case wantsAbout(r):
			about.ServeHTTP(w, r)
		default:
			h.Console.ServeHTTP(w, r)
		}
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

// request is an authenticated request of a sender that may at least read.
type request struct {
	*http.Request
	httpapi.Params
	sender Identity
	held   *budget.Held // of the sender's memory
}

// share is what a sender may use.
func (h *handler) share(of Identity) *budget.Share {
	if !of.Verified {
		return h.Budget.Of("") // the name is only said
	}
	return h.Budget.Of(of.Name)
}

// enter takes a place for a request, until leave is called.
func (r *request) enter(p budget.Place) (leave func(), err error) {
	if err := r.held.Share.Enter(p); err != nil {
		return nil, err
	}
	return func() { r.held.Share.Leave(p) }, nil
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
			release, err := h.hold(r.Request)
			defer release()
			if bad = err; bad == nil {
				held := &budget.Held{Share: h.share(sender)}
				defer held.Free()
				bad = serve(w, &request{r.Request, r.Params, sender, held})
			}
		}
		if bad != nil {
			h.fail(w, r.Request, bad)
		}
	}
}

// hold takes a place of the listener for a request. Metrics, as health checks, need none, so that
// they are answered whatever others do.
func (h *handler) hold(r *http.Request) (release func(), err error) {
	if r.URL.Path == "/metrics" {
		return func() {}, nil
	}
	return httpapi.Hold(r)
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

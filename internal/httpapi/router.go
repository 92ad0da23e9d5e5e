package httpapi

import (
	"net/http"
	"strings"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// Router serves the routes of a listener. It answers with JSON errors where no route matches: 404,
// and 405 with Allow if the path exists for other methods. It redirects no path.
type Router struct{ mux *http.ServeMux }

// NewRouter makes a Router.
func NewRouter(routes []Route) *Router {
	mux := http.NewServeMux()
	for i := range routes {
		mux.Handle(routes[i].Pattern, &endpoint{&routes[i]})
	}
	return &Router{mux}
}

// endpoint is a route in a ServeMux.
type endpoint struct{ *Route }

func (e *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	in, bad := e.read(r)
	e.Serve(w, in, bad)
}

func (t *Router) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	handler, _ := t.mux.Handler(r)
	if _, ours := handler.(*endpoint); ours {
		t.mux.ServeHTTP(w, r)
		return
	}
	// Only the mux knows which methods the path has. Its other handlers redirect unclean paths, and
	// find nothing.
	probe := discard{header: make(http.Header)}
	handler.ServeHTTP(&probe, r)
	if probe.status != http.StatusMethodNotAllowed {
		hint := ""
		if strings.HasPrefix(r.URL.Path, daprPaths) {
			hint = "; Sluice has of Dapr's API what publishes and subscribes, and the metadata"
		}
		refuse(w, r, wire.Errorf(wire.NotFound, "no such route: %s%s", r.URL.Path, hint))
		return
	}
	RefuseMethod(w, r, probe.header.Get("Allow"), "")
}

// RefuseMethod answers a request whose path has other methods. The hint, if it is not empty, is
// appended to the message.
func RefuseMethod(w http.ResponseWriter, r *http.Request, allow, hint string) {
	w.Header().Set("Allow", allow)
	refuseStatus(w, r, wire.Errorf(wire.NotFound, "no such route: %s %s; the methods here are %s%s", r.Method, r.URL.Path, allow, hint),
		http.StatusMethodNotAllowed)
}

// discard is a ResponseWriter that keeps only the header and the status.
type discard struct {
	header http.Header
	status int
}

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) WriteHeader(status int)      { d.status = status }
func (d *discard) Write(p []byte) (int, error) { return len(p), nil }

package httpapi

import (
	"net/http"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// Routes serves mux, with JSON errors instead of a ServeMux's texts if no pattern matches: 404, and
// 405 with Allow if the path exists for other methods.
func Routes(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fallback, pattern := mux.Handler(r)
		if pattern != "" {
			mux.ServeHTTP(w, r)
			return
		}
		// Only the mux knows which methods the path has.
		probe := discard{header: make(http.Header)}
		fallback.ServeHTTP(&probe, r)
		if probe.status != http.StatusMethodNotAllowed {
			refuse(w, wire.Errorf(wire.NotFound, "no such route: %s", r.URL.Path))
			return
		}
		RefuseMethod(w, r, probe.header.Get("Allow"), "")
	})
}

// RefuseMethod answers a request whose path has other methods. The hint, if it is not empty, is
// appended to the message.
func RefuseMethod(w http.ResponseWriter, r *http.Request, allow, hint string) {
	w.Header().Set("Allow", allow)
	refuseStatus(w, wire.Errorf(wire.NotFound, "no such route: %s %s; the methods here are %s%s", r.Method, r.URL.Path, allow, hint),
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

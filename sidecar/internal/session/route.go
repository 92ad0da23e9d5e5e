package session

import (
	"net/http"
	"strings"

	"github.com/sluice-bus/sluice/internal/httpapi"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/sidecar/internal/refusal"
)

// Handler answers a request of a caller, or returns the error to answer it with.
type Handler func(caller *Session, w http.ResponseWriter, r *http.Request) error

// Route is the handler of one method and path.
type Route struct {
	Pattern string
	Handler Handler
	// Unchecked leaves the path's names to the handler, and the refusal while the sidecar stops.
	Unchecked bool
	// WhileStopping serves the route while the sidecar stops, too.
	WhileStopping bool
}

// Serve returns the route's handler for a ServeMux.
func (x *Sessions) Serve(route Route) http.HandlerFunc {
	topic, group := strings.Contains(route.Pattern, "{topic}"), strings.Contains(route.Pattern, "{group}")
	check := func(r *http.Request) error {
		if topic {
			if bad := codec.CheckReadTopic(r.PathValue("topic")); bad != nil {
				return bad
			}
		}
		if group {
			if bad := codec.CheckGroup(r.PathValue("group")); bad != nil {
				return bad
			}
		}
		if !route.WhileStopping && x.Stopping.Err() != nil {
			return refusal.Stopping()
		}
		return nil
	}
	if route.Unchecked {
		check = func(*http.Request) error { return nil }
	}
	return func(w http.ResponseWriter, r *http.Request) {
		err := check(r)
		if err == nil {
			err = route.Handler(x.Of(r), w, r)
		}
		if err != nil {
			httpapi.WriteError(w, r, refusal.Of(err), x.Logger)
		}
	}
}

// Answer writes the result of ask as JSON, or an answer without content for nil.
func Answer(ask func(caller *Session, w http.ResponseWriter, r *http.Request) (any, error)) Handler {
	return func(caller *Session, w http.ResponseWriter, r *http.Request) error {
		got, err := ask(caller, w, r)
		switch {
		case err != nil:
			return err
		case got == nil:
			w.WriteHeader(http.StatusNoContent)
			return nil
		}
		return httpapi.WriteValue(w, http.StatusOK, got)
	}
}

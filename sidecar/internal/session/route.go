package session

import (
	"net/http"
	"slices"
	"strings"

	"github.com/sluice-bus/sluice/internal/httpapi"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/sidecar/internal/refusal"
)

// Handler answers a request of a caller, or returns the error to answer it with.
type Handler func(caller *Session, w http.ResponseWriter, r *httpapi.Request) error

// Route is a route with its handler.
type Route struct {
	httpapi.Route
	Handler Handler
	// WhileStopping serves the route while the sidecar stops, too.
	WhileStopping bool
	// Refused, if it is set, is told of requests that are refused before Handler sees them.
	Refused func(topic string, code wire.Code)
}

// Serve returns the route for a Router.
func (x *Sessions) Serve(route Route) httpapi.Route {
	topic, group := strings.Contains(route.Pattern, "{topic}"), strings.Contains(route.Pattern, "{group}")
	check := func(r *httpapi.Request) error {
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
	described := route.Route
	described.Errors = append(slices.Clone(described.Errors), wire.StoreUnavailable, wire.Overloaded)
	if topic {
		described.Errors = append(described.Errors, wire.NotFound)
	}
	described.Serve = func(w http.ResponseWriter, r *httpapi.Request, err error) {
		if err == nil {
			err = check(r)
		}
		if err == nil {
			err = route.Handler(x.Of(r.Request), w, r)
		} else if route.Refused != nil {
			route.Refused(r.PathValue("topic"), wire.AsError(err).Code)
		}
		if err != nil {
			httpapi.WriteError(w, r.Request, refusal.Of(err), x.Logger)
		}
	}
	return described
}

// Answer writes the result of ask as JSON, or an answer without content for nil.
func Answer(ask func(caller *Session, w http.ResponseWriter, r *httpapi.Request) (any, error)) Handler {
	return func(caller *Session, w http.ResponseWriter, r *httpapi.Request) error {
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

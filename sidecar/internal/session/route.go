package session

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

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
			err = x.handle(route, w, r)
		} else if route.Refused != nil {
			route.Refused(r.PathValue("topic"), wire.AsError(err).Code)
		}
		if err != nil {
			httpapi.WriteError(w, r.Request, refused(r, err), x.Logger)
		}
	}
	return described
}

// handle has a route answer a request on a connection that has a place.
func (x *Sessions) handle(route Route, w http.ResponseWriter, r *httpapi.Request) error {
	caller := x.Of(r.Request)
	if err := caller.Keep(); err != nil {
		w.Header().Set("Connection", "close")
		return err
	}
	return route.Handler(caller, w, r)
}

// refused is the answer to a request that failed.
func refused(r *httpapi.Request, err error) error {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return refusal.OfRead(err)
	}
	return refusal.Of(err)
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
		return caller.write(w, got)
	}
}

// smallAnswer is how long an answer may be that is not counted.
const smallAnswer = 4 << 10

// write answers with the JSON text of a value. The client has some time to read it, and its memory
// has the text and the value until then.
func (s *Session) write(w http.ResponseWriter, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if len(text) <= smallAnswer {
		httpapi.WriteJSON(w, http.StatusOK, text)
		return nil
	}
	held := 2 * len(text)
	if err := s.Share().TryTake(held); err != nil {
		return err
	}
	defer s.Share().Give(held)
	conn := http.NewResponseController(w)
	_ = conn.SetWriteDeadline(time.Now().Add(s.of.Silence))
	httpapi.WriteJSON(w, http.StatusOK, text)
	_ = conn.Flush()
	_ = conn.SetWriteDeadline(time.Time{}) // for the next answer on this connection
	return nil
}

package gateway

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/sluice-bus/sluice/internal/access"
	"github.com/sluice-bus/sluice/internal/httpapi"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/sidecar/internal/refusal"
)

// handler answers a request, or returns the error to answer it with.
type handler func(w http.ResponseWriter, r *http.Request) error

// handle answers a handler's error.
func (g *Gateway) handle(h handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := h(w, r); err != nil {
			httpapi.WriteError(w, r, refusal.Of(err), g.cfg.Logger)
		}
	}
}

// untilShutdown refuses requests while the sidecar shuts down.
func (g *Gateway) untilShutdown(h handler) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		if g.refusing() {
			return refusal.Stopping()
		}
		return h(w, r)
	}
}

// answer writes the result of ask as JSON, or an answer without content for nil.
func answer(ask func(http.ResponseWriter, *http.Request) (any, error)) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		got, err := ask(w, r)
		if err == nil && got == nil {
			w.WriteHeader(http.StatusNoContent)
			return nil
		}
		if err != nil {
			return err
		}
		return marshalTo(w, http.StatusOK, got)
	}
}

func marshalTo(w http.ResponseWriter, status int, content any) error {
	text, err := json.Marshal(content)
	if err == nil {
		writeJSON(w, status, text)
	}
	return err
}

func writeJSON(w http.ResponseWriter, status int, content []byte) {
	content = append(content, '\n')
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(content)))
	w.WriteHeader(status)
	_, _ = w.Write(content) // a client that does not read its answer is gone
}

// named checks the topic and the group in the path of a route.
func named(route string, h handler) handler {
	topic, group := strings.Contains(route, "{topic}"), strings.Contains(route, "{group}")
	return func(w http.ResponseWriter, r *http.Request) error {
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
		return h(w, r)
	}
}

// mayJoin reports whether the sender may subscribe to the topic in the path, with the group in the
// path.
func (g *Gateway) mayJoin(r *http.Request) error {
	return g.may(r, access.Subscribe, r.PathValue("topic"), r.PathValue("group"))
}

// dryRun reports whether the request must not change anything.
func dryRun(r *http.Request) (bool, error) {
	p, err := httpapi.ParseParams(r.URL.RawQuery)
	if err != nil {
		return false, err
	}
	return p.DryRun()
}

// sender is the name of the request's sender, for the log.
func (g *Gateway) sender(r *http.Request) string { return g.cfg.Access.From(r.Context()).Name }

// decodeBody reads a body that is a JSON object. Its errors use kinds, the type of each member, and
// object, a description of the whole.
func decodeBody(content []byte, to any, object string, kinds map[string]string) *wire.Error {
	if !utf8.Valid(content) {
		return wire.Errorf(wire.BadJSON, "the body is not JSON: %v", errNotUTF8)
	}
	err := json.Unmarshal(content, to)
	if err == nil {
		return nil
	}
	wrong, is := errors.AsType[*json.UnmarshalTypeError](err)
	if !is {
		return wire.Errorf(wire.BadJSON, "the body is not JSON: %v", err)
	}
	field, _, _ := strings.Cut(wrong.Field, ".")
	if kinds[field] == "" {
		return wire.Errorf(wire.BadRequest, "the body must be a JSON object with %s", object)
	}
	return wire.Errorf(wire.BadRequest, "%s must be a %s, and not a %s", field, kinds[field], wrong.Value)
}

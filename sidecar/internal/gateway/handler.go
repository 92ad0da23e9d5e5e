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
)

// handler answers a request, or returns the error to answer it with.
type handler func(w http.ResponseWriter, r *http.Request) error

// handle answers a handler's error.
func (g *Gateway) handle(h handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := h(w, r); err != nil {
			httpapi.WriteError(w, r, refusal(err), g.cfg.Logger)
		}
	}
}

// untilShutdown refuses requests while the sidecar shuts down.
func (g *Gateway) untilShutdown(h handler) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		if g.refusing() {
			return errStopping()
		}
		return h(w, r)
	}
}

// answer writes what ask returns as JSON, and no content for nil.
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
	_, _ = w.Write(content) // a client that does not take its answer has gone
}

// topicOf is the topic that the path names.
func topicOf(r *http.Request) (topic string, err error) {
	topic = r.PathValue("topic")
	if bad := codec.CheckReadTopic(topic); bad != nil {
		err = bad
	}
	return topic, err
}

// groupOf is the topic and the group that the path names.
func groupOf(r *http.Request) (topic, name string, err error) {
	if topic, err = topicOf(r); err != nil {
		return "", "", err
	}
	name = r.PathValue("group")
	if bad := codec.CheckGroup(name); bad != nil {
		return "", "", bad
	}
	return topic, name, nil
}

// paramsOf is the topic that the path names, and the parameters.
func paramsOf(r *http.Request, lists ...string) (topic string, p httpapi.Params, err error) {
	if topic, err = topicOf(r); err == nil {
		p, err = httpapi.ParseParams(r.URL.RawQuery, lists...)
	}
	return topic, p, err
}

// dryRun is the topic that the path names, and whether nothing is to be changed.
func dryRun(r *http.Request) (topic string, dry bool, err error) {
	topic, p, err := paramsOf(r)
	if err == nil {
		dry, err = p.DryRun()
	}
	return topic, dry, err
}

// maySubscribe is the topic that the path names, if the sender may subscribe to it.
func (g *Gateway) maySubscribe(r *http.Request) (topic string, err error) {
	if topic, err = topicOf(r); err == nil {
		err = g.may(r, access.Subscribe, topic, "")
	}
	return topic, err
}

// mayJoin is the group that the path names, if the sender may subscribe with it.
func (g *Gateway) mayJoin(r *http.Request) (topic, name string, err error) {
	if topic, name, err = groupOf(r); err == nil {
		err = g.may(r, access.Subscribe, topic, name)
	}
	return topic, name, err
}

// sender is who asks, as the log names it.
func (g *Gateway) sender(r *http.Request) string { return g.cfg.Access.From(r.Context()).Name }

// decodeBody reads a body that is a JSON object. kinds says of each member what
// it must be, and object what the whole must be.
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

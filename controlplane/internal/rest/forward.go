package rest

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/sluice-bus/sluice/controlplane/internal/forward"
	"github.com/sluice-bus/sluice/internal/access"
	"github.com/sluice-bus/sluice/internal/httpapi"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// Forwarder answers requests by a sidecar of a store. An error says why there is no answer; nothing
// is written then.
type Forwarder interface {
	Serve(w http.ResponseWriter, r *http.Request, what forward.Request) error
}

// storesPath begins the paths that are forwarded: a store and the path at its sidecars follow.
const storesPath = "/v1/stores/"

// storeRoute forwards what is asked of a store. The sidecar checks the request, and describes its
// routes at its own listeners.
func (h *handler) storeRoute() httpapi.Route {
	return httpapi.Route{Pattern: storesPath + "{store}/{path...}", Unchecked: true, Serve: h.known(h.forward)}
}

func (h *handler) forward(w http.ResponseWriter, r *request) error {
	at, ok := atSidecar(r.URL)
	if !ok {
		return wire.Errorf(wire.NotFound, "no such route: %s; a store has topics, replay and export", r.URL.Path)
	}
	ctx, end := r.Context(), func() {}
	if r.sender.While != nil {
		ctx, end = r.sender.While(ctx)
	}
	defer end()
	store := r.PathValue("store")
	answer := &httpapi.Recorder{ResponseWriter: w}
	err := h.Forward.Serve(answer, r.WithContext(ctx), forward.Request{
		Store: store, URL: at, As: forward.Person{Name: r.sender.Name, Role: access.Role(r.sender.Role), Topics: r.sender.Topics},
	})
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		status := answer.Status()
		if err != nil {
			status = wire.AsError(err).Code.HTTPStatus()
		}
		h.Logger.Info("a change was asked of a sidecar", "store", store, "method", r.Method, "path", at.Path,
			"by", r.sender.Name, "role", r.sender.Role, "status", status)
	}
	return err
}

// atSidecar is a forwarded URL as the sidecar has it.
func atSidecar(u *url.URL) (at url.URL, ok bool) {
	_, path, _ := strings.Cut(strings.TrimPrefix(u.EscapedPath(), storesPath), "/")
	switch first, _, _ := strings.Cut(path, "/"); {
	case first == "topics":
		path = "/v1/" + path
	case path == "replay" || path == "export":
		path = "/" + path
	default:
		return at, false
	}
	at.RawPath, at.RawQuery = path, u.RawQuery
	plain, err := url.PathUnescape(path)
	at.Path = plain
	return at, err == nil
}

package rest

import (
	"net/http"
	"strings"

	"github.com/sluice-bus/sluice/internal/budget"
)

// About is what a control plane says of itself.
type About struct {
	Program   string            `json:"program"`
	Version   string            `json:"version"`
	NodeID    string            `json:"node_id,omitempty"`
	Listeners map[string]string `json:"listeners,omitempty"` // addresses by name
	Routes    []string          `json:"routes,omitempty"`    // method and path
}

// wantsAbout reports whether a request for / wants JSON in place of the console.
func wantsAbout(r *http.Request) bool {
	accept := r.Header.Get("Accept")
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	return r.URL.Path == "/" && reads && strings.Contains(accept, "application/json") && !strings.Contains(accept, "text/html")
}

// about answers with what this control plane is, and to senders that it knows with where and what
// it serves.
func (h *handler) about(w http.ResponseWriter, r *http.Request) {
	about := h.About
	if _, err := h.Access.Identify(r); err != nil {
		about = About{Program: about.Program, Version: about.Version}
	}
	if err := h.answer(w, &request{Request: r, held: new(budget.Held)}, http.StatusOK, about); err != nil {
		h.fail(w, r, err)
	}
}

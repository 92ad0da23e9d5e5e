package httpapi

import (
	"net/http"
	"strings"
)

// About is what a listener tells of its program at GET /.
type About struct {
	Program, Version, NodeID string
	// Listeners are the addresses of all of the program's listeners, by name.
	Listeners func() map[string]string
	// ControlPlane is the URL of the REST API of the program's control plane, where it is known: else "", or the field is nil.
	ControlPlane func() string
	// Known reports whether the sender may be told more than the program and its version; nil: everybody
	// may.
	Known func(*http.Request) bool
}

// AboutPath is where a listener tells of its program. It needs no token.
const AboutPath = "/"

// Add adds the route GET /, which lists them all.
func (a About) Add(routes []Route) []Route {
	var patterns []string
	routes = append(routes, Route{
		Pattern: "GET " + AboutPath + "{$}", Summary: "the program and its listeners", Unchecked: true,
		Serve: func(w http.ResponseWriter, r *Request, _ error) {
			told := struct {
				Program      string            `json:"program"`
				Version      string            `json:"version"`
				NodeID       string            `json:"node_id,omitempty"`
				Listeners    map[string]string `json:"listeners,omitempty"`
				ControlPlane string            `json:"control_plane,omitempty"`
				Routes       []string          `json:"routes,omitempty"`
			}{Program: a.Program, Version: a.Version}
			if a.Known == nil || a.Known(r.Request) {
				told.NodeID, told.Routes = a.NodeID, patterns
				if a.ControlPlane != nil {
					told.ControlPlane = a.ControlPlane()
				}
				if a.Listeners != nil {
					told.Listeners = a.Listeners()
				}
			}
			_ = WriteValue(w, http.StatusOK, told) // texts have a JSON text
		},
	})
	for _, route := range routes {
		patterns = append(patterns, strings.TrimSuffix(route.Pattern, "{$}"))
	}
	return routes
}

package access

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"unicode"

	"github.com/sluice-bus/sluice/internal/httpapi"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// The headers by which the control plane tells a sidecar for whom it asks. They count on the tunnel
// alone: other listeners refuse them.
const (
	userHeader   = "Sluice-User"
	roleHeader   = "Sluice-Role"
	topicsHeader = "Sluice-Topics" // the names and prefixes that limit a reader and an operator
)

// Forward is what a sidecar lets its control plane ask for people.
type Forward struct {
	Read    bool // what a viewer and a reader may do
	Operate bool // what an operator and an admin may do
}

// forwards is what the file of --auth-config allows: without a file everything, and without the keys
// of its section control_plane nothing.
func (a *Access) forwards() Forward {
	if a == nil {
		return Forward{Read: true, Operate: true}
	}
	return a.now.Load().forward
}

// SetPerson says in the headers of a request to a sidecar for whom it is; topics nil: all.
func SetPerson(h http.Header, name string, role Role, topics []string) {
	h.Set(userHeader, strings.Map(func(c rune) rune { // the subject of a JSON Web Token may be any text
		if unicode.IsControl(c) {
			return '\uFFFD'
		}
		return c
	}, name))
	h.Set(roleHeader, string(role))
	h.Del(topicsHeader)
	if topics != nil {
		h.Set(topicsHeader, strings.Join(topics, ","))
	}
}

// ForPeople serves the requests that the control plane sends for people: next gets the person's
// identity by [Access.From]. It must be reached by no other way than from the control plane.
func (a *Access) ForPeople(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := person(r.Header)
		r = r.WithContext(context.WithValue(r.Context(), identityKey{}, id))
		r.Header = r.Header.Clone()
		for _, name := range []string{userHeader, roleHeader, topicsHeader} {
			r.Header.Del(name)
		}
		next.ServeHTTP(w, r)
	})
}

// person is the identity that the headers of a request name. An unknown role has no rights.
func person(h http.Header) Identity {
	id := Identity{Name: h.Get(userHeader), Role: Role(h.Get(roleHeader)), Verified: true, Forwarded: true}
	topics := patterns{"*"}
	if only := h[topicsHeader]; len(only) > 0 {
		topics = strings.Split(only[0], ",")
	}
	id.may = &grant{role: id.Role}
	for do, least := range map[Action]Role{Subscribe: RoleViewer, Replay: RoleReader, Publish: RoleOperator, Admin: RoleAdmin} {
		if id.Role.Includes(least) {
			id.may.topics[do] = topics
		}
	}
	return id
}

// RoutesForPeople are the routes of a table that have a role, each with a check that the person has
// it and that the file lets the control plane ask for it.
func (a *Access) RoutesForPeople(table []httpapi.Route) []httpapi.Route {
	var out []httpapi.Route
	for _, route := range table {
		if route.Role == "" {
			continue
		}
		serve := route.Serve
		route.Serve = func(w http.ResponseWriter, r *httpapi.Request, bad error) {
			if bad == nil {
				bad = a.mayAsk(a.From(r.Context()), Role(route.Role))
			}
			serve(w, r, bad)
		}
		out = append(out, route)
	}
	return out
}

// mayAsk checks that the control plane may ask for a person what needs a role.
func (a *Access) mayAsk(id Identity, least Role) error {
	allowed, key := a.forwards().Read, "read"
	if least.Includes(RoleOperator) {
		allowed, key = a.forwards().Operate, "operate"
	}
	switch {
	case !id.Role.Includes(least):
		return wire.Errorf(wire.Forbidden, "%s has the role %q; this needs the role %s", shown(id.Name), id.Role, least)
	case !allowed:
		return wire.Errorf(wire.Forbidden,
			"this sidecar does not let its control plane do that: its --auth-config has no %s: true in the section control_plane", key)
	}
	return nil
}

// SeesContent reports whether lists show the identity the keys, headers and payloads of events.
func (id *Identity) SeesContent() bool { return !id.Forwarded || id.Role.Includes(RoleReader) }

// roles are those of people, each with the rights of those before it.
var roles = []Role{RoleViewer, RoleReader, RoleOperator, RoleEditor, RoleAdmin}

// Includes reports whether a person's role has the rights of another.
func (r Role) Includes(least Role) bool {
	rank := slices.Index(roles, r)
	return rank >= 0 && rank >= slices.Index(roles, least)
}

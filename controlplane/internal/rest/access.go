package rest

import (
	"net/http"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/sluice-bus/sluice/controlplane/internal/catalog"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// Identity is who sends a request.
type Identity struct {
	Name string
	// Role is viewer, editor or admin; any other may do nothing here.
	Role string
	// Verified says that the name was proven. It is false where nobody has to
	// prove anything.
	Verified bool
	// Edit says whether somebody who may change policies may change the one of a
	// name; nil: all of them.
	Edit func(policy string) error
	// Policies are the names and prefixes that Edit allows; nil: all.
	Policies []string
}

// Access knows who sends a request. It is safe for concurrent use.
type Access interface {
	// Identify returns the sender; the error says that who it is must be
	// proven, and is not.
	Identify(r *http.Request) (Identity, error)
	// Challenge answers a request that Identify has refused.
	Challenge(w http.ResponseWriter, r *http.Request, err error)
}

// The roles, each of which may do what those before it may.
const (
	viewer = "viewer" // reads
	editor = "editor" // puts, rolls back, applies
	admin  = "admin"  // deletes, prunes, begins a series, forgets sidecars
)

var rank = map[string]int{viewer: 1, editor: 2, admin: 3}

// may says whether the sender has at least that role.
func (id Identity) may(role string) error {
	if rank[id.Role] >= rank[role] {
		return nil
	}
	return wire.Errorf(wire.Forbidden, "%s has the role %s; this needs the role %s", id.Name, id.Role, role)
}

// mayEdit says whether the sender may change the policy of a name.
func (id Identity) mayEdit(policy string) error {
	if err := id.may(editor); err != nil || id.Edit == nil {
		return err
	}
	return id.Edit(policy)
}

// author is the sender as the catalog knows those who change policies.
func (id Identity) author() catalog.Author {
	return catalog.Author{Name: id.Name, Admin: id.may(admin) == nil}
}

const maxUserChars = 128

// named is the sender with the name that is kept with what they change.
func named(id Identity, r *http.Request) (Identity, error) {
	if id.Verified {
		return id, nil
	}
	// Whoever nobody asks for a proof may still say a name, so that the audit
	// log has more than "anonymous". It is told apart from a proven one.
	claims := r.Header.Values("Sluice-User")
	if len(claims) == 0 {
		return id, nil
	}
	claim := headerText(strings.TrimSpace(claims[0]))
	unprintable := func(c rune) bool { return !unicode.IsPrint(c) }
	if len(claims) > 1 || claim == "" || utf8.RuneCountInString(claim) > maxUserChars || strings.ContainsFunc(claim, unprintable) {
		return id, wire.Errorf(wire.BadRequest, "header Sluice-User must be one name of 1 to %d printable characters", maxUserChars)
	}
	id.Name = claim + " (not verified)"
	return id, nil
}

// headerText is a header's value as text: UTF-8, or else Latin-1, which is how
// browsers send it.
func headerText(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	out := make([]rune, len(s))
	for i := range len(s) {
		out[i] = rune(s[i])
	}
	return string(out)
}

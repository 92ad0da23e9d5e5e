package rest

import (
	"context"
	"net/http"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/sluice-bus/sluice/controlplane/internal/catalog"
	"github.com/sluice-bus/sluice/internal/access"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// Identity is the sender of a request.
type Identity struct {
	Name string
	// Role is that of a person; another role has no rights here.
	Role string
	// Verified says that the name was authenticated. It is false without authentication.
	Verified bool
	// Edit reports whether an editor may change the policy of a name; nil: all of them.
	Edit func(policy string) error
	// Policies are the names and prefixes that Edit allows; nil: all.
	Policies []string
	// Topics are the names and prefixes to which a reader or an operator is limited; nil: all.
	Topics []string
	// While returns a context for a long request, which ends once the sender loses what it has now; nil:
	// it never does. The caller calls the returned function in the end.
	While func(ctx context.Context) (context.Context, context.CancelFunc)
}

// Access authenticates requests. It is safe for concurrent use.
type Access interface {
	// Identify returns the sender; the error says that the sender could not be authenticated.
	Identify(r *http.Request) (Identity, error)
	// Challenge answers a request that Identify has refused.
	Challenge(w http.ResponseWriter, r *http.Request, err error)
}

// The roles that routes need, each of which includes the rights of those before it.
const (
	viewer   = string(access.RoleViewer)   // reads
	operator = string(access.RoleOperator) // changes groups' limits
	editor   = string(access.RoleEditor)   // puts, rolls back, applies
	admin    = string(access.RoleAdmin)    // deletes, prunes, begins a series, forgets sidecars
)

// may checks that the sender has at least that role.
func (id Identity) may(role string) error {
	if access.Role(id.Role).Includes(access.Role(role)) {
		return nil
	}
	return wire.Errorf(wire.Forbidden, "%s has the role %s; this needs the role %s", id.Name, id.Role, role)
}

// mayEdit checks that the sender may change the policy of a name.
func (id Identity) mayEdit(policy string) error {
	if err := id.may(editor); err != nil || id.Edit == nil {
		return err
	}
	return id.Edit(policy)
}

// author returns the sender as the author of a change.
func (id Identity) author() catalog.Author {
	return catalog.Author{Name: id.Name, Admin: id.may(admin) == nil}
}

const (
	userHeader   = "Sluice-User"
	maxUserChars = 128
)

// named returns the sender with the name that is stored with changes.
func named(id Identity, r *http.Request) (Identity, error) {
	if id.Verified {
		return id, nil
	}
	// Without authentication a sender may still give a name, so that the audit log has more than
	// "anonymous". Such a name is marked as not verified.
	claims := r.Header.Values(userHeader)
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

// headerText decodes a header's value: UTF-8, or else Latin-1, which browsers send.
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

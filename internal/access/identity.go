package access

import (
	"crypto/sha256"
	"crypto/tls"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// Role is what somebody may do at a control plane.
type Role string

// The roles. Each of the first three may do what those before it may.
const (
	RoleViewer  Role = "viewer"  // reads
	RoleEditor  Role = "editor"  // changes policies
	RoleAdmin   Role = "admin"   // deletes them, and joins as sidecars do
	RoleSidecar Role = "sidecar" // gets policies and quotas, and nothing else
)

// Action is something that not everybody may do.
type Action int

// What is done at a sidecar, with a topic where one is named; groups count for
// Subscribe alone.
const (
	Publish   Action = iota
	Subscribe        // read on, with or without a group: also pull, settle and seek
	Replay           // read what is past: replay and export
	Admin            // make and delete topics, delete events, discard dead letters
	Operate          // see the sidecar's state, metrics and profiles
)

// What is done at a control plane; no group goes with these.
const (
	View       Action = iota + 100
	Edit              // put policies, roll them back, apply without pruning; the policy's name stands for the topic; "" for any
	Administer        // delete and prune policies
	Join              // xDS and RLQS, as the sidecar whose node id stands for the topic; "" for any
)

// Identity is somebody who came in. The zero Identity is nobody, and may do
// nothing. It is passed by value and safe for concurrent use.
type Identity struct {
	// Name is as the file has it, or the certificate; "anonymous" where there
	// is no authentication.
	Name string
	// Role is admin where there is no authentication, and "" at a sidecar
	// with it.
	Role Role
	// Verified tells an identity that was proved from one that nobody checked,
	// for want of --auth-config.
	Verified bool

	may   *grant // what the file says; nil for nobody and for those not verified
	rules *rules // that may is part of

	// How the identity was proved, unless it is the program's own choice (named):
	// one of the three.
	named   bool
	entry   *holder // of a token
	digest  digest  // of that, or of jwt
	cert    *tls.ConnectionState
	jwt     string
	expires time.Time // with jwt
}

// expired says whether it was proved for a time that is over.
func (id *Identity) expired() bool { return !id.expires.IsZero() && time.Now().After(id.expires) }

// digest is the SHA-256 of a token.
type digest = [sha256.Size]byte

// everybody is who comes in without authentication.
var everybody = Identity{Name: "anonymous", Role: RoleAdmin}

// Policies are the policies that an editor may change, by name or prefix and *;
// nil: all.
func (id Identity) Policies() []string {
	if id.may == nil {
		return nil
	}
	return slices.Clone(id.may.policies)
}

// May returns nil where the identity may do that, on that topic as that group:
// "" where none is named. The error is a *wire.Error with forbidden, and names
// what is not allowed and what is; for nobody it is unauthorized.
func (id Identity) May(do Action, topic, group string) error {
	switch {
	case id.Role == RoleAdmin && !id.Verified:
		return nil // there is no authentication
	case id.Role == "" && id.may == nil:
		return errNobody()
	case do >= View:
		return id.mayAtControlPlane(do, topic)
	case id.may == nil || !id.may.allows(do, topic, group):
		return id.refusal(do, topic, group)
	}
	return nil
}

// enough are the roles that may do what is done at a control plane, and what
// the others read of it.
var enough = map[Action]struct {
	roles []Role
	what  string
}{
	View:       {[]Role{RoleViewer, RoleEditor, RoleAdmin}, "read here"},
	Edit:       {[]Role{RoleEditor, RoleAdmin}, "change policies"},
	Administer: {[]Role{RoleAdmin}, "delete policies"},
	Join:       {[]Role{RoleSidecar, RoleAdmin}, "join as a sidecar"},
}

func (id Identity) mayAtControlPlane(do Action, on string) error {
	need := enough[do]
	if slices.Contains(need.roles, id.Role) {
		switch {
		case on == "" || id.may == nil:
		case do == Join && id.may.nodes != nil && !id.may.nodes.match(on):
			return wire.Errorf(wire.Forbidden, "%s may not join as node %s; allowed are %s", shown(id.Name), shown(on), id.may.nodes)
		case do == Edit && id.may.policies != nil && !id.may.policies.match(on):
			return wire.Errorf(wire.Forbidden, "%s may not change policy %s; allowed are %s", shown(id.Name), shown(on), id.may.policies)
		}
		return nil
	}
	return wire.Errorf(wire.Forbidden, "%s may not %s: its role is %q, and one of %v is needed", shown(id.Name), need.what, id.Role, need.roles)
}

// grant is what one entry of the file allows.
type grant struct {
	role                       Role     // at a control plane
	nodes                      patterns // at a control plane, as which sidecars; nil: all
	policies                   patterns // at a control plane, which an editor may change; nil: all
	publish, subscribe, replay patterns
	admin                      patterns
	groups                     patterns // nil: all
	operate                    bool
}

func (g *grant) allows(do Action, topic, group string) bool {
	switch do {
	case Publish:
		return g.publish.match(topic)
	case Subscribe:
		return g.subscribe.match(topic) && (group == "" || g.groups == nil || g.groups.match(group))
	case Replay:
		return g.replay.match(topic)
	case Admin:
		return g.admin.match(topic)
	case Operate:
		return g.operate
	}
	return false
}

// refusal says what is not allowed at a sidecar, and what is.
func (id Identity) refusal(do Action, topic, group string) *wire.Error {
	g := id.may
	if g == nil {
		g = new(grant)
	}
	name := shown(id.Name)
	switch {
	case do == Publish:
		return wire.Errorf(wire.Forbidden, "%s may not publish to topic %s; allowed are %s", name, shown(topic), g.publish)
	case do == Subscribe && g.subscribe.match(topic):
		return wire.Errorf(wire.Forbidden, "%s may not use group %s of topic %s; allowed are the groups %s", name, shown(group), shown(topic), g.groups)
	case do == Subscribe:
		return wire.Errorf(wire.Forbidden, "%s may not subscribe to topic %s; allowed are %s", name, shown(topic), g.subscribe)
	case do == Replay:
		return wire.Errorf(wire.Forbidden, "%s may not replay or export topic %s; allowed are %s", name, shown(topic), g.replay)
	case do == Admin:
		return wire.Errorf(wire.Forbidden, "%s has no right admin on topic %s; allowed are %s", name, shown(topic), g.admin)
	}
	return wire.Errorf(wire.Forbidden, "%s may not see the sidecar's state and metrics: its entry has no ops: true", name)
}

func errNobody() *wire.Error {
	return wire.Errorf(wire.Unauthorized, "nobody has been authenticated here yet: a token is needed")
}

// patterns are names, and prefixes followed by *.
type patterns []string

func (p patterns) match(name string) bool { return Covers(p, name) }

// Covers says whether a name is one of the patterns, which are names, and prefixes
// followed by *.
func Covers(patterns []string, name string) bool {
	for _, pattern := range patterns {
		prefix, isPrefix := strings.CutSuffix(pattern, "*")
		if pattern == name || isPrefix && strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// String lists some of the patterns, as an error shows them.
func (p patterns) String() string {
	const most = 10
	switch {
	case len(p) == 0:
		return "none"
	case len(p) > most:
		return strings.Join(p[:most], ", ") + ", …"
	}
	return strings.Join(p, ", ")
}

// shown quotes a name in an error, and keeps it from filling it.
func shown(s string) string {
	const most = 64
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return strconv.Quote(s)
}

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

// Role is the set of rights at a control plane.
type Role string

// The roles. Each of people's includes the rights of those before it.
const (
	RoleViewer   Role = "viewer"   // reads all but the content of events
	RoleReader   Role = "reader"   // reads that, too
	RoleOperator Role = "operator" // redrives, seeks, cancels, publishes a test event, pauses and slows groups
	RoleEditor   Role = "editor"   // changes policies
	RoleAdmin    Role = "admin"    // deletes and discards, and joins as sidecars do
	RoleSidecar  Role = "sidecar"  // gets policies and quotas, and nothing else
)

// Action is an action that needs a right.
type Action int

// The actions at a sidecar, with a topic if one is named; only Subscribe has a group.
const (
	Publish   Action = iota
	Subscribe        // read on, with or without a group: also pull, settle and seek
	Replay           // read stored events: replay and export
	Admin            // make and delete topics, delete events, discard dead letters
	Operate          // see the sidecar's state, metrics and profiles
)

// The actions at a control plane.
const (
	View       Action = iota + 100
	Edit              // put policies, roll them back, apply without pruning; the policy's name stands for the topic; "" for any
	Administer        // delete and prune policies
	Join              // xDS and RLQS, as the sidecar whose node id stands for the topic, on the store that stands for the group; "" for any
)

// Identity is an authenticated client. The zero Identity has no rights. It is passed by value and
// safe for concurrent use.
type Identity struct {
	// Name is the name in the file or in the certificate; "anonymous" without authentication.
	Name string
	// Role is admin without authentication, and "" at a sidecar with it.
	Role Role
	// Verified says that the client was authenticated. It is false without --auth-config.
	Verified bool
	// Forwarded says that it is a person for whom the control plane asks a sidecar.
	Forwarded bool

	may   *grant // the entry's rights; nil for the zero Identity and without authentication
	rules *rules // that may is part of

	// How the client authenticated, unless the program chose the identity itself (named): one of
	// the three.
	named   bool
	entry   *holder // of a token
	digest  digest  // of that, or of jwt
	cert    *tls.ConnectionState
	jwt     string
	expires time.Time // with jwt
}

// expired reports whether the authentication has expired.
func (id *Identity) expired() bool { return !id.expires.IsZero() && time.Now().After(id.expires) }

// digest returns the SHA-256 of a token.
type digest = [sha256.Size]byte

// everybody is the identity of every client without authentication.
var everybody = Identity{Name: "anonymous", Role: RoleAdmin}

// Policies are the policies that an editor may change, by name or prefix and *; nil: all.
func (id Identity) Policies() []string {
	if id.may == nil {
		return nil
	}
	return slices.Clone(id.may.policies)
}

// Topics are those to which a reader or an operator is limited, by name or prefix and *; nil: all.
func (id Identity) Topics() []string {
	if id.may == nil {
		return nil
	}
	return slices.Clone(id.may.only)
}

// May returns nil if the identity has the right, on that topic as that group; "" is none. The error
// is a *wire.Error with forbidden that names what is missing and what is allowed; for the zero
// Identity it is unauthorized.
func (id Identity) May(do Action, topic, group string) error {
	switch {
	case id.Role == RoleAdmin && !id.Verified:
		return nil // there is no authentication
	case id.Role == "" && id.may == nil:
		return errNobody()
	case do >= View:
		return id.mayAtControlPlane(do, topic, group)
	case id.may == nil || !id.may.allows(do, topic, group):
		return id.refusal(do, topic, group)
	}
	return nil
}

// enough has the roles that each action at a control plane needs, and the action's description in
// errors.
var enough = map[Action]struct {
	roles []Role
	what  string
}{
	View:       {roles, "read here"},
	Edit:       {[]Role{RoleEditor, RoleAdmin}, "change policies"},
	Administer: {[]Role{RoleAdmin}, "delete policies"},
	Join:       {[]Role{RoleSidecar, RoleAdmin}, "join as a sidecar"},
}

func (id Identity) mayAtControlPlane(do Action, on, store string) error {
	need := enough[do]
	switch {
	case !slices.Contains(need.roles, id.Role):
		return wire.Errorf(wire.Forbidden, "%s may not %s: its role is %q, and one of %v is needed", shown(id.Name), need.what, id.Role,
			need.roles)
	case on == "" || id.may == nil:
	case do == Join && id.may.nodes != nil && !id.may.nodes.match(on):
		return wire.Errorf(wire.Forbidden, "%s may not join as node %s; allowed are %s", shown(id.Name), shown(on), id.may.nodes)
	case do == Join && store != "" && id.may.stores != nil && !id.may.stores.match(store):
		return wire.Errorf(wire.Forbidden, "%s may not join on store %s; allowed are %s (stores of its entry in --auth-config)",
			shown(id.Name), shown(store), id.may.stores)
	case do == Edit && id.may.policies != nil && !id.may.policies.match(on):
		return wire.Errorf(wire.Forbidden, "%s may not change policy %s; allowed are %s", shown(id.Name), shown(on), id.may.policies)
	}
	return nil
}

// grant has the rights of one entry of the file.
type grant struct {
	role      Role      // at a control plane
	nodes     patterns  // at a control plane, as which sidecars; nil: all
	mostNodes int       // of each prefix in nodes
	stores    patterns  // at a control plane, which ids of stores its sidecars may report; nil: all
	policies  patterns  // at a control plane, which an editor may change; nil: all
	only      patterns  // at a control plane, the topics of a reader or an operator; nil: all
	topics    topicsFor // at a sidecar
	groups    patterns  // nil: all
	operate   bool
}

// topicsFor are topics by the action on them, which comes before Operate.
type topicsFor [Operate]patterns

func (g *grant) allows(do Action, topic, group string) bool {
	if do == Operate {
		return g.operate
	}
	return g.covers(do, topic) && (do != Subscribe || group == "" || g.groups == nil || g.groups.match(group))
}

// covers reports whether a right is given on a topic. The rights to dead letters are those to their topic, which a prefix
// of the name with the suffix need not cover.
func (g *grant) covers(do Action, topic string) bool {
	for strings.HasSuffix(topic, wire.DeadLetterSuffix) {
		topic = strings.TrimSuffix(topic, wire.DeadLetterSuffix)
	}
	return g.topics[do].match(topic)
}

// lacks describes in errors what an identity may not do with a topic.
var lacks = [Operate]string{
	Publish: "may not publish to", Subscribe: "may not subscribe to", Replay: "may not replay or export", Admin: "has no right admin on",
}

// refusal is the error of a missing right at a sidecar. It names the allowed topics.
func (id Identity) refusal(do Action, topic, group string) *wire.Error {
	g := id.may
	if g == nil {
		g = new(grant)
	}
	name := shown(id.Name)
	switch {
	case do == Operate:
		return wire.Errorf(wire.Forbidden, "%s may not see the sidecar's state and metrics: its entry has no ops: true", name)
	case do == Subscribe && g.covers(do, topic):
		return wire.Errorf(wire.Forbidden, "%s may not use group %s of topic %s; allowed are the groups %s", name, shown(group), shown(topic),
			g.groups)
	}
	return wire.Errorf(wire.Forbidden, "%s %s topic %s; allowed are %s", name, lacks[do], shown(topic), g.topics[do])
}

func errNobody() *wire.Error {
	return wire.Errorf(wire.Unauthorized, "nobody has been authenticated here yet: a token is needed")
}

// patterns are names, and prefixes followed by *.
type patterns []string

func (p patterns) match(name string) bool { return Covers(p, name) }

// Covers reports whether a name matches one of the patterns.
func Covers(patterns []string, name string) bool {
	for _, pattern := range patterns {
		prefix, isPrefix := strings.CutSuffix(pattern, "*")
		if pattern == name || isPrefix && strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// String lists some of the patterns, for errors.
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

// shown quotes a name in an error, shortened.
func shown(s string) string {
	const most = 64
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return strconv.Quote(s)
}

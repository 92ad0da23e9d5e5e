// Package catalog is the policies of a fleet: what they are now, what they
// were, and the ways to change them, each of which validates the whole set and
// commits all of a change or nothing. It must not know REST, xDS or what the
// store is.
package catalog

import (
	"time"

	"github.com/sluice-bus/sluice/internal/policy"
)

// Entry is one policy in one version.
type Entry struct {
	Policy    policy.Policy
	Version   int64
	UpdatedAt time.Time
	UpdatedBy string
}

// Resolved is one policy in force with all that holds for its name, fields that
// fall through filled in.
type Resolved struct {
	Name      string
	Version   int64
	Effective *policy.Effective
}

// State is the policies as of one revision. It is immutable and shared.
type State struct {
	Revision int64
	// Entries are ascending by name.
	Entries []Entry
	// Resolved has one element for each of Entries, in their order.
	Resolved []Resolved
	// Snapshot says what holds for any topic.
	Snapshot *policy.Snapshot
}

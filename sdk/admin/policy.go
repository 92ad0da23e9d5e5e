package admin

import (
	"encoding/json"
	"time"
)

// Policy is a policy of a control plane.
type Policy struct {
	Name      string
	Version   int64 // counts the changes of this name from 1 on
	UpdatedAt time.Time
	UpdatedBy string
	// Document is the whole object as the control plane sent it: the fields that the policy sets,
	// in sections, and its name and version. PutPolicy and ApplyPolicies take it back, changed or
	// not.
	Document json.RawMessage
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (p *Policy) UnmarshalJSON(data []byte) error {
	var head struct {
		Name      string    `json:"name"`
		Version   int64     `json:"version"`
		UpdatedAt time.Time `json:"updated_at"`
		UpdatedBy string    `json:"updated_by"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return err
	}
	*p = Policy{head.Name, head.Version, head.UpdatedAt, head.UpdatedBy, json.RawMessage(append([]byte(nil), data...))}
	return nil
}

// MarshalJSON returns Document.
func (p Policy) MarshalJSON() ([]byte, error) {
	if p.Document == nil {
		return []byte("null"), nil
	}
	return p.Document, nil
}

// PolicyList is all policies as of one revision, which counts the changes of the whole.
type PolicyList struct {
	Policies []Policy `json:"policies"`
	Revision int64    `json:"revision"`
}

// PolicyVersion is one version of a policy, or its deletion.
type PolicyVersion struct {
	Version int64     `json:"version"`
	At      time.Time `json:"at"`
	By      string    `json:"by"`
	Reason  string    `json:"reason,omitempty"` // as its author gave it
	// Action is created, updated, deleted, rolled_back or seeded.
	Action string `json:"action"`
	// To is the version whose content a rollback brought back.
	To     int64   `json:"to,omitempty"`
	Policy *Policy `json:"policy"` // nil: it was deleted
}

// ApplyRequest has the wanted policies.
type ApplyRequest struct {
	// Policies are JSON objects with a name each, as Policy.Document is.
	Policies []json.RawMessage `json:"policies"`
	// Prune deletes all other policies; else they stay as they are.
	Prune bool `json:"prune"`
	// DryRun changes nothing and returns the changes that there would be.
	DryRun bool `json:"dry_run"`
}

// Series is a position in the changes of the policies. Revision counts the changes; any revision of
// a higher series is later than all revisions of a lower one.
type Series struct {
	Series   int64 `json:"series"`
	Revision int64 `json:"revision"`
}

// ApplyResult has the changes that were made, or would be.
type ApplyResult struct {
	DryRun   bool           `json:"dry_run"`
	Revision int64          `json:"revision"`
	Changes  []PolicyChange `json:"changes"`
	// Events are the events that would be removed, by topic, as a sidecar counts them. A control
	// plane does not know them.
	Events map[string]RetentionPlan `json:"events,omitempty"`
}

// The actions of an ApplyResult.
const (
	ActionCreate    = "create"
	ActionUpdate    = "update"
	ActionDelete    = "delete"
	ActionUnchanged = "unchanged"
)

// PolicyChange is the change of one policy.
type PolicyChange struct {
	Name   string  `json:"name"`
	Action string  `json:"action"`
	From   *Policy `json:"from"` // nil: there was none
	To     *Policy `json:"to"`   // nil: there is none any more
}

// AuditPage has changes of policies, newest first.
type AuditPage struct {
	Entries []AuditEntry `json:"entries"`
	// Next is the parameter before of the following page; 0: there is none.
	Next int64 `json:"next,omitempty"`
}

// AuditEntry is one change of one policy.
type AuditEntry struct {
	Revision int64     `json:"revision"`
	At       time.Time `json:"at"`
	By       string    `json:"by"`
	Reason   string    `json:"reason,omitempty"` // as its author gave it
	Action   string    `json:"action"`           // as in PolicyVersion
	Name     string    `json:"name"`
	Version  int64     `json:"version"`
	From     *Policy   `json:"from"`
	To       *Policy   `json:"to"`
}

// Identity is a caller's identity, as the control plane sees it.
type Identity struct {
	Name string `json:"name"`
	Role string `json:"role"` // viewer, editor or admin
	Auth bool   `json:"auth"` // whether it asks for tokens at all
	// Policies are the names and prefixes of the policies that an editor may change; nil: all.
	Policies []string `json:"policies,omitempty"`
}

// Package store keeps what was ever changed about policies: one chain of
// commits, from which everything else (the policies in force, their history,
// the audit log) is derived. It must not know what a policy says.
package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// ErrConflict says that somebody else has made a commit of that revision.
var ErrConflict = errors.New("another change came first")

// ErrNone says that there is no commit of a revision.
var ErrNone = errors.New("no such commit")

// ErrUnavailable says that the store cannot be reached, or cannot write.
var ErrUnavailable = errors.New("policy store unavailable")

// ErrTooLarge says that a commit is larger than every store takes.
var ErrTooLarge = fmt.Errorf("a change is larger than %d MiB; make it in parts", MaxCommitBytes>>20)

// MaxCommitBytes bounds a commit as it is stored. MongoDB holds 16 MiB in a
// document; the rest is for what goes around one. Ten thousand policies fit
// that set every field.
const MaxCommitBytes = 15 << 20

// PageBytes is about how much After returns at once.
const PageBytes = 1 << 20

// Commit is one change of the policies, made by somebody at some time. All of
// it is in the store, or none.
type Commit struct {
	Revision int64     `json:"revision"` // 1, 2, and so on without gaps
	At       time.Time `json:"at"`       // UTC, whole milliseconds
	By       string    `json:"by"`
	// Token is unique to the commit: who has lost the answer to an Append knows
	// by it whether the commit of that revision is his own.
	Token   string   `json:"token"`
	Changes []Change `json:"changes"` // one or more, each name once; none where it begins a series
	// Series begins a new series, which sidecars take whatever they have; it is
	// higher than any before. 0: it goes on as it was.
	Series int64 `json:"series,omitempty"`
}

// Change is what a commit does to one policy.
type Change struct {
	Name string `json:"name"`
	// Version counts the changes of this name from 1 on, also over deletions.
	Version int64  `json:"version"`
	Action  Action `json:"action"`
	// Policy is the policy as JSON, with its name; nil after a deletion.
	Policy json.RawMessage `json:"policy,omitempty"`
	// Schema is the version of the schema that the policy sets, counted by name from
	// 1 on, also over deletions; 0: it sets none, or an older program made the change.
	Schema int64 `json:"schema,omitempty"`
	// To is the version whose content a rollback brought back.
	To int64 `json:"to,omitempty"`
	// Forgotten says that the policy is not kept any more: a later change of the
	// same name has taken its place.
	Forgotten bool `json:"forgotten,omitempty"`
}

// Action says what was done to a policy.
type Action string

// The actions.
const (
	Created    Action = "created"
	Updated    Action = "updated"
	Deleted    Action = "deleted"
	RolledBack Action = "rolled_back"
	Seeded     Action = "seeded"     // by --policies on the first start
	NewSeries  Action = "new_series" // of no policy: a new series begins
)

// Forget leaves out the policies of changes of these names.
func (c *Commit) Forget(names []string) {
	c.Changes = slices.Clone(c.Changes)
	for i := range c.Changes {
		if ch := &c.Changes[i]; ch.Policy != nil && slices.Contains(names, ch.Name) {
			ch.Policy, ch.Forgotten = nil, true
		}
	}
}

// Store is a chain of commits. A revision is given once, whoever asks for it
// and from wherever: that is the only compare-and-set that it needs. It is safe
// for concurrent use.
type Store interface {
	// After returns commits after a revision, in order and without gaps: all of
	// them, or the first ones of about PageBytes. None: there is none so far.
	After(ctx context.Context, revision int64) ([]Commit, error)
	// At returns the commit of a revision; ErrNone: there is none so far.
	At(ctx context.Context, revision int64) (Commit, error)
	// Append adds a commit whose revision is one above the last one. Once it
	// has returned nil the commit survives a kill and a power cut; it may be
	// repeated, since nil is also the answer where the commit is there already,
	// token and all. ErrConflict: the revision is taken by another.
	// ErrUnavailable: it may be stored, now or in a moment, or not.
	Append(ctx context.Context, c Commit) error
	// Forget leaves out the policies of changes, by revision the names, and marks
	// them as Forgotten; who made them, when and what stays. It may be repeated.
	Forget(ctx context.Context, changes map[int64][]string) error
	// Await returns nil once there may be commits after a revision, within a
	// second of their being stored by any process; early returns are harmless.
	// Otherwise it returns the context's error, or ErrUnavailable after Close; a
	// store that cannot be reached is waited for.
	Await(ctx context.Context, revision int64) error
	// Close ends what waits, and releases the store.
	Close() error
}

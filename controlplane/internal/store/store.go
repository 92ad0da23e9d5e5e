// Package store keeps all changes of policies: one chain of commits, from which all else (the
// policies in force, their history, the audit log) is derived.
package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-bus/sluice/internal/setting"
)

// Format is the format of a store: of all in its file, and of each commit in MongoDB.
const Format = 1

// CheckFormat refuses a store of another format.
func CheckFormat(n int) error {
	if n == Format {
		return nil
	}
	return &setting.Error{Err: fmt.Errorf("its format is %d, and this program reads and writes format %d: run the version of Sluice "+
		"that wrote it, or choose another store", n, Format)}
}

// ErrConflict says that another commit of that revision exists.
var ErrConflict = errors.New("another change came first")

// ErrNone says that there is no commit of a revision.
var ErrNone = errors.New("no such commit")

// ErrUnavailable says that the store cannot be reached, or cannot write.
var ErrUnavailable = errors.New("policy store unavailable")

// ErrTooLarge says that a commit is larger than MaxCommitBytes.
var ErrTooLarge = fmt.Errorf("a change is larger than %d MiB; make it in parts", MaxCommitBytes>>20)

// MaxCommitBytes bounds a stored commit. A MongoDB document holds 16 MiB; the rest is for its other
// fields. Ten thousand policies that set every field fit.
const MaxCommitBytes = 15 << 20

// PageBytes is about how many bytes After returns at once.
const PageBytes = 1 << 20

// Commit is one change of the policies, with author and time. The store has all of it or none.
type Commit struct {
	Revision int64     `json:"revision"` // 1, 2, and so on without gaps
	At       time.Time `json:"at"`       // UTC, whole milliseconds
	By       string    `json:"by"`
	Reason   string    `json:"reason,omitempty"` // as its author gave it
	// Token is unique to the commit: a caller that lost the answer to an Append recognises its own
	// commit by it.
	Token   string   `json:"token"`
	Changes []Change `json:"changes"` // one or more, each name once; none where it begins a series
	// Series begins a new series, which sidecars accept regardless of their revision; it is higher
	// than any before. 0: the series stays.
	Series int64 `json:"series,omitempty"`
}

// Change is the effect of a commit on one policy.
type Change struct {
	Name string `json:"name"`
	// Version counts the changes of this name from 1, deletions included.
	Version int64  `json:"version"`
	Action  Action `json:"action"`
	// Policy is the policy as JSON, with its name; nil after a deletion.
	Policy json.RawMessage `json:"policy,omitempty"`
	// Schema is the version of the schema that the policy sets, counted by name from 1, deletions
	// included; 0: it sets none.
	Schema int64 `json:"schema,omitempty"`
	// To is the version whose content a rollback restored.
	To int64 `json:"to,omitempty"`
	// Forgotten says that the policy's content was removed: a later change of the same name has
	// replaced it.
	Forgotten bool `json:"forgotten,omitempty"`
}

// Action is the kind of a change.
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

// Forget removes the policies of changes of these names.
func (c *Commit) Forget(names []string) {
	c.Changes = slices.Clone(c.Changes)
	for i := range c.Changes {
		if ch := &c.Changes[i]; ch.Policy != nil && slices.Contains(names, ch.Name) {
			ch.Policy, ch.Forgotten = nil, true
		}
	}
}

// Store is a chain of commits. Each revision is given once, to one of all callers everywhere: that
// is the only compare-and-set that a store needs. It is safe for concurrent use.
type Store interface {
	// After returns commits after a revision, in order and without gaps: all of them, or the first
	// ones of about PageBytes. None: there is none yet.
	After(ctx context.Context, revision int64) ([]Commit, error)
	// At returns the commit of a revision; ErrNone: there is none yet.
	At(ctx context.Context, revision int64) (Commit, error)
	// Append adds a commit whose revision is one above the last one. Once it has returned nil the
	// commit survives a kill and a power failure. It may be repeated: it also returns nil if the
	// commit is there already, with its token. ErrConflict: another commit has the revision.
	// ErrUnavailable: the commit may be stored, now or soon, or not.
	Append(ctx context.Context, c Commit) error
	// Forget removes the policies of changes, by revision the names, and marks them as Forgotten;
	// authors and times stay. It may be repeated.
	Forget(ctx context.Context, changes map[int64][]string) error
	// Await returns nil once there may be commits after a revision, within a second after any
	// process stored them; early returns are harmless. Otherwise it returns the context's error, or
	// ErrUnavailable after Close; it waits for a store that cannot be reached.
	Await(ctx context.Context, revision int64) error
	// Close ends the waiting calls, and releases the store.
	Close() error
}

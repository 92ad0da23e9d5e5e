package catalog

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-bus/sluice/controlplane/internal/store"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// Bounds of what is answered at once.
const (
	// MaxVersions is how many versions of a policy are shown and can be brought
	// back: the latest. The audit log has all.
	MaxVersions = 1000
	// maxAnswerBytes is of policies; an answer that has as many ends there.
	maxAnswerBytes = 8 << 20
)

// history says where in the store what is: 16 bytes for a change.
type history struct {
	token  string // of the last commit
	places map[string][]place
}

// place is the revision of a change of a policy, and the version that it made.
type place struct{ revision, version int64 }

func (h *history) add(commits []store.Commit) {
	for i := range commits {
		for j := range commits[i].Changes {
			ch := &commits[i].Changes[j]
			h.places[ch.Name] = append(h.places[ch.Name], place{commits[i].Revision, ch.Version})
		}
		h.token = commits[i].Token
	}
}

// lastVersion is the highest version of a name; 0: it never was.
func (h *history) lastVersion(name string) int64 {
	places := h.places[name]
	if len(places) == 0 {
		return 0
	}
	return places[len(places)-1].version
}

// placesOf are those of all changes of a policy.
func (c *Catalog) placesOf(name string) []place {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.history.places[name] // which only grows, and what it holds never changes
}

// at reads the commit of a revision, and finds the change of a policy in it.
func (c *Catalog) at(ctx context.Context, revision int64, name string) (*store.Commit, *store.Change, error) {
	commit, err := c.cfg.Store.At(ctx, revision)
	if err != nil {
		return nil, nil, c.explain(err, false)
	}
	i := slices.IndexFunc(commit.Changes, func(ch store.Change) bool { return ch.Name == name })
	if i < 0 {
		return nil, nil, fmt.Errorf("revision %d of the policies has no change of %q any more", revision, name)
	}
	return &commit, &commit.Changes[i], nil
}

// Version is one version of a policy.
type Version struct {
	Version int64
	At      time.Time
	By      string
	Action  store.Action
	To      int64  // the version that a rollback brought back
	Entry   *Entry // nil: this version is a deletion
}

// Record is what one commit did to one policy, or to none where a series begins.
type Record struct {
	Revision int64
	At       time.Time
	By       string
	Action   store.Action
	Name     string
	Version  int64
	From, To *Entry // nil: there was no policy before, is none after
}

// History returns the versions of a policy, newest first, also of one that is
// deleted: the latest MaxVersions, or fewer where they are large. The error is
// not_found for one that never was.
func (c *Catalog) History(ctx context.Context, name string) ([]Version, error) {
	places := c.placesOf(name)
	if len(places) == 0 {
		return nil, wire.Errorf(wire.NotFound, "there never was a policy %q", name)
	}
	var versions []Version
	size := 0
	for _, p := range slices.Backward(places) {
		if len(versions) == MaxVersions || size >= maxAnswerBytes {
			break
		}
		commit, ch, err := c.at(ctx, p.revision, name)
		if err != nil {
			return nil, err
		}
		e, err := entryOf(commit, ch)
		if err != nil {
			return nil, err
		}
		size += len(ch.Policy)
		versions = append(versions, Version{Version: ch.Version, At: commit.At, By: commit.By, Action: ch.Action, To: ch.To, Entry: e})
	}
	return versions, nil
}

// Audit returns what was done in revisions below before, newest first. It ends
// after the commit with which there are limit records, or many bytes of
// policies, so that no commit is split; next is what before has to be to go on
// from there, 0 at the end.
func (c *Catalog) Audit(ctx context.Context, before int64, limit int) (records []Record, next int64, _ error) {
	size := 0
	for r := min(before-1, c.State().Revision); r >= 1 && len(records) < limit && size < maxAnswerBytes; r-- {
		commit, err := c.cfg.Store.At(ctx, r)
		if err != nil {
			return nil, 0, c.explain(err, false)
		}
		if commit.Series > 0 {
			records = append(records, Record{Revision: r, At: commit.At, By: commit.By, Action: store.NewSeries})
		}
		for i := range commit.Changes {
			one, bytes, err := c.record(ctx, &commit, &commit.Changes[i])
			if err != nil {
				return nil, 0, err
			}
			records = append(records, one)
			size += bytes
		}
		next = r
	}
	if next == 1 {
		next = 0
	}
	return records, next, nil
}

// record says what a change did, and how many bytes of policies that takes.
func (c *Catalog) record(ctx context.Context, commit *store.Commit, ch *store.Change) (r Record, bytes int, err error) {
	r = Record{Revision: commit.Revision, At: commit.At, By: commit.By, Action: ch.Action, Name: ch.Name, Version: ch.Version}
	if r.To, err = entryOf(commit, ch); err != nil {
		return r, 0, err
	}
	bytes = len(ch.Policy)
	places := c.placesOf(ch.Name)
	at, _ := slices.BinarySearchFunc(places, commit.Revision, func(p place, revision int64) int { return cmp.Compare(p.revision, revision) })
	if at == 0 {
		return r, bytes, nil
	}
	older, was, err := c.at(ctx, places[at-1].revision, ch.Name)
	if err != nil {
		return r, 0, err
	}
	r.From, err = entryOf(older, was)
	return r, bytes + len(was.Policy), err
}

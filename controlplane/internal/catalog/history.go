package catalog

import (
	"context"
	"slices"
	"time"

	"github.com/sluice-bus/sluice/controlplane/internal/store"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// history is every commit, as it is stored: about half a kilobyte for a change.
type history struct {
	commits []store.Commit // by revision, from 1 on
	places  map[string][]place
}

// place is where a change stands.
type place struct{ commit, change int }

func (h *history) add(commits []store.Commit) {
	for _, c := range commits {
		for i := range c.Changes {
			name := c.Changes[i].Name
			h.places[name] = append(h.places[name], place{len(h.commits), i})
		}
		h.commits = append(h.commits, c)
	}
}

// lastVersion is the highest version of a name; 0: it never was.
func (h *history) lastVersion(name string) int64 {
	places := h.places[name]
	if len(places) == 0 {
		return 0
	}
	p := places[len(places)-1]
	return h.commits[p.commit].Changes[p.change].Version
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
// deleted. The error is not_found for one that never was.
func (c *Catalog) History(_ context.Context, name string) ([]Version, error) {
	c.mu.RLock()
	commits, places := c.history.commits, c.history.places[name]
	c.mu.RUnlock() // both only grow, and what they hold never changes
	if len(places) == 0 {
		return nil, wire.Errorf(wire.NotFound, "there never was a policy %q", name)
	}
	versions := make([]Version, 0, len(places))
	for _, p := range slices.Backward(places) {
		commit := &commits[p.commit]
		ch := &commit.Changes[p.change]
		e, err := entryOf(commit, ch)
		if err != nil {
			return nil, err
		}
		versions = append(versions, Version{Version: ch.Version, At: commit.At, By: commit.By, Action: ch.Action, To: ch.To, Entry: e})
	}
	return versions, nil
}

// Audit returns what was done in revisions below before, newest first. It ends
// after the commit with which there are limit records, so that no commit is
// split; next is what before has to be to go on from there, 0 at the end.
func (c *Catalog) Audit(_ context.Context, before int64, limit int) (records []Record, next int64, _ error) {
	changed, next := c.changed(before, limit)
	records = make([]Record, len(changed))
	for i, ch := range changed {
		r := &records[i]
		if ch.at < 0 {
			*r = Record{Revision: ch.to.Revision, At: ch.to.At, By: ch.to.By, Action: store.NewSeries}
			continue
		}
		change := &ch.to.Changes[ch.at]
		*r = Record{Revision: ch.to.Revision, At: ch.to.At, By: ch.to.By, Action: change.Action, Name: change.Name, Version: change.Version}
		var err error
		if r.To, err = entryOf(ch.to, change); err != nil {
			return nil, 0, err
		}
		if ch.from == nil {
			continue
		}
		if r.From, err = entryOf(ch.from, &ch.from.Changes[ch.fromAt]); err != nil {
			return nil, 0, err
		}
	}
	return records, next, nil
}

// changed is one change of a policy and the one before it, if there is one; at
// is -1 where a series begins.
type changed struct {
	to, from   *store.Commit
	at, fromAt int
}

// changed finds what Audit is asked for.
func (c *Catalog) changed(before int64, limit int) (list []changed, next int64) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	h := &c.history
	for i := min(before-1, int64(len(h.commits))); i >= 1 && len(list) < limit; i-- {
		commit := &h.commits[i-1]
		if commit.Series > 0 {
			list = append(list, changed{to: commit, at: -1})
		}
		for j := range commit.Changes {
			list = append(list, changed{to: commit, at: j})
			places := h.places[commit.Changes[j].Name]
			if p, _ := slices.BinarySearchFunc(places, int(i-1), func(p place, commit int) int { return p.commit - commit }); p > 0 {
				older := &list[len(list)-1]
				older.from, older.fromAt = &h.commits[places[p-1].commit], places[p-1].change
			}
		}
		next = commit.Revision
	}
	if next == 1 {
		next = 0
	}
	return list, next
}

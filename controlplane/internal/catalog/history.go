package catalog

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/sluice-bus/sluice/controlplane/internal/store"
)

// Bounds of an answer and of the history.
const (
	// MaxVersions is how many of the latest versions of a policy are shown and can be rolled back
	// to. The audit log has all.
	MaxVersions = 1000
	// maxAnswerBytes bounds the policies in an answer.
	maxAnswerBytes = 8 << 20
	// MaxHistoryBytes bounds the contents kept of policies that are not in force any more, beside
	// MaxVersions of each. The oldest are removed first; their author and time stay.
	MaxHistoryBytes = 256 << 20
)

// history is an index of the changes in the store: 24 bytes for each.
type history struct {
	token  string // of the last commit
	places map[string][]place
	// schemas has the policies that have ever had a schema.
	schemas map[string]schemas
	bytes   int64 // of policies that are kept and not in force
	most    int64 // of bytes
}

func newHistory() history {
	return history{places: map[string][]place{}, schemas: map[string]schemas{}, most: MaxHistoryBytes}
}

// place is the revision of a change of a policy, its version, and the size of its content in the
// store.
type place struct{ revision, version, bytes int64 }

// note is the part of a commit that the history keeps.
type note struct {
	token   string
	changes []noted
}

type noted struct {
	name string
	place
	schemas schemas // after the change
}

func noteOf(c *store.Commit, schemasAfter func(*store.Change) schemas) note {
	n := note{token: c.Token, changes: make([]noted, len(c.Changes))}
	for i := range c.Changes {
		ch := &c.Changes[i]
		n.changes[i] = noted{ch.Name, place{c.Revision, ch.Version, int64(len(ch.Policy))}, schemasAfter(ch)}
	}
	return n
}

func (h *history) add(notes []note) {
	for _, n := range notes {
		for _, ch := range n.changes {
			places := h.places[ch.name]
			if last := len(places) - 1; last >= 0 {
				h.bytes += places[last].bytes
			}
			h.places[ch.name] = append(places, ch.place)
			if ch.schemas.last > 0 {
				h.schemas[ch.name] = ch.schemas
			}
		}
		h.token = n.token
	}
}

// excess returns the contents to remove: of each policy those beyond MaxVersions without one of its
// latest schemas, and of all policies the oldest, a tenth at a time.
func (h *history) excess() (list []noted) {
	bytes := h.bytes
	pick := func(name string, p place) {
		list = append(list, noted{name: name, place: p})
		bytes -= p.bytes
	}
	past := func(name string, i int) bool {
		places := h.places[name]
		return i < len(places)-MaxVersions && !h.schemas[name].from(places[i].revision)
	}
	for name, places := range h.places {
		for i, p := range places[:max(len(places)-MaxVersions, 0)] {
			if p.bytes > 0 && past(name, i) {
				pick(name, p)
			}
		}
	}
	if bytes <= h.most {
		return list
	}
	var kept []noted
	for name, places := range h.places {
		for i, p := range places[:len(places)-1] {
			if p.bytes > 0 && !past(name, i) {
				kept = append(kept, noted{name: name, place: p})
			}
		}
	}
	slices.SortFunc(kept, func(a, b noted) int { return cmp.Compare(a.revision, b.revision) })
	for _, n := range kept {
		if bytes <= h.most-h.most/10 {
			break
		}
		pick(n.name, n.place)
	}
	return list
}

// forgot records which contents were removed.
func (h *history) forgot(list []noted) {
	for _, n := range list {
		places := slices.Clone(h.places[n.name]) // others may be reading them
		i, _ := slices.BinarySearchFunc(places, n.revision, func(p place, revision int64) int { return cmp.Compare(p.revision, revision) })
		places[i].bytes = 0
		h.places[n.name] = places
		h.bytes -= n.bytes
	}
}

// maxTrimmed is how many commits are trimmed at a time, since a client waits for it.
const maxTrimmed = 100

// trim removes the contents beyond the bounds from the store. A failure is retried with the next
// change. The caller has the turn.
func (c *Catalog) trim(ctx context.Context) {
	list := c.history.excess()
	if len(list) == 0 {
		return
	}
	changes := map[int64][]string{}
	all := list
	list = nil
	for _, n := range all {
		if changes[n.revision] != nil || len(changes) < maxTrimmed {
			changes[n.revision], list = append(changes[n.revision], n.name), append(list, n)
		}
	}
	if err := c.cfg.Store.Forget(ctx, changes); err != nil {
		c.cfg.Logger.Warn("the history of policies is above its bound and cannot be shortened now", "error", err)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.history.forgot(list)
}

// lastVersion is the highest version of a name; 0: there is none.
func (h *history) lastVersion(name string) int64 {
	places := h.places[name]
	if len(places) == 0 {
		return 0
	}
	return places[len(places)-1].version
}

// placesOf returns the places of all changes of a policy.
func (c *Catalog) placesOf(name string) []place {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.history.places[name] // elements are only added, and never changed
}

// at reads the commit of a revision, and returns its change of a policy.
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
	Version int64        `json:"version"`
	At      Time         `json:"at"`
	By      string       `json:"by"`
	Reason  string       `json:"reason,omitempty"`
	Entry   *Entry       `json:"policy" schema:"Policy"` // nil: this version is a deletion, or its content is not kept any more
	Action  store.Action `json:"action"`
	To      int64        `json:"to,omitempty"` // the version that a rollback restored
}

// Record is the effect of a commit on one policy, or on none if it begins a series.
type Record struct {
	Revision int64        `json:"revision"`
	At       Time         `json:"at"`
	By       string       `json:"by"`
	Reason   string       `json:"reason,omitempty"`
	Action   store.Action `json:"action"`
	Name     string       `json:"name"`
	Version  int64        `json:"version"`
	From     *Entry       `json:"from" schema:"Policy"` // nil: there was no policy before, or it is not kept any more
	To       *Entry       `json:"to" schema:"Policy"`   // nil: there is none after, or it is not kept any more
}

// History returns the versions of a policy, newest first, also of a deleted one: the latest
// MaxVersions, or fewer if they are large. The error is not_found for a policy that never existed.
func (c *Catalog) History(ctx context.Context, name string) ([]Version, error) {
	places := c.placesOf(name)
	if len(places) == 0 {
		return nil, c.neverWas(name)
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
		versions = append(versions, Version{Version: ch.Version, At: Time{commit.At}, By: commit.By, Reason: commit.Reason,
			Action: ch.Action, To: ch.To, Entry: e})
	}
	return versions, nil
}

// Audit returns the records of revisions below before, newest first. It ends after the commit with
// which there are limit records, or many bytes of policies, so that no commit is split. next is the
// before of the next page, 0 at the end.
func (c *Catalog) Audit(ctx context.Context, before int64, limit int) (records []Record, next int64, _ error) {
	records = []Record{}
	size := 0
	for r := min(before-1, c.State().Revision); r >= 1 && len(records) < limit && size < maxAnswerBytes; r-- {
		commit, err := c.cfg.Store.At(ctx, r)
		if err != nil {
			return nil, 0, c.explain(err, false)
		}
		if commit.Series > 0 {
			records = append(records, Record{Revision: r, At: Time{commit.At}, By: commit.By, Action: store.NewSeries})
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

// record returns the record of a change, and the bytes of its policies.
func (c *Catalog) record(ctx context.Context, commit *store.Commit, ch *store.Change) (r Record, bytes int, err error) {
	r = Record{Revision: commit.Revision, At: Time{commit.At}, By: commit.By, Reason: commit.Reason,
		Action: ch.Action, Name: ch.Name, Version: ch.Version}
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

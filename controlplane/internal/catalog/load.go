package catalog

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-bus/sluice/controlplane/internal/store"
	"github.com/sluice-bus/sluice/internal/policy"
)

const (
	// retryEvery is Run's pause after a failure.
	retryEvery = time.Second
	// verifyEvery is how often Run checks that the store still has the policies in force, while
	// there are no new commits.
	verifyEvery = 2 * time.Second
)

// Run follows the commits of others until ctx ends. If it cannot read them, the policies in force
// stay, and it tries again.
func (c *Catalog) Run(ctx context.Context) error {
	failing := false
	for {
		changed, err := c.await(ctx)
		switch {
		case err != nil:
		case changed:
			err = c.follow(ctx)
		default:
			err = c.turns.Check(ctx, c.load)
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			failing = false
			continue
		case !failing:
			c.cfg.Logger.Error("cannot read the changes of policies; the last ones stay in force; trying again", "error", err)
			failing = true
		}
		if !c.wait(ctx, retryEvery) {
			return nil
		}
	}
}

// await waits for commits of others, or until it is time to verify. It reports whether there are some.
func (c *Catalog) await(ctx context.Context) (changed bool, _ error) {
	enough, cancel := context.WithTimeout(ctx, verifyEvery)
	defer cancel()
	err := c.cfg.Store.Await(enough, c.State().Revision)
	if enough.Err() != nil {
		return false, ctx.Err()
	}
	return err == nil, err
}

func (c *Catalog) follow(ctx context.Context) error {
	return c.turns.Change(ctx, func() error { return c.load(ctx) })
}

// load puts new commits in force. The caller has the turn.
func (c *Catalog) load(ctx context.Context) error {
	began := time.Now()
	if err := c.verify(ctx); err != nil {
		return err
	}
	g, err := c.gather(ctx, c.State(), c.history.schemas)
	if err != nil {
		return err
	}
	if len(g.notes) > 0 {
		next, err := g.state()
		if err != nil {
			return err
		}
		c.put(next, g.notes...)
	}
	c.read.Store(&began)
	return nil
}

// gathered collects the changes of several commits. Only the state after all of them is valid:
// contents of those in between may have been removed.
type gathered struct {
	from             *State
	revision, series int64
	last             map[string]*Entry // by name; nil: deleted
	missing          map[string]bool   // forgotten, and not yet found again
	notes            []note
	// before are the policies' schemas as of from, and as of later changes.
	before, after map[string]schemas
}

// gather reads all commits after a state with these schemas.
func (c *Catalog) gather(ctx context.Context, from *State, before map[string]schemas) (*gathered, error) {
	g := &gathered{from: from, revision: from.Revision, series: from.Series, last: map[string]*Entry{}, missing: map[string]bool{},
		before: before, after: map[string]schemas{}}
	for {
		commits, err := c.cfg.Store.After(ctx, g.revision)
		if err != nil || len(commits) == 0 {
			return g, err
		}
		for i := range commits {
			if err := g.add(&commits[i]); err != nil {
				return nil, err
			}
		}
	}
}

// add collects the changes of a commit. The commit was validated when it was made, so an error
// means that the store was edited.
func (g *gathered) add(c *store.Commit) error {
	g.revision, g.series = c.Revision, max(g.series, c.Series)
	for i := range c.Changes {
		ch := &c.Changes[i]
		e, err := entryOf(c, ch)
		if err != nil {
			return err
		}
		g.addSchema(c.Revision, ch, e)
		g.last[ch.Name] = e
		if delete(g.missing, ch.Name); ch.Forgotten {
			g.missing[ch.Name] = true
		}
	}
	g.notes = append(g.notes, noteOf(c, func(ch *store.Change) schemas { return g.after[ch.Name] }))
	return nil
}

// addSchema collects the schema of a change.
func (g *gathered) addSchema(revision int64, ch *store.Change, e *Entry) {
	known, changed := g.after[ch.Name]
	if !changed {
		known = g.before[ch.Name]
	}
	var digest policy.SchemaDigest
	if e != nil && e.Policy.JSONSchema() != "" {
		digest = policy.DigestOf(e.Policy.JSONSchema())
	}
	g.after[ch.Name] = known.after(ch.Schema, revision, digest)
}

func (g *gathered) state() (*State, error) {
	for name := range g.missing {
		return nil, fmt.Errorf("the policy %q is in force but no longer in the store: its documents were removed or edited", name)
	}
	var put []Entry
	var remove []string
	for name, e := range g.last {
		if e == nil {
			remove = append(remove, name)
		} else {
			put = append(put, *e)
		}
	}
	next, err := g.from.with(g.revision, put, remove)
	if err != nil {
		return nil, fmt.Errorf("the policies up to revision %d contradict each other: %w", g.revision, err)
	}
	next.Series = g.series
	return next, nil
}

// entryOf returns the policy after a change; nil: it is deleted, or its content was removed.
func entryOf(c *store.Commit, ch *store.Change) (*Entry, error) {
	if ch.Policy == nil {
		return nil, nil
	}
	p, err := policy.ParsePolicy(ch.Policy)
	if err == nil && p.Name != ch.Name {
		err = fmt.Errorf("the policy's name is %q", p.Name)
	}
	if err != nil {
		return nil, fmt.Errorf("revision %d of the policies, %q: it cannot be read: %w", c.Revision, ch.Name, err)
	}
	if ch.Schema > 0 {
		p.SetSchemaVersion(ch.Schema)
	}
	return &Entry{Policy: p, Version: ch.Version, UpdatedAt: c.At, UpdatedBy: c.By, bytes: len(ch.Policy)}, nil
}

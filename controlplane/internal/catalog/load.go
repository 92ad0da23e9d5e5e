package catalog

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-bus/sluice/controlplane/internal/store"
	"github.com/sluice-bus/sluice/internal/policy"
)

const (
	// retryEvery is how long Run waits after a failure.
	retryEvery = time.Second
	// verifyEvery is how often it looks whether the store still has what is in
	// force, while nothing new comes.
	verifyEvery = 2 * time.Second
)

// Run follows what others commit, until ctx ends. What it cannot read leaves
// what is in force in force, and is tried again.
func (c *Catalog) Run(ctx context.Context) error {
	failing := false
	for {
		err := c.await(ctx)
		if err == nil {
			err = c.follow(ctx)
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			failing = false
			continue
		case !failing:
			c.cfg.Logger.Error("cannot read the changes of policies; those in force stay so, and it is tried again", "error", err)
			failing = true
		}
		if !c.wait(ctx, retryEvery) {
			return nil
		}
	}
}

// await waits for commits of others, or until it is time to verify.
func (c *Catalog) await(ctx context.Context) error {
	enough, cancel := context.WithTimeout(ctx, verifyEvery)
	defer cancel()
	err := c.cfg.Store.Await(enough, c.State().Revision)
	if enough.Err() != nil {
		return ctx.Err()
	}
	return err
}

func (c *Catalog) follow(ctx context.Context) error {
	if err := c.take(ctx); err != nil {
		return err
	}
	defer c.giveBack()
	return c.load(ctx)
}

// load puts in force what was committed meanwhile. The caller has the turn.
func (c *Catalog) load(ctx context.Context) error {
	began := time.Now()
	if err := c.verify(ctx); err != nil {
		return err
	}
	for {
		now := c.State()
		commits, err := c.cfg.Store.After(ctx, now.Revision)
		if err != nil {
			return err
		}
		if len(commits) == 0 {
			c.read.Store(&began)
			return nil
		}
		next, err := now.after(commits)
		if err != nil {
			return err
		}
		c.put(next, commits...)
	}
}

// after returns the state that commits lead to. Each of them was validated when
// it was made, so an error means that another version made it, or that somebody
// has edited the store.
func (s *State) after(commits []store.Commit) (*State, error) {
	last := map[string]*Entry{} // by name; nil: deleted
	series := s.Series
	for i := range commits {
		series = max(series, commits[i].Series)
		for j := range commits[i].Changes {
			ch := &commits[i].Changes[j]
			e, err := entryOf(&commits[i], ch)
			if err != nil {
				return nil, err
			}
			last[ch.Name] = e
		}
	}
	var put []Entry
	var remove []string
	for name, e := range last {
		if e == nil {
			remove = append(remove, name)
		} else {
			put = append(put, *e)
		}
	}
	revision := commits[len(commits)-1].Revision
	next, err := s.with(revision, put, remove)
	if err != nil {
		return nil, fmt.Errorf("the policies up to revision %d do not go together: %w", revision, err)
	}
	next.Series = series
	return next, nil
}

// entryOf is what a change made of its policy; nil: it is deleted.
func entryOf(c *store.Commit, ch *store.Change) (*Entry, error) {
	if ch.Policy == nil {
		return nil, nil
	}
	p, err := policy.ParseStored(ch.Policy)
	if err == nil && p.Name != ch.Name {
		err = fmt.Errorf("the policy's name is %q", p.Name)
	}
	if err != nil {
		return nil, fmt.Errorf("revision %d of the policies, %q: this version cannot read it: %w", c.Revision, ch.Name, err)
	}
	return &Entry{Policy: p, Version: ch.Version, UpdatedAt: c.At, UpdatedBy: c.By, bytes: len(ch.Policy)}, nil
}

package catalog

import (
	"context"
	"errors"
	"fmt"

	"github.com/sluice-bus/sluice/controlplane/internal/store"
)

// errBehind says that the store lacks commits that are in force: its server lags, or it was
// restored from an older backup.
var errBehind = fmt.Errorf("%w: it ends before the policies in force; if it was restored from a backup, restart the control planes",
	store.ErrUnavailable)

// verify checks that the commits of the store follow the state in force. If the store was restored
// from a backup and has new commits since, all of it is read again: revisions of the same numbers
// differ. A store that ends too early is an error, since it may only lag. The caller has the turn.
func (c *Catalog) verify(ctx context.Context) error {
	revision := c.State().Revision
	if revision == 0 {
		return nil
	}
	there, err := c.cfg.Store.At(ctx, revision)
	switch {
	case errors.Is(err, store.ErrNone):
		return errBehind
	case err != nil:
		return err
	case there.Token == c.lastToken():
		return nil
	}
	c.cfg.Logger.Warn("the policy store's history differs from before, as after a restore from a backup; reading all of it again",
		"revision", revision)
	return c.reload(ctx)
}

// lastToken is the token of the commit that led to the state in force.
func (c *Catalog) lastToken() string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.history.token
}

// reload puts the store's policies in force, in place of all earlier ones. The caller has the turn.
func (c *Catalog) reload(ctx context.Context) error {
	g, err := c.gather(ctx, emptyState(), nil)
	if err != nil {
		return err
	}
	if len(g.notes) == 0 {
		return errBehind
	}
	state, err := g.state()
	if err != nil {
		return err
	}
	read := newHistory()
	read.most = c.history.most
	read.add(g.notes)
	c.mu.Lock()
	c.history = read
	c.mu.Unlock()
	c.put(state)
	return nil
}

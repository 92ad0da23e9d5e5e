package controlplane

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-bus/sluice/controlplane/internal/fleet"
	"github.com/sluice-bus/sluice/controlplane/internal/store"
	"github.com/sluice-bus/sluice/internal/pause"
)

const (
	// rosterEvery is how often the sidecars that other control planes have entered or forgotten are
	// read.
	rosterEvery = 2 * time.Second
	// rosterRest is the pause in which further sidecars that connect are collected.
	rosterRest = 20 * time.Millisecond
	// rosterAtOnce bounds the concurrent writes: after a start all sidecars connect.
	rosterAtOnce = 16
	// drainedWithin is less than the time that a sidecar waits for the answer to its goodbye.
	drainedWithin = 2500 * time.Millisecond
)

// keepRoster stores this control plane's sidecars, and reads those of the others, until ctx ends.
func (c *ControlPlane) keepRoster(ctx context.Context) error {
	failing := false
	for tick := time.NewTicker(rosterEvery); ; {
		_, change := c.registry.Due()
		select {
		case <-ctx.Done():
			tick.Stop()
			leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveWithin)
			defer cancel()
			if err := c.storeDue(leaving); err != nil {
				c.cfg.Logger.Warn("cannot store the list of sidecars before stopping", "error", err)
			}
			return nil
		case <-tick.C:
			_, _ = c.ping() // the status says since when the store is away
		case <-change:
		}
		err := errors.Join(c.readRoster(ctx), c.storeDue(ctx))
		if err != nil && !failing && ctx.Err() == nil {
			c.cfg.Logger.Warn("cannot read or store the list of sidecars; trying again", "error", err)
		}
		if failing = err != nil; !failing {
			pause.For(ctx, rosterRest)
		}
	}
}

// storeDue stores the sidecars that have connected or left.
func (c *ControlPlane) storeDue(ctx context.Context) error {
	var writes errgroup.Group
	writes.SetLimit(rosterAtOnce)
	due, _ := c.registry.Due()
	for _, e := range due {
		writes.Go(func() error {
			doc, err := json.Marshal(e)
			if err == nil {
				err = c.store.Enter(ctx, store.RosterEntry{Key: e.Key(), Life: e.Instance, Doc: doc})
			}
			if err == nil {
				c.registry.Stored(e)
			}
			return err
		})
	}
	return writes.Wait()
}

// readRoster reads the stored sidecars.
func (c *ControlPlane) readRoster(ctx context.Context) error {
	c.roster.Lock()
	defer c.roster.Unlock()
	entries, err := c.store.Entered(ctx)
	if err != nil {
		return err
	}
	list := make([]fleet.Entry, len(entries))
	for i, e := range entries {
		if err := json.Unmarshal(e.Doc, &list[i]); err != nil {
			return fmt.Errorf("the entry of a sidecar, %q: %w", e.Key, err)
		}
	}
	c.registry.Remember(list)
	return c.remove(ctx, "", c.registry.Superseded()...)
}

// remove removes entries from the store. With a life, an entry of that life that is written later
// is ignored, too.
func (c *ControlPlane) remove(ctx context.Context, life string, entries ...fleet.Entry) error {
	for _, e := range entries {
		if err := c.store.Leave(ctx, e.Key(), life); err != nil {
			return err
		}
		c.registry.Forget(e)
	}
	return nil
}

// drained records that a sidecar leaves no events behind.
func (c *ControlPlane) drained(n fleet.Node) error {
	ctx, cancel := context.WithTimeout(context.Background(), drainedWithin)
	defer cancel()
	c.roster.Lock()
	defer c.roster.Unlock()
	e := fleet.Entry{Node: n}
	if err := c.remove(ctx, n.Instance, e.Unknown()); err != nil { // it may have been entered before its store was known
		return err
	}
	if err := c.store.Leave(ctx, e.Key(), n.Instance); err != nil {
		return err
	}
	c.registry.Drained(n)
	return nil
}

// forget removes a missing sidecar, of all stores that it used, and reports whether there is one.
func (c *ControlPlane) forget(ctx context.Context, nodeID string) (found bool, err error) {
	c.roster.Lock()
	defer c.roster.Unlock()
	gone := slices.DeleteFunc(c.registry.Missing(), func(e fleet.Entry) bool { return e.ID != nodeID })
	return len(gone) > 0, c.remove(ctx, "", gone...)
}

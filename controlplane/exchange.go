package controlplane

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/url"
	"time"

	"github.com/sluice-bus/sluice/controlplane/internal/store"
	"github.com/sluice-bus/sluice/internal/pause"
)

const (
	// shareEvery is how often control planes of one store exchange the states of their sidecars,
	// and shareBusy how often while parts of fleet-wide rates are in use: it takes several
	// exchanges to move a rate from one control plane to another.
	shareEvery = 500 * time.Millisecond
	shareBusy  = 100 * time.Millisecond
	// forgetAfter is how long the document of a stopped control plane is kept.
	forgetAfter = time.Hour
	// leaveWithin bounds the time in which a stopping control plane tells the others.
	leaveWithin = 2 * time.Second
)

// knowledge is the document that a control plane shares with the others.
type knowledge struct {
	Fleet []byte `json:"fleet"` // of the registry
	Quota []byte `json:"quota"` // of the shares of fleet-wide rates
	URL   string `json:"url"`   // of its HTTP listener; "": it cannot be reached
}

// shareKnowledge exchanges documents with the other control planes of the store until ctx ends.
// With an embedded store there are no others.
func (c *ControlPlane) shareKnowledge(ctx context.Context) error {
	if c.shared == nil {
		return nil
	}
	var x lastExchange
	var last map[string][]byte
	failing := false
	for rest := shareEvery; pause.For(ctx, rest); {
		quotas, err := c.exchange(ctx, &x)
		rest = shareEvery
		if err == nil && !maps.EqualFunc(quotas, last, bytes.Equal) {
			rest, last = shareBusy, quotas
		}
		if err != nil && !failing && ctx.Err() == nil {
			c.cfg.Logger.Warn("cannot exchange the sidecars' states with the other control planes; trying again", "error", err)
		}
		failing = err != nil
	}
	leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveWithin)
	defer cancel()
	if err := c.leave(leaving); err != nil {
		c.cfg.Logger.Warn("cannot tell the other control planes that this one stops", "error", err)
	}
	return nil
}

// leave tells the others that this control plane has no sidecars any more. Its document stays,
// since its shares act for some time.
func (c *ControlPlane) leave(ctx context.Context) error {
	last, err := json.Marshal(knowledge{Quota: c.quota.Export()})
	if err != nil {
		return err
	}
	return c.shared.Put(ctx, c.name, last)
}

// lastExchange is the state that an exchange leaves to the next one.
type lastExchange struct {
	alive store.Alive
	// fleet is the registry's document as of fleetAt. It is large and only displayed, so it is
	// updated less often than the shares.
	fleet   []byte
	fleetAt time.Time
}

// exchange reads and writes the documents once. If the store cannot be read, the others stay known
// as before: a fleet that seemed smaller would be replayed in part, and get more than its rates.
func (c *ControlPlane) exchange(ctx context.Context, x *lastExchange) (quotas map[string][]byte, err error) {
	due := time.Since(x.fleetAt) >= shareEvery
	if due {
		x.fleet, x.fleetAt = c.registry.Export(), time.Now()
	}
	mine, err := json.Marshal(knowledge{Fleet: x.fleet, Quota: c.quota.Export(), URL: c.url()})
	if err != nil {
		return nil, err
	}
	if err := c.shared.Put(ctx, c.name, mine); err != nil {
		return nil, err
	}
	docs, err := c.shared.List(ctx)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	var fleets [][]byte
	quotas = map[string][]byte{}
	urls := map[string]*url.URL{}
	var bad error
	for _, d := range x.alive.Of(docs, now) {
		var k knowledge
		if err := json.Unmarshal(d.Doc, &k); err != nil {
			bad = errors.Join(bad, err)
			continue
		}
		quotas[d.Self] = k.Quota
		if at, err := url.Parse(k.URL); err == nil && k.URL != "" {
			urls[d.Self] = at
		}
		if len(k.Fleet) > 0 {
			fleets = append(fleets, k.Fleet)
		}
	}
	c.urls.Store(&urls)
	for gone, beat := range x.alive.Gone(now, forgetAfter) {
		bad = errors.Join(bad, c.shared.Remove(ctx, gone, beat))
	}
	if due {
		bad = errors.Join(bad, c.registry.Merge(c.name, fleets))
	}
	return quotas, errors.Join(bad, c.quota.Merge(c.name, quotas))
}

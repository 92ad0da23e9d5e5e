package control

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/sluice-bus/sluice/controlplane/policypb"
	"github.com/sluice-bus/sluice/internal/pause"
	"github.com/sluice-bus/sluice/sidecar/internal/xds"
)

// pace holds updates back while many come and each one costs a lot. While one
// waits, those behind it become one on the control plane.
type pace struct {
	free time.Time // when the next one may act
}

const (
	// maxPace bounds how long an update waits for the one before.
	maxPace = 20 * time.Millisecond
	// paceFactor is how many times as long as the making of a snapshot took it
	// is rested before the next one.
	paceFactor = 4
)

func (p *pace) wait(ctx context.Context) bool {
	rest := time.Until(p.free)
	return rest <= 0 || pause.For(ctx, rest)
}

func (p *pace) spent(began time.Time) {
	now := time.Now()
	p.free = now.Add(min(paceFactor*now.Sub(began), maxPace))
}

// apply puts an update in force as a whole, or says why it cannot be, naming
// the resources and their fields. When it returns nil the update is in force.
func (c *Control) apply(ctx context.Context, u xds.Update) error {
	if u.Type == policypb.PeerCredentialType {
		return c.vouched(u)
	}
	revision, err := c.notBefore(u)
	if err != nil {
		return err
	}
	entries, err := decodeAll(u.Type, u.Resources)
	if err != nil {
		c.doubt(u)
		return err
	}
	if costs(entries) && !c.pace.wait(ctx) {
		return ctx.Err()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	replaces := c.replaces(u, entries)
	acts := c.merge(u, entries)
	if revision != c.revision {
		c.revision = revision
		c.touch()
	}
	if u.Type == peersType {
		c.listPeers()
	}
	first := u.Type == policypb.GlobPolicyType && u.Whole && !c.live
	if first {
		c.confirm()
	}
	if c.have && replaces {
		// What it takes the place of must not be back after a kill. A failure is
		// keepNow's to tell: what cannot be kept acts, too.
		c.mu.Unlock()
		_ = c.save(ctx)
		c.mu.Lock()
	}
	if c.have && (acts || first) {
		began := time.Now()
		c.current.Swap(c.acting.snapshot(c.held))
		c.pace.spent(began)
	}
	c.settle(u, first)
	return nil
}

// vouched takes what the control plane says of this sidecar. It is not kept: it is
// the process's own, and lapses soon.
func (c *Control) vouched(u xds.Update) error {
	for _, r := range u.Resources {
		var m structpb.Struct
		if err := proto.Unmarshal(r.Body, &m); err != nil {
			return fmt.Errorf("%q: %w", r.Name, err)
		}
		credential, issuer, err := policypb.ReadPeerCredential(&m)
		if err == nil {
			err = c.cfg.Vouched(credential, issuer)
		}
		if err != nil {
			return fmt.Errorf("%q: %w", r.Name, err)
		}
	}
	return nil
}

// notBefore refuses policies of a revision that is below what was in force: they
// are those of a control plane that was cut off, or of a store that was restored
// from a backup. It returns the revision that is in force with the update.
func (c *Control) notBefore(u xds.Update) (policypb.Revision, error) {
	c.mu.Lock()
	has := c.revision
	c.mu.Unlock()
	given, err := policypb.ParseRevision(u.Version)
	switch {
	case u.Type == peersType || err != nil: // a control plane of before there were revisions
		return has, nil
	case given.Compare(has) < 0:
		return has, fmt.Errorf("%w: the policies are of revision %v, below %v, which was in force here; "+
			"if they are right, as after their store was restored from a backup: sluice policy new-series", xds.ErrLater, given, has)
	}
	return given, nil
}

// costs tells whether a new snapshot will be made of what has come. That topics
// have no policy of their own is what most answers say, and costs nothing.
func costs(entries map[string]*entry) bool {
	for _, e := range entries {
		if e.effective != nil {
			return true
		}
	}
	return false
}

// replaces tells whether policies change that are in force. A topic's that is used
// for the first time, as most are that come, is not worth a wait for the disk.
func (c *Control) replaces(u xds.Update, entries map[string]*entry) bool {
	if u.Type == peersType {
		return false
	}
	for name := range entries {
		if u.Type == policypb.GlobPolicyType || c.held[u.Type][name] != nil {
			return true
		}
	}
	return len(u.Removed) > 0
}

// merge takes over what the update has, and reports whether policies change.
func (c *Control) merge(u xds.Update, entries map[string]*entry) (acts bool) {
	held := c.held[u.Type]
	c.acting.stale = c.acting.stale || len(entries)+len(u.Removed) >= manyChanges
	for name, e := range entries {
		if u.Type == policypb.TopicPolicyType && c.topics.find(name) == nil {
			continue // forgotten meanwhile
		}
		was := held[name]
		acts = acts || e.effective != nil || was != nil && was.effective != nil
		held[name] = e
		c.acting.change(name, e)
	}
	for _, name := range u.Removed {
		was := held[name]
		acts = acts || was != nil && was.effective != nil
		delete(held, name)
		c.acting.change(name, nil)
	}
	if len(entries)+len(u.Removed) > 0 {
		c.touch()
	}
	return acts
}

// confirm notes that everything is as the control plane has it, once in a life.
func (c *Control) confirm() {
	for _, entries := range c.held {
		for _, e := range entries {
			e.live = e.live || !e.outdated
		}
	}
	c.acting.stale = true
	c.have, c.live = true, true
	c.touch()
}

// settle tells those who wait for what is now in force; first says that this is
// the first time that all of it is.
func (c *Control) settle(u xds.Update, first bool) {
	if !c.have {
		return
	}
	if first {
		for name := range c.held[policypb.TopicPolicyType] {
			c.answer(name)
		}
		close(c.synced)
	}
	if u.Type == policypb.TopicPolicyType {
		c.silent.Store(false)
		for _, r := range u.Resources {
			c.answer(r.Name)
		}
		for _, name := range u.Removed {
			c.answer(name)
		}
	}
}

// answer makes a topic known.
func (c *Control) answer(name string) {
	t := c.topics.find(name)
	if t == nil || t.standing.Swap(known) == known {
		return
	}
	close(t.answered)
}

// doubt notes that something newer than what is in force was refused.
func (c *Control) doubt(u xds.Update) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range u.Resources {
		if e := c.held[u.Type][r.Name]; e != nil {
			e.outdated = true
		}
	}
	for _, name := range u.Removed {
		if e := c.held[u.Type][name]; e != nil {
			e.outdated = true
		}
	}
}

// versions are those of what is held of a type, as xDS counts them.
func (c *Control) versions(typeURL string) map[string]string {
	out := make(map[string]string, len(c.held[typeURL]))
	for name, e := range c.held[typeURL] {
		out[name] = e.version
	}
	return out
}

// decodeAll decodes resources of a type; the error has every bad one.
func decodeAll(typeURL string, resources []xds.Resource) (map[string]*entry, error) {
	entries := make(map[string]*entry, len(resources))
	var bad []error
	for _, r := range resources {
		e, err := decode(typeURL, r)
		if err != nil {
			bad = append(bad, err)
			continue
		}
		entries[r.Name] = e
	}
	if len(bad) > 0 {
		return nil, errors.Join(bad...)
	}
	return entries, nil
}

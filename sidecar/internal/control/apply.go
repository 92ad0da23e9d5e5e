package control

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/internal/policypb"
	"github.com/sluice-bus/sluice/sidecar/internal/xds"
)

// apply puts an update in force completely, or returns an error that names the bad resources and
// their fields.
func (c *Control) apply(ctx context.Context, u xds.Update) error {
	if u.Type == policypb.PeerCredentialType {
		return c.acceptCredential(u)
	}
	if u.Type == peersType && u.Whole { // refused or not
		c.mu.Lock()
		c.peersKnown = true
		c.mu.Unlock()
	}
	revision, err := c.notBefore(u)
	if err != nil {
		return err
	}
	if len(c.read) > maxSettingsRead {
		clear(c.read)
	}
	entries, err := decodeAll(u.Type, u.Resources, c.read)
	if err != nil {
		c.markOutdated(u)
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	remove, put := c.merge(u, entries)
	if revision != c.revision {
		c.revision = revision
		c.touch()
	}
	if u.Type == peersType {
		c.listPeers()
	}
	first := u.Type == policypb.PolicyPackType && u.Whole && !c.live
	if first {
		c.confirm()
	}
	changes := len(remove)+len(put) > 0
	if c.have && changes {
		// A kill must not restore the replaced resources. keepNow reports a failure: an update that
		// cannot be stored is in force nevertheless.
		c.mu.Unlock()
		_ = c.save(ctx)
		c.mu.Lock()
	}
	switch {
	case first:
		c.current.Swap(c.snapshot())
		close(c.synced)
	case c.have && changes:
		c.current.Swap(c.current.Load().Replace(remove, put))
	}
	return nil
}

// acceptCredential accepts this sidecar's peer credential. It is not stored: it is for this process only,
// and expires soon.
func (c *Control) acceptCredential(u xds.Update) error {
	for _, r := range u.Resources {
		var m structpb.Struct
		if err := proto.Unmarshal(r.Body, &m); err != nil {
			return fmt.Errorf("%q: %w", r.Name, err)
		}
		credential, issuer, err := policypb.ReadPeerCredential(&m)
		if err == nil {
			err = c.cfg.OnCredential(credential, issuer)
		}
		if err != nil {
			return fmt.Errorf("%q: %w", r.Name, err)
		}
	}
	return nil
}

// notBefore refuses policies of a lower revision than the one in force: they are from a control
// plane that was cut off, or from a store that was restored from a backup. It returns the revision
// in force after the update.
func (c *Control) notBefore(u xds.Update) (policypb.Revision, error) {
	c.mu.Lock()
	has := c.revision
	c.mu.Unlock()
	if u.Type == peersType {
		return has, nil
	}
	given, err := policypb.ParseRevision(u.Version)
	if err != nil {
		return has, err
	}
	if given.Compare(has) < 0 {
		return has, fmt.Errorf("%w: the policies are of revision %v, below %v, which was in force here; "+
			"if they are right, as after their store was restored from a backup: sluice policy new-series", xds.ErrLater, given, has)
	}
	return given, nil
}

// merge adds the update's resources to the accepted ones. It returns the policies that the update removes or
// replaces, and the new ones.
func (c *Control) merge(u xds.Update, entries map[string]*entry) (remove, put []*policy.Resolved) {
	accepted := c.accepted[u.Type]
	follow := func(name string, e *entry) {
		was := accepted[name]
		if was == nil {
			was = &entry{}
		}
		gone, come := e.follow(was)
		remove, put = append(remove, gone...), append(put, come...)
	}
	for name, e := range entries {
		if c.cfg.Dir == "" {
			e.body = nil // only the cache needs it
		}
		follow(name, e)
		accepted[name] = e
	}
	for _, name := range u.Removed {
		follow(name, &entry{})
		delete(accepted, name)
	}
	if len(entries)+len(u.Removed) > 0 {
		c.touch()
	}
	return remove, put
}

// snapshot returns all accepted policies.
func (c *Control) snapshot() *policy.Snapshot {
	var all []*policy.Resolved
	for _, e := range c.accepted[policypb.PolicyPackType] {
		all = append(all, e.policies...)
	}
	return policy.NewResolvedSnapshot(nil).Replace(nil, all)
}

// confirm records that the accepted policies are what the control plane has, once per process.
func (c *Control) confirm() {
	for _, e := range c.accepted[policypb.PolicyPackType] {
		if !e.live && !e.outdated {
			e.confirm()
		}
	}
	c.have, c.live = true, true
	c.touch()
}

// markOutdated records that this sidecar refused newer resources than those in force.
func (c *Control) markOutdated(u xds.Update) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range u.Resources {
		if e := c.accepted[u.Type][r.Name]; e != nil {
			e.outdated = true
		}
	}
	for _, name := range u.Removed {
		if e := c.accepted[u.Type][name]; e != nil {
			e.outdated = true
		}
	}
}

// versions returns the xDS versions of the accepted resources of a type.
func (c *Control) versions(typeURL string) map[string]string {
	out := make(map[string]string, len(c.accepted[typeURL]))
	for name, e := range c.accepted[typeURL] {
		out[name] = e.version
	}
	return out
}

// decodeAll decodes resources of a type; the error has every bad one.
func decodeAll(typeURL string, resources []xds.Resource, read settingsRead) (map[string]*entry, error) {
	entries := make(map[string]*entry, len(resources))
	var bad []error
	for _, r := range resources {
		e, err := decode(typeURL, r, read, sourceLive)
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

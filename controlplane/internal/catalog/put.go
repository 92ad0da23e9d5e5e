package catalog

import (
	"context"
	"fmt"

	"github.com/sluice-bus/sluice/controlplane/internal/store"
	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/nearest"
)

// Permits is the condition of a change of a policy whose version is current, 0 if there is none. It
// is evaluated for the latest state, and again for a later one if another commit came first. The
// change fails with its error; a nil Permits permits everything.
type Permits = func(current int64) error

// allowed evaluates permits for a policy that may be nil.
func allowed(permits Permits, e *Entry) error {
	switch {
	case permits == nil:
		return nil
	case e == nil:
		return permits(0)
	}
	return permits(e.Version)
}

// Get returns a policy; the error is not_found.
func (c *Catalog) Get(name string) (Entry, error) {
	if e := c.State().Find(name); e != nil {
		return *e, nil
	}
	return Entry{}, c.State().notFound(name)
}

// similar ends the error about a policy that there is not, with the most similar name in force.
func (s *State) similar(name string) string {
	names := make([]string, len(s.Entries))
	for i, e := range s.Entries {
		names[i] = e.Policy.Name
	}
	return nearest.Hint(name, names)
}

func (s *State) notFound(name string) error {
	return wire.Errorf(wire.NotFound, "there is no policy %q%s", name, s.similar(name))
}

func (c *Catalog) neverWas(name string) error {
	return wire.Errorf(wire.NotFound, "there never was a policy %q%s", name, c.State().similar(name))
}

// Put creates or replaces a policy. A policy that is equal to the current one changes nothing, also
// no version. The result has one change. A dry run returns the result, with the new version, and
// changes nothing.
//
// Like all changes, its errors are *[wire.Error]: the error of permits, invalid_policy,
// payload_too_large, or store_unavailable, whose message says if the change may have been made. Bad
// fields are named publish.rate if they are of the given policy, and policies["name"].publish.rate
// if the change makes another one invalid.
func (c *Catalog) Put(ctx context.Context, by Author, p policy.Policy, permits Permits, dryRun bool) (Applied, error) {
	if !policy.ValidName(p.Name) {
		return Applied{}, badName("name", p.Name)
	}
	return c.applied(ctx, by, dryRun, map[string]int{p.Name: 0}, func(s *State) (*request, error) {
		e := s.Find(p.Name)
		if err := allowed(permits, e); err != nil {
			return nil, err
		}
		if e != nil && e.Policy.Equal(&p) {
			return nil, nil
		}
		return &request{put: []policy.Policy{p}, call: callOthers(p.Name)}, nil
	})
}

// Delete removes a policy, as Put puts one; the error is not_found if there is none.
func (c *Catalog) Delete(ctx context.Context, by Author, name string, permits Permits, dryRun bool) (Applied, error) {
	return c.applied(ctx, by, dryRun, map[string]int{name: 0}, func(s *State) (*request, error) {
		e := s.Find(name)
		if e == nil {
			return nil, s.notFound(name)
		}
		if err := allowed(permits, e); err != nil {
			return nil, err
		}
		return &request{remove: []string{name}, call: callOthers(name)}, nil
	})
}

// Rollback restores the content of an earlier version as a new version, also if it is equal to the
// current one or the policy is deleted. The error is not_found for a version that does not exist or
// is a deletion, and invalid_policy if the content is invalid together with the other policies.
func (c *Catalog) Rollback(ctx context.Context, by Author, name string, version int64, permits Permits) (Entry, error) {
	_, after, err := c.commit(ctx, by, false, func(s *State) (*request, error) {
		old, err := c.version(ctx, name, version)
		if err != nil {
			return nil, err
		}
		if err := allowed(permits, s.Find(name)); err != nil {
			return nil, err
		}
		return &request{put: []policy.Policy{old}, action: store.RolledBack, to: version, call: callOthers(name)}, nil
	})
	if err != nil {
		return Entry{}, err
	}
	return *after.Find(name), nil
}

// NewSeries declares the policies in force to be right: sidecars refuse lower revisions than their
// own, such as those of a store that was restored from a backup. The policies do not change.
func (c *Catalog) NewSeries(ctx context.Context, by Author) (*State, error) {
	_, after, err := c.commit(ctx, by, false, func(*State) (*request, error) { return &request{series: true}, nil })
	return after, err
}

// version reads the content of a version.
func (c *Catalog) version(ctx context.Context, name string, version int64) (policy.Policy, error) {
	places := c.placesOf(name)
	last, oldest := int64(len(places)), max(int64(len(places))-MaxVersions, 0)+1
	switch { // versions have no gaps
	case last == 0:
		return policy.Policy{}, c.neverWas(name)
	case version < oldest || version > last:
		return policy.Policy{}, wire.Errorf(wire.NotFound, "the policy %q can be rolled back to versions %d to %d, not to %d",
			name, oldest, last, version)
	}
	_, ch, err := c.at(ctx, places[version-1].revision, name)
	switch {
	case err != nil:
		return policy.Policy{}, err
	case ch.Forgotten:
		return policy.Policy{}, wire.Errorf(wire.NotFound,
			"version %d of the policy %q is not kept any more: only the latest %d MiB of all policies are kept", version, name, MaxHistoryBytes>>20)
	case ch.Policy == nil:
		return policy.Policy{}, wire.Errorf(wire.NotFound,
			"version %d of the policy %q is its deletion and has no content; to have no policy, delete it", version, name)
	}
	return policy.ParsePolicy(ch.Policy)
}

// callOthers names the policies, other than self, in errors of a change of self.
func callOthers(self string) func(string) string {
	return func(name string) string {
		if name == self {
			return ""
		}
		return fmt.Sprintf("policies[%q]", name)
	}
}

func badName(field, name string) error {
	return invalid([]wire.FieldError{{Field: field, Message: fmt.Sprintf(
		"must be a topic (1 to %d of A-Z a-z 0-9 . _ -), or a prefix of one and a * at the end, not %.300q", wire.MaxTopicBytes, name)}})
}

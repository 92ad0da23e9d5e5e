package catalog

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/sluice-bus/sluice/controlplane/internal/store"
	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// Change is the effect of a request on one policy.
type Change struct {
	Name   string `json:"name"`
	Action string `json:"action"`               // create, update, delete or unchanged
	From   *Entry `json:"from" schema:"Policy"` // nil: there was no policy before
	To     *Entry `json:"to" schema:"Policy"`   // nil: there is none after
}

// Applied is the result of a Put, Delete or Apply, or of its dry run.
type Applied struct {
	Revision int64    // of the policies after it; those before it where it was a dry run
	Changes  []Change // ascending by name, unchanged policies included
	// Before and After are the policies without and with the changes.
	Before, After *State
}

// Apply puts several policies in one commit, and with prune removes all others. A dry run returns
// the result, with the new versions, and changes nothing. Errors are those of [Catalog.Put], except
// that bad fields of applied policies are named policies[i].field.
func (c *Catalog) Apply(ctx context.Context, by Author, policies []policy.Policy, prune, dryRun bool) (Applied, error) {
	places, err := placesOf(policies)
	if err != nil {
		return Applied{}, err
	}
	return c.applied(ctx, by, dryRun, places, func(s *State) (*request, error) {
		r := &request{call: callPlaces(places)}
		for i := range policies {
			if e := s.Find(policies[i].Name); e == nil || !e.Policy.Equal(&policies[i]) {
				r.put = append(r.put, policies[i])
			}
		}
		for i := range s.Entries {
			name := s.Entries[i].Policy.Name
			if _, stays := places[name]; prune && !stays {
				r.remove = append(r.remove, name)
			}
		}
		if len(r.put) == 0 && len(r.remove) == 0 {
			return nil, nil
		}
		return r, nil
	})
}

// applied commits a request, unless it is a dry run, and compares the states before and after it.
// asked has the names of the request.
func (c *Catalog) applied(ctx context.Context, by Author, dryRun bool, asked map[string]int, what decide) (Applied, error) {
	before, after, err := c.commit(ctx, by, dryRun, what)
	if err != nil {
		return Applied{}, err
	}
	done := Applied{Revision: after.Revision, Changes: changes(before, after, asked), Before: before, After: after}
	if dryRun {
		done.Revision = before.Revision
	}
	return done, nil
}

// changes compares two states. It leaves out policies that are equal in both and were not in the
// request.
func changes(before, after *State, asked map[string]int) []Change {
	names := slices.Collect(maps.Keys(asked))
	for i := range before.Entries {
		name := before.Entries[i].Policy.Name
		if _, there := asked[name]; !there && after.Find(name) == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	list := make([]Change, len(names))
	for i, name := range names {
		ch := Change{Name: name, Action: "update", From: before.Find(name), To: after.Find(name)}
		switch {
		case ch.From == nil:
			ch.Action = "create"
		case ch.To == nil:
			ch.Action = "delete"
		case ch.From.Version == ch.To.Version:
			ch.Action = "unchanged"
		}
		list[i] = ch
	}
	return list
}

// Seed puts the first policies into a store that has never had any, and reports whether it did. If
// several control planes start at once, only one of them does.
func (c *Catalog) Seed(ctx context.Context, policies []policy.Policy) (seeded bool, _ error) {
	places, err := placesOf(policies)
	if err != nil {
		return false, err
	}
	before, _, err := c.commit(ctx, Author{Name: "--policies", Admin: true}, false, func(s *State) (*request, error) {
		if s.Revision > 0 || len(policies) == 0 {
			return nil, nil
		}
		return &request{put: policies, action: store.Seeded, call: callPlaces(places)}, nil
	})
	return err == nil && before.Revision == 0, err
}

// placesOf returns the policies' positions by name, and refuses invalid and duplicate names.
func placesOf(policies []policy.Policy) (map[string]int, error) {
	places := make(map[string]int, len(policies))
	var bad []wire.FieldError
	for i := range policies {
		name, field := policies[i].Name, fmt.Sprintf("policies[%d].name", i)
		first, twice := places[name]
		switch {
		case !policy.ValidName(name):
			bad = append(bad, wire.AsError(badName(field, name)).Fields...)
		case twice:
			bad = append(bad, wire.FieldError{Field: field, Message: fmt.Sprintf("%q is the name of policies[%d] already", name, first)})
		default:
			places[name] = i
		}
	}
	if len(bad) > 0 {
		return nil, invalid(bad)
	}
	return places, nil
}

// callPlaces names policies by their positions in a list, and others by their names.
func callPlaces(places map[string]int) func(string) string {
	return func(name string) string {
		if i, ok := places[name]; ok {
			return fmt.Sprintf("policies[%d]", i)
		}
		return fmt.Sprintf("policies[%q]", name)
	}
}

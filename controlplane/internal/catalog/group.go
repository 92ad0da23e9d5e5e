package catalog

import (
	"context"
	"encoding/json"

	"github.com/sluice-bus/sluice/internal/policy"
)

// PutGroup replaces what a policy says of one consumer group, and makes the policy if there is none;
// limits is the group's object in the document. Otherwise it is as Put.
func (c *Catalog) PutGroup(ctx context.Context, by Author, name, group string, limits json.RawMessage, permits Permits) (Applied, error) {
	if !policy.ValidName(name) {
		return Applied{}, badName("name", name)
	}
	return c.applied(ctx, by, false, map[string]int{name: 0}, func(s *State) (*request, error) {
		e := s.Find(name)
		if err := allowed(permits, e); err != nil {
			return nil, err
		}
		was := policy.Policy{Name: name}
		if e != nil {
			was = e.Policy
		}
		p, err := withGroup(&was, group, limits)
		if err != nil || e != nil && was.Equal(&p) {
			return nil, err
		}
		return &request{put: []policy.Policy{p}, call: callOthers(name)}, nil
	})
}

// withGroup is a policy with other limits of a group.
func withGroup(p *policy.Policy, group string, limits json.RawMessage) (policy.Policy, error) {
	var document, groups map[string]json.RawMessage
	if err := json.Unmarshal(p.AppendJSON(nil), &document); err != nil {
		return policy.Policy{}, err
	}
	if all := document["groups"]; all != nil {
		if err := json.Unmarshal(all, &groups); err != nil {
			return policy.Policy{}, err
		}
	}
	if groups == nil {
		groups = map[string]json.RawMessage{}
	}
	groups[group] = limits
	var err error
	if document["groups"], err = json.Marshal(groups); err != nil {
		return policy.Policy{}, err
	}
	text, err := json.Marshal(document)
	if err != nil {
		return policy.Policy{}, err
	}
	return policy.ParsePolicy(text)
}

package catalog

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/internal/schema"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// MaxSchemas is how many of the latest versions of a policy's schema are kept, even if more than
// MaxVersions changes of the policy came after them. MaxHistoryBytes bounds their bytes, too.
const MaxSchemas = 100

// schemas are the versions of one policy's schema. A schema gets a new number when it differs from
// the one before in more than spelling.
type schemas struct {
	last   int64               // the highest version; 0: there never was a schema
	digest policy.SchemaDigest // of that one; zero: it is not kept
	places []schemaPlace       // of the changes that brought the latest MaxSchemas, ascending
}

type schemaPlace struct{ version, revision int64 }

// count returns the version of a schema that is put now.
func (s schemas) count(d policy.SchemaDigest) int64 {
	if s.last > 0 && s.digest == d {
		return s.last
	}
	return s.last + 1
}

// after returns the schemas after a change to a schema of some version.
func (s schemas) after(version, revision int64, d policy.SchemaDigest) schemas {
	if version <= s.last {
		return s
	}
	places := append(slices.Clone(s.places), schemaPlace{version, revision}) // others may be reading them
	return schemas{version, d, places[max(len(places)-MaxSchemas, 0):]}
}

// from reports whether a change of a revision made one of the versions.
func (s schemas) from(revision int64) bool {
	_, found := slices.BinarySearchFunc(s.places, revision, func(p schemaPlace, revision int64) int {
		return cmp.Compare(p.revision, revision)
	})
	return found
}

func (c *Catalog) schemasOf(name string) schemas {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.history.schemas[name]
}

// Schema is one version of a policy's schema.
type Schema struct {
	Version    int64           `json:"version"`
	At         Time            `json:"at"`
	By         string          `json:"by"`
	JSONSchema json.RawMessage `json:"json_schema"`
}

// Schemas returns the versions of a policy's schema, newest first, also of a deleted policy: the
// latest MaxSchemas, or fewer if they are large or not kept any more. The error is not_found for a
// policy that never existed.
func (c *Catalog) Schemas(ctx context.Context, name string) ([]Schema, error) {
	if len(c.placesOf(name)) == 0 {
		return nil, c.neverWas(name)
	}
	return c.readSchemas(ctx, name, MaxSchemas)
}

// readSchemas reads up to a number of the latest versions, newest first.
func (c *Catalog) readSchemas(ctx context.Context, name string, most int) ([]Schema, error) {
	list, size := []Schema{}, 0
	for _, p := range slices.Backward(c.schemasOf(name).places) {
		if len(list) == most || size >= maxAnswerBytes {
			break
		}
		commit, ch, err := c.at(ctx, p.revision, name)
		if err != nil {
			return nil, err
		}
		e, err := entryOf(commit, ch)
		switch {
		case err != nil:
			return nil, err
		case e == nil: // forgotten, as are those before it
			return list, nil
		}
		text := e.Policy.JSONSchema()
		size += len(text)
		list = append(list, Schema{p.version, Time{commit.At}, commit.By, json.RawMessage(text)})
	}
	return list, nil
}

// CheckSchema returns the reasons why a schema is incompatible with those of a policy; none: it is
// compatible. The default compatibility is the one in force. The error is not_found for a policy
// that never existed.
func (c *Catalog) CheckSchema(ctx context.Context, name, text string, how policy.Compatibility) ([]string, error) {
	if len(c.placesOf(name)) == 0 {
		return nil, c.neverWas(name)
	}
	if how == "" {
		how = c.State().compatibility(name)
	}
	return c.breaks(ctx, schema.NewBudget(ctx), name, text, how)
}

// compatibility returns the one in force for the schema of a policy's name.
func (s *State) compatibility(name string) policy.Compatibility {
	e := s.Snapshot.Effective(name)
	if e == nil {
		e = s.Snapshot.Topic(strings.TrimSuffix(name, "*"))
	}
	return e.Schema.Compatibility
}

// breaks returns the reasons why a schema is incompatible with earlier versions.
func (c *Catalog) breaks(ctx context.Context, budget *schema.Budget, name, text string, how policy.Compatibility) ([]string, error) {
	was := c.schemasOf(name)
	if was.last == 0 || was.digest == policy.DigestOf(text) && !how.Transitive() || how == policy.CompatibilityNone {
		return nil, nil
	}
	most := 1
	if how.Transitive() {
		most = MaxSchemas
	}
	kept, err := c.readSchemas(ctx, name, most)
	if err != nil {
		return nil, err
	}
	if len(kept) == 0 {
		return []string{fmt.Sprintf("version %d of the policy's schema is not kept any more, and a schema that cannot be "+
			"compared counts as incompatible: set schema.compatibility to none for this change", was.last)}, nil
	}
	older := make([]policy.Older, len(kept))
	for i, s := range kept {
		older[i] = policy.Older{Name: fmt.Sprintf("version %d", s.Version), Text: string(s.JSONSchema)}
	}
	return how.Breaks(budget, text, older), ctx.Err()
}

// holdToSchemas refuses a put policy whose schema is incompatible with earlier versions.
func (c *Catalog) holdToSchemas(ctx context.Context, r *request, next *State) error {
	budget := schema.NewBudget(ctx)
	var bad []wire.FieldError
	for i := range r.put {
		p := &r.put[i]
		text := p.JSONSchema()
		if text == "" || next.Find(p.Name).Policy.SchemaVersion() <= c.schemasOf(p.Name).last {
			continue
		}
		reasons, err := c.breaks(ctx, budget, p.Name, text, next.compatibility(p.Name))
		if err != nil {
			return err
		}
		for _, reason := range reasons {
			bad = append(bad, wire.FieldError{Field: fmt.Sprintf("policies[%d].schema.json_schema", i), Message: reason})
		}
	}
	if len(bad) == 0 {
		return nil
	}
	return r.refused(invalid(bad))
}
